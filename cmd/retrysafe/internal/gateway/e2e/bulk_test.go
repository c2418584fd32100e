package e2e_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/retrysafe/retrysafe/internal/test/testservers"
)

// A faulty service answers 500 before it does anything, until it is repaired.
type faulty struct {
	repaired atomic.Bool

	mu      sync.Mutex
	effects map[string]int // by body
}

func (s *faulty) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	if !s.repaired.Load() {
		http.Error(w, "out of order", http.StatusInternalServerError)
		return
	}
	s.mu.Lock()
	s.effects[string(body)]++
	s.mu.Unlock()
	w.WriteHeader(http.StatusCreated)
}

// An unprotected service answers 500 under 2,000 keys, and no resolver is configured: all
// of them are unknown, and no retry runs. One command settles all, and then each retry
// runs once.
func TestOneCommandAfterAnOutage(t *testing.T) {
	t.Parallel()
	const keys = 2000
	s := &faulty{effects: map[string]int{}}
	server := httptest.NewServer(s)
	t.Cleanup(server.Close)
	store := testservers.Shared(t)
	g := newGateway(t, "upstream: "+server.URL+"\nstore: "+store+"\ntenant: { from: none }\nroutes:\n  - { match: POST /payments, effects: unprotected }\n")
	run := func(args ...string) string {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), built(t), append([]string{"keys"}, args...)...)
		cmd.Env = append(cmd.Environ(), "RETRYSAFE_STORE="+store, "USER=anna")
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("retrysafe keys %s: %v\n%s", strings.Join(args, " "), err, out)
		}
		return string(out)
	}
	everyKey := func(want int) {
		t.Helper()
		next, wrong := atomic.Int64{}, atomic.Int64{}
		var clients sync.WaitGroup
		for range 32 {
			clients.Go(func() {
				for n := next.Add(1); n <= keys; n = next.Add(1) {
					got, err := g.post(t.Context(), "/payments", fmt.Sprintf("order-number-%05d", n), fmt.Sprintf(`{"order": %d}`, n))
					if err != nil || got.status != want {
						wrong.Add(1)
						t.Logf("order %d: %d %s %v", n, got.status, got.body, err)
					}
				}
			})
		}
		clients.Wait()
		if n := wrong.Load(); n > 0 {
			t.Fatalf("%d of %d answers are not %d", n, keys, want)
		}
	}
	everyKey(http.StatusInternalServerError)
	s.repaired.Store(true)
	everyKey(http.StatusConflict)

	var group struct {
		Count, Status int
		Operation     string
		Next          []string
	}
	if err := json.Unmarshal([]byte(run("groups", "-o", "json")), &group); err != nil || group.Count != keys || group.Status != 500 || group.Operation != "POST /payments" {
		t.Fatalf("the group is %+v, %v", group, err)
	}
	if out := run("release", "--operation", "POST /payments", "--status", "500", "--why", "the service answers before it does anything", "--yes-count", fmt.Sprint(keys)); !strings.Contains(out, "released: 2,000 of 2,000 keys") {
		t.Fatal(out)
	}
	if out := run("groups"); !strings.Contains(out, "nothing needs a person") {
		t.Error(out)
	}
	everyKey(http.StatusCreated) // they run
	everyKey(http.StatusCreated) // and are replayed
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.effects) != keys {
		t.Errorf("%d effects happened, want %d", len(s.effects), keys)
	}
	for body, n := range s.effects {
		if n != 1 {
			t.Errorf("%s happened %d times", body, n)
		}
	}
}
