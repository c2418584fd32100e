package e2e_test

import (
	"fmt"
	"net/http"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/retrysafe/retrysafe/internal/test/testservers"
)

// Two gateways over one PostgreSQL, 200 duplicates at once across both: the service
// is called once, and every request gets its answer.
func TestTwoGatewaysOneStore(t *testing.T) {
	t.Parallel()
	s := newService(t)
	s.before = func(string) { time.Sleep(50 * time.Millisecond) }
	url := testservers.Shared(t)
	gateways := []*gateway{newGateway(t, conf(s, url)), newGateway(t, conf(s, url))}

	var wg sync.WaitGroup
	answers := make([]answer, 200)
	for i := range answers {
		wg.Go(func() {
			for {
				got, err := gateways[i%2].post(t.Context(), "/payments", "one-key-for-all-of-them", `{"amount": 1}`)
				if err != nil {
					t.Error(err)
					return
				}
				// It is in flight, or the store is slow under so many.
				if got.code() != "in-flight" && got.status != http.StatusServiceUnavailable {
					answers[i] = got
					return
				}
				time.Sleep(20 * time.Millisecond)
			}
		})
	}
	wg.Wait()
	for i, got := range answers {
		if got.status != http.StatusCreated || got.body != answers[0].body {
			t.Fatalf("client %d got %d %s, and another one %d %s", i, got.status, got.body, answers[0].status, answers[0].body)
		}
	}
	if n, _ := s.called(`{"amount": 1}`); n != 1 {
		t.Errorf("the service was called %d times", n)
	}
}

// W73: the same key of another caller is another key.
func TestW73_CallersDoNotMeet(t *testing.T) {
	t.Parallel()
	s := newService(t)
	g := newGateway(t, conf(s, "sqlite:"+filepath.Join(t.TempDir(), "keys.db")))
	bodies := map[string]bool{}
	for i := range 3 {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+g.addr+"/payments", http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Idempotency-Key", `"the-same-key-everywhere"`)
		r.Header.Set("Authorization", fmt.Sprintf("Bearer caller-%d", i))
		got, err := send(r)
		if err != nil || got.status != http.StatusCreated {
			t.Fatalf("%+v, %v", got, err)
		}
		bodies[got.body] = true
	}
	if len(bodies) != 3 {
		t.Errorf("three callers got %d answers", len(bodies))
	}
}
