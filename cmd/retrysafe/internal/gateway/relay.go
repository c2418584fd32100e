package gateway

import (
	"errors"
	"io"
	"net/http"
	"net/textproto"
	"slices"
	"strings"

	"github.com/retrysafe/retrysafe/internal/headerkind"
)

// relay sends an answer on to the client: its header, what is left of its body, and its
// trailers. The head is sent as it is; body is where the rest is read.
func relay(w http.ResponseWriter, res *http.Response, body io.Reader) error {
	setHeader(w.Header(), res)
	announced := len(res.Trailer)
	w.WriteHeader(res.StatusCode)
	if err := copyBody(w, res, body); err != nil {
		return err
	}
	setTrailers(w, res, announced)
	return nil
}

// relayHeld is relay for an answer whose body has arrived, and is not used again if owned.
func relayHeld(w http.ResponseWriter, res *http.Response, body []byte, owned bool) error {
	setHeader(w.Header(), res)
	announced := len(res.Trailer)
	w.WriteHeader(res.StatusCode)
	if len(body) > 0 {
		write := w.Write
		if guard, ok := w.(interface{ WriteOwned(p []byte) (int, error) }); ok && owned {
			write = guard.WriteOwned
		}
		if _, err := write(body); err != nil {
			return err
		}
	}
	setTrailers(w, res, announced)
	return nil
}

// setHeader sets the headers of an answer, but for those that are about its connection.
func setHeader(h http.Header, res *http.Response) {
	for _, list := range res.Header["Connection"] {
		for name := range strings.SplitSeq(list, ",") {
			res.Header.Del(textproto.TrimString(name))
		}
	}
	for name, values := range res.Header {
		if headerkind.IsHop(name) {
			continue
		}
		if before := h[name]; len(before) > 0 {
			values = slices.Concat(before, values)
		}
		h[name] = values
	}
	for name := range res.Trailer {
		h["Trailer"] = append(h["Trailer"], name)
	}
}

// setTrailers sends the trailers of an answer, of which so many were announced.
func setTrailers(w http.ResponseWriter, res *http.Response, announced int) {
	if len(res.Trailer) == 0 {
		return
	}
	_ = http.NewResponseController(w).Flush() // so that the answer is one in chunks, which have trailers
	for name, values := range res.Trailer {
		if len(res.Trailer) != announced {
			name = http.TrailerPrefix + name
		}
		w.Header()[name] = values
	}
}

const eventStream = "text/event-stream"

// copyBody copies the body of an answer. A stream is not held up for more of it.
func copyBody(w http.ResponseWriter, res *http.Response, body io.Reader) error {
	kind := ""
	if lines := res.Header["Content-Type"]; len(lines) > 0 {
		kind = lines[0]
	}
	stream := res.ContentLength < 0 || len(kind) >= len(eventStream) && strings.EqualFold(kind[:len(eventStream)], eventStream)
	if stream {
		_ = http.NewResponseController(w).Flush() // the head goes ahead
	}
	buf := copyBuffers.Get()
	defer copyBuffers.Put(buf)
	for {
		n, err := body.Read(buf)
		if n > 0 {
			if _, err := w.Write(buf[:n]); err != nil {
				return err
			}
			if stream {
				_ = http.NewResponseController(w).Flush()
			}
		}
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		}
	}
}
