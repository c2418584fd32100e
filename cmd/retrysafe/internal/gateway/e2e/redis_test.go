package e2e_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/retrysafe/retrysafe/internal/test/testservers"
)

// Two gateways over one Redis: the operation runs once, the class is announced at the start,
// and a server that has lost its data gets no request through.
func TestW36_GatewaysOverRedis(t *testing.T) {
	t.Parallel()
	s, server := newService(t), testservers.NewRedis(t)
	one, two := newGateway(t, conf(s, "redis://"+server.Addr())), newGateway(t, conf(s, "redis://"+server.Addr(), "cache: { bytes: 0 }"))
	one.logs("class D: best effort")
	first := one.pays(t, "/payments", "kept-in-redis-1")
	if again := two.pays(t, "/payments", "kept-in-redis-1"); first.status != http.StatusCreated || again.body != first.body {
		t.Errorf("the first gets %d %s, a retry elsewhere %d %s", first.status, first.body, again.status, again.body)
	}
	if n, _ := s.called(bodyOf("kept-in-redis-1")); n != 1 {
		t.Errorf("the service was called %d times", n)
	}
	_, err := server.Do(t.Context(), "FLUSHALL")
	must(t, err)
	if got := two.pays(t, "/payments", "kept-in-redis-1"); got.status != http.StatusServiceUnavailable {
		t.Errorf("with the data gone a retry gets %d %s", got.status, got.body)
	}
	if n, _ := s.called(bodyOf("kept-in-redis-1")); n != 1 {
		t.Errorf("with the data gone the service was called again: %d times", n)
	}
	eventually(t, "the log says what has happened", func() bool {
		two.pays(t, "/payments", "kept-in-redis-1") // the log has one line a second at most
		return strings.Contains(two.log.String(), "acknowledged keys may be lost")
	})
}

// Two gateways share finished answers in a Redis before their store. It may be gone.
func TestSharedCache(t *testing.T) {
	t.Parallel()
	s, server, store := newService(t), testservers.NewRedis(t), testservers.Shared(t)
	more := "cache: { shared: redis://" + server.Addr() + " }"
	one, two := newGateway(t, conf(s, store, more)), newGateway(t, conf(s, store, more))
	first := one.pays(t, "/payments", "shared-answer-1")
	eventually(t, "the answer is in Redis", func() bool {
		if got := two.pays(t, "/payments", "shared-answer-1"); got.body != first.body {
			t.Errorf("a retry elsewhere gets %d %s, want %s", got.status, got.body, first.body)
		}
		keys, err := server.Do(t.Context(), "KEYS", "retrysafe-tier-*")
		must(t, err)
		return keys != ""
	})
	must(t, server.Kill())
	for _, g := range []*gateway{one, two} {
		for _, key := range []string{"shared-answer-1", "without-redis-1"} {
			if got := g.pays(t, "/payments", key); got.status != http.StatusCreated {
				t.Errorf("without Redis %s gets %d %s", key, got.status, got.body)
			}
		}
	}
	if s.total() != 2 {
		t.Errorf("the service was called %d times for 2 operations", s.total())
	}
}
