package listener

import (
	"cmp"
	"errors"
	"io"
	"net/http"
	"time"
)

// boundBody returns r with so long for the client to send the body: as long as for a head,
// then as long as what has arrived takes at the least rate, and no longer than readBody.
//
// [http.Server.ReadTimeout] would do a part of that, but it goes on counting when the body
// has been read: net/http then cancels requests whose answers take longer.
func boundBody(w http.ResponseWriter, r *http.Request, t *limits) *http.Request {
	b := &body{ReadCloser: r.Body, c: http.NewResponseController(w), limits: t, began: time.Now()}
	b.until = b.deadline()
	if err := b.c.SetReadDeadline(b.until); err != nil {
		return r
	}
	return withBody(r, b)
}

// withBody returns a copy: net/http looks at the body of the request itself to tell
// whether the client still waits to be asked for it.
func withBody(r *http.Request, b io.ReadCloser) *http.Request {
	r = r.WithContext(r.Context())
	r.Body = b
	return r
}

type body struct {
	io.ReadCloser
	c       *http.ResponseController
	limits  *limits
	began   time.Time
	until   time.Time // the deadline that is set
	arrived int64
}

// deadline returns until when more has to come.
func (b *body) deadline() time.Time {
	t := b.limits
	if t.bodyRate == 0 {
		return b.began.Add(t.readBody)
	}
	most := cmp.Or(t.readBody, longestBody)
	seconds := min(float64(b.arrived)/float64(t.bodyRate), most.Seconds())
	return b.began.Add(min(t.readHeader+time.Duration(seconds*float64(time.Second)), most))
}

// longestBody bounds a body where nothing else does.
const longestBody = 24 * time.Hour

// deadlineStep is by how much a deadline moves at least, so that it is not set for each
// piece of a body.
const deadlineStep = 250 * time.Millisecond

// Read lifts the deadline at the body's end, and nowhere else: what net/http reads on
// its own of a body that a handler has left stays bounded.
func (b *body) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	b.arrived += int64(n)
	switch {
	case errors.Is(err, io.EOF):
		_ = b.c.SetReadDeadline(time.Time{})
	case err == nil:
		if next := b.deadline(); next.Sub(b.until) >= deadlineStep {
			b.until = next
			_ = b.c.SetReadDeadline(next)
		}
	}
	return n, err
}
