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
)

// replay answers with a stored outcome: its status, headers and exact bytes.
func (g *Guard) replay(w http.ResponseWriter, r *http.Request, out *retrysafe.Outcome) {
	h := w.Header()
	h[replayedHeader] = trueValue
	h["Cache-Control"] = noStore
	g.replayFirst(w, r, out)
}

// replayFirst is replay without the marks of one.
func (g *Guard) replayFirst(w http.ResponseWriter, r *http.Request, out *retrysafe.Outcome) {
	h := w.Header()
	h[expiresHeader] = g.dates.format(out.Expires)
	if out.Omitted {
		g.write(w, refusal{problem: responseNotStored, status: out.Status, location: first(out.Header["Location"])})
		return
	}
	body := out.Body
	if encoding := first(out.Header["Content-Encoding"]); encoding != "" && !accepts(r.Header, encoding) {
		plain, ok := decode(body, encoding)
		if !ok {
			g.write(w, refusal{problem: answerEncoded, found: "It is encoded as " + encoding + "."})
			return
		}
		mergeHeader(h, out.Header)
		delete(h, "Content-Encoding")
		delete(h, "Etag") // it names the encoded bytes
		body = plain
	} else {
		mergeHeader(h, out.Header)
	}
	trailers := false
	for name, values := range out.Header {
		if strings.HasPrefix(name, http.TrailerPrefix) {
			h[name] = values
			trailers = true
		}
	}
	if len(body) > 2048 && !trailers { // net/http counts short bodies by itself
		h["Content-Length"] = []string{strconv.Itoa(len(body))}
	}
	w.WriteHeader(out.Status)
	if len(body) > 0 {
		_, _ = w.Write(body) // a client that has gone asks again
	}
}

// accepts reports whether the request takes an answer in this encoding.
func accepts(h http.Header, encoding string) bool {
	for _, line := range h["Accept-Encoding"] {
		for item := range strings.SplitSeq(line, ",") {
			name, q, _ := strings.Cut(item, ";")
			name = strings.TrimSpace(name)
			if !strings.EqualFold(name, encoding) && name != "*" {
				continue
			}
			q = strings.ReplaceAll(q, " ", "")
			if weight, err := strconv.ParseFloat(strings.TrimPrefix(q, "q="), 64); err == nil && weight == 0 {
				return false
			}
			return true
		}
	}
	return false
}

// maxDecoded bounds the answer that is decoded for a client that cannot.
const maxDecoded = 64 << 20

// decode returns a stored body without its encoding, if we know it.
func decode(body []byte, encoding string) ([]byte, bool) {
	if !strings.EqualFold(encoding, "gzip") {
		return nil, false
	}
	zr, err := gzip.NewReader(bytes.NewReader(body))
	if err != nil {
		return nil, false
	}
	plain, err := io.ReadAll(io.LimitReader(zr, maxDecoded+1))
	return plain, err == nil && len(plain) <= maxDecoded
}

// dates formats times as HTTP dates. Answers that are stored in the same second
// expire in the same second, so the last one is worth keeping.
type dates struct{ last atomic.Pointer[date] }

type date struct {
	second int64
	text   []string
}

func (d *dates) format(t time.Time) []string {
	second := t.Unix()
	if last := d.last.Load(); last != nil && last.second == second {
		return last.text
	}
	next := &date{second, []string{t.UTC().Format(http.TimeFormat)}}
	d.last.Store(next)
	return next.text
}
