//go:build !race

package httpkey_test

import (
	"io"
	"net/http"
	"strings"
	"testing"
)

// A replay allocates what is sent, and nothing for the fingerprint or for the way to
// compute a former one. The race detector allocates more, and tests that run beside this
// one would too.
func TestReplayAllocatesOnlyItsAnswer(t *testing.T) {
	const body = `{"amount":1200,"currency":"EUR"}`
	b, text, w := setup(t), strings.NewReader(body), &unsent{header: make(http.Header)}
	r := request(t, key, body)
	b.do(r)
	r.Body = io.NopCloser(text)
	got := testing.AllocsPerRun(100, func() {
		text.Reset(body)
		clear(w.header)
		b.ServeHTTP(w, r)
	})
	if w.status != http.StatusCreated || w.header.Get("Idempotent-Replayed") == "" {
		t.Fatalf("got %d %v, want a replay", w.status, w.header)
	}
	if got > 3 {
		t.Errorf("it allocates %v times, want 3 at most", got)
	}
}

// unsent is a response of which only status and headers are kept.
type unsent struct {
	header http.Header
	status int
}

func (u *unsent) Header() http.Header         { return u.header }
func (u *unsent) Write(p []byte) (int, error) { return len(p), nil }
func (u *unsent) WriteHeader(status int)      { u.status = status }
