package listener

import (
	"errors"
	"io"
	"net/http"
	"time"
)

// boundBody returns r with so long for the client to send the body.
//
// [http.Server.ReadTimeout] would do that too, but it goes on counting when the body
// has been read: net/http then cancels requests whose answers take longer.
func boundBody(w http.ResponseWriter, r *http.Request, d time.Duration) *http.Request {
	c := http.NewResponseController(w)
	if err := c.SetReadDeadline(time.Now().Add(d)); err != nil {
		return r
	}
	return withBody(r, &body{ReadCloser: r.Body, c: c})
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
	c *http.ResponseController
}

// Read lifts the deadline at the body's end, and nowhere else: what net/http reads on
// its own of a body that a handler has left stays bounded.
func (b *body) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if errors.Is(err, io.EOF) {
		_ = b.c.SetReadDeadline(time.Time{})
	}
	return n, err
}
