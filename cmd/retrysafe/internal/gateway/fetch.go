package gateway

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptrace"
	"net/textproto"
	"net/url"
	"slices"
	"strings"
	"sync"

	"github.com/retrysafe/retrysafe/internal/headerkind"
)

// Most requests that pass are a GET without a body and with nothing odd about it. They
// take a way of their own, which does for them what [httputil.ReverseProxy] does, for
// less: header values are handed on instead of copied, and what cannot concern such a
// request is not looked for. All others take the proxy.

// isPlain reports whether a request is such a one.
func (u *upstream) isPlain(r *http.Request) bool {
	if r.Method != http.MethodGet && r.Method != http.MethodHead || r.ContentLength != 0 || u.prefix {
		return false
	}
	for name := range r.Header {
		if name == "Expect" || name != "Connection" && headerkind.IsHop(name) { // it wants more than an answer
			return false
		}
	}
	lines := r.Header["Connection"]
	return len(lines) == 0 || len(lines) == 1 && strings.EqualFold(lines[0], "keep-alive")
}

// fetch passes a plain request on and its answer back.
func (p *passthrough) fetch(w http.ResponseWriter, r *http.Request) {
	hints := &earlyHints{w: w}
	res, err := p.proxy.Transport.RoundTrip(p.g.plainRequest(r, hints))
	hints.end()
	if err != nil {
		p.failed(w, r, err)
		return
	}
	defer res.Body.Close()
	err = p.answered(res)
	if res.StatusCode == http.StatusSwitchingProtocols {
		err = errSwitched
	}
	if err != nil {
		p.failed(w, r, err)
		return
	}
	setHeader(w.Header(), res)
	announced := len(res.Trailer)
	w.WriteHeader(res.StatusCode)
	if err := copyBody(w, res); err != nil {
		panic(http.ErrAbortHandler) //nolint:forbidigo // so net/http is told to cut an answer off that was cut off
	}
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

// plainRequest returns the upstream's request for a client's plain one.
func (g *Gateway) plainRequest(r *http.Request, h *earlyHints) *http.Request {
	u := g.upstream.url
	out := r.WithContext(httptrace.WithClientTrace(r.Context(), &httptrace.ClientTrace{Got1xxResponse: h.got}))
	out.Body, out.Close = nil, false
	out.URL = new(url.URL)
	*out.URL = *r.URL
	out.URL.Scheme, out.URL.Host = u.Scheme, u.Host
	if u.Scheme == "https" {
		out.Host = ""
	}
	out.Header = make(http.Header, len(r.Header)+len(forwardedHeaders)+1)
	for name, values := range r.Header {
		if name != "Connection" && name != "Forwarded" && !g.isAlias(name) {
			out.Header[name] = values
		}
	}
	if _, ok := out.Header["User-Agent"]; !ok {
		out.Header["User-Agent"] = noAgent
	}
	g.setForwarded(r, out.Header)
	if g.tenants.header != "" {
		g.forwardTenant(r, out.Header)
	}
	g.tracing.inject(out)
	return out
}

// noAgent keeps the transport from naming itself.
var noAgent = []string{""}

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

const eventStream = "text/event-stream"

// copyBody copies the body of an answer. A stream is not held up for more of it.
func copyBody(w http.ResponseWriter, res *http.Response) error {
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
		n, err := res.Body.Read(buf)
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

// earlyHints sends informational answers on until there is another.
type earlyHints struct {
	w     http.ResponseWriter
	mu    sync.Mutex
	ended bool
}

func (h *earlyHints) got(status int, header textproto.MIMEHeader) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.ended {
		return nil
	}
	own := h.w.Header()
	for name, values := range header {
		own[name] = values
	}
	h.w.WriteHeader(status)
	clear(own) // as the proxy does: they were this answer's
	return nil
}

func (h *earlyHints) end() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.ended = true
}
