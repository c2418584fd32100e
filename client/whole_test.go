package client_test

import (
	"context"
	"io"
	"net/http"
	"strings"
	"testing"
)

// whole is a transport that makes each answer longer than 1000 bytes, by blanks, and knows which attempts have not
// given their connection back.
type whole struct {
	base     http.RoundTripper
	bodies   []*wholeBody
	contexts []context.Context
}

type wholeBody struct {
	io.Reader
	io.Closer
	closed bool
}

func (b *wholeBody) Close() error {
	b.closed = true
	return b.Closer.Close()
}

func (w *whole) RoundTrip(r *http.Request) (*http.Response, error) {
	w.contexts = append(w.contexts, r.Context())
	response, err := w.base.RoundTrip(r)
	if err == nil {
		body := &wholeBody{Reader: io.MultiReader(response.Body, strings.NewReader(strings.Repeat(" ", 2000))), Closer: response.Body}
		response.Body = body
		w.bodies = append(w.bodies, body)
	}
	return response, err
}

// ended fails if a body is open, or the context of an attempt goes on.
func (w *whole) ended(t *testing.T) {
	t.Helper()
	for i, b := range w.bodies {
		if !b.closed {
			t.Errorf("the body of answer %d of %d is open", i+1, len(w.bodies))
		}
	}
	for i, ctx := range w.contexts {
		if ctx.Err() == nil {
			t.Errorf("the context of attempt %d of %d goes on", i+1, len(w.contexts))
		}
	}
}
