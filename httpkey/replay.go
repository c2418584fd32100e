package httpkey

import (
	"bytes"
	"compress/gzip"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/internal/headerkind"
)

// replay sends a stored outcome: its status, headers and exact bytes.
func (g *Guard) replay(w http.ResponseWriter, r *http.Request, out *retrysafe.Outcome) {
	var values copier
	h := w.Header()
	h[replayedHeader] = values.one("true")
	h["Cache-Control"] = values.one("no-store")
	g.answer(w, r, out, values)
}

// replayFirst is replay without the headers that mark a replay.
func (g *Guard) replayFirst(w http.ResponseWriter, r *http.Request, out *retrysafe.Outcome) {
	g.answer(w, r, out, copier{})
}

// answer sends a stored outcome. Values allocates the response's header values.
func (g *Guard) answer(w http.ResponseWriter, r *http.Request, out *retrysafe.Outcome, values copier) {
	h := w.Header()
	if !out.Expires.IsZero() {
		h[expiresHeader] = values.one(g.dates.format(out.Expires))
	}
	if out.Omitted {
		g.write(w, refusal{problem: responseNotStored, status: out.Status, location: first(out.Header["Location"])})
		return
	}
	body, encoding, decoded := out.Body, first(out.Header["Content-Encoding"]), false
	if encoding != "" && !accepts(r.Header, encoding) {
		plain, ok := decode(body, encoding, decodedLimit)
		switch {
		case ok:
			body, decoded = plain, true
		case len(r.Header["Accept-Encoding"]) > 0: // without the header any encoding is acceptable (RFC 9110, 12.5.3)
			g.refuse(w, r, "", refusal{problem: answerEncoded, found: "It is encoded as " + encoding + "."})
			return
		}
	}
	trailers := mergeStored(h, out.Header, &values)
	if decoded {
		delete(h, "Content-Encoding")
		delete(h, "Etag") // it identifies the encoded bytes
	}
	if len(body) > countedBody && !trailers {
		h["Content-Length"] = []string{strconv.Itoa(len(body))}
	}
	status := out.Status
	if status < 200 || status > 999 { // a worker or an operator has stored it: the request was executed
		status = http.StatusOK
	}
	w.WriteHeader(status)
	if len(body) > 0 {
		_, _ = w.Write(body) // a client that has disconnected retries
	}
}

// countedBody is the length up to which net/http sets the Content-Length by itself.
const countedBody = 2048

// mergeStored sets the headers of a stored answer and reports whether some are
// trailers. Guards store no header that belongs to one exchange, but a handler, a
// worker or an operator may have.
func mergeStored(to http.Header, from map[string][]string, copies *copier) (trailers bool) {
	for name, values := range from {
		if name == "Content-Type" || name == "Location" { // nearly every answer has them, and they are always sent
			to[name] = copies.of(values)
			continue
		}
		name = http.CanonicalHeaderKey(name)
		plain, trailer := strings.CutPrefix(name, http.TrailerPrefix)
		switch {
		case headerkind.IsPerExchange(plain):
		case name == "Vary":
			to[name] = append(to[name][:len(to[name]):len(to[name])], values...)
		default:
			to[name] = copies.of(values)
			trailers = trailers || trailer
		}
	}
	return trailers
}

// copier copies header values for a response: middleware around a guard may change the
// values that it finds there, and must not change the stored ones. Most answers need
// one allocation.
type copier struct{ room []string }

func (c *copier) of(values []string) []string {
	c.grow(len(values))
	at := len(c.room)
	c.room = append(c.room, values...)
	return c.room[at:len(c.room):len(c.room)]
}

// one is of for a single value.
func (c *copier) one(value string) []string {
	c.grow(1)
	at := len(c.room)
	c.room = append(c.room, value)
	return c.room[at : at+1 : at+1]
}

func (c *copier) grow(n int) {
	if cap(c.room)-len(c.room) < n {
		c.room = make([]string, 0, max(n, 6))
	}
}

// accepts reports whether the request accepts an answer in this encoding, or in these
// where several were applied.
func accepts(h http.Header, encodings string) bool {
	for encoding := range strings.SplitSeq(encodings, ",") {
		encoding = strings.TrimSpace(encoding)
		if !strings.EqualFold(encoding, "identity") && !acceptsOne(h, encoding) {
			return false
		}
	}
	return true
}

func acceptsOne(h http.Header, encoding string) bool {
	others := false
	for _, line := range h["Accept-Encoding"] {
		for item := range strings.SplitSeq(line, ",") {
			name, q, _ := strings.Cut(item, ";")
			switch name = strings.TrimSpace(name); {
			case strings.EqualFold(name, encoding):
				return weighs(q)
			case name == "*":
				others = weighs(q)
			}
		}
	}
	return others
}

// weighs reports whether a weight such as "q=0.5" is not zero.
func weighs(q string) bool {
	q = strings.ToLower(strings.ReplaceAll(q, " ", ""))
	weight, err := strconv.ParseFloat(strings.TrimPrefix(q, "q="), 64)
	return err != nil || weight != 0
}

// decodedLimit bounds an answer that is decoded for a client that does not accept its
// encoding.
const decodedLimit = 64 << 20

// decode returns a stored body without its encoding, if that is a known one and the body
// has at most maxDecoded bytes then.
func decode(body []byte, encoding string, maxDecoded int64) ([]byte, bool) {
	if !strings.EqualFold(encoding, "gzip") {
		return nil, false
	}
	zr, err := gzip.NewReader(bytes.NewReader(body))
	if err != nil {
		return nil, false
	}
	plain, err := io.ReadAll(io.LimitReader(zr, maxDecoded+1))
	return plain, err == nil && int64(len(plain)) <= maxDecoded
}

// dates formats times as HTTP dates. Answers that are stored in the same second expire
// in the same second, so the last result is cached.
type dates struct{ last atomic.Pointer[date] }

type date struct {
	second int64
	text   string
}

func (d *dates) format(t time.Time) string {
	second := t.Unix()
	if last := d.last.Load(); last != nil && last.second == second {
		return last.text
	}
	next := &date{second, t.UTC().Format(http.TimeFormat)}
	d.last.Store(next)
	return next.text
}
