package gateway_test

import (
	"net/http"
	"testing"

	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/gateway/config"
)

// An upstream that closes a kept connection as the next request comes: a GET, which may be
// repeated by its nature, is sent again on another connection and gets its answer. One whose
// body is gone is not, nor a POST that no route guards, and its client is told that it may
// have been executed.
func TestKeptConnectionEndsUnderARequest(t *testing.T) {
	t.Parallel()
	m := newMortal(t, func(e execution) string {
		if e.nth == 2 {
			return fin
		}
		return ok
	})
	b := setup(t, at(m.url), withRoutes(route("POST /hooks/{rest...}", func(s *config.Settings) { s.Off = true })))
	for _, c := range []struct {
		method, body    string
		status, arrives int // of the request that meets the end
	}{
		{http.MethodGet, "", 201, 2},
		{http.MethodGet, "with a body that was sent", http.StatusBadGateway, 1},
		{http.MethodPost, "", http.StatusBadGateway, 1}, {http.MethodPut, "", http.StatusBadGateway, 1}, {http.MethodDelete, "", http.StatusBadGateway, 1},
	} {
		b.rest()
		order := c.method + c.body
		b.do(t, b.request(t, c.method, "/hooks/a", "", with("X-Order", "first "+order)))
		if got := b.do(t, b.request(t, c.method, "/hooks/a", c.body, with("X-Order", order))); got.status != c.status {
			t.Errorf("%s: got %d %s, want %d", order, got.status, got.body, c.status)
		}
		if got := len(m.executed(order)); got != c.arrives {
			t.Errorf("%s: it arrived %d times, want %d", order, got, c.arrives)
		}
	}
}
