package e2e_test

import (
	"context"
	"encoding/json"
	"net/http"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/retrysafe/retrysafe/internal/test/testservers"
)

// Forget in one process, replay in two others that have the answer in memory: both run the
// operation anew, or give the new answer, though their caches trust an answer for an hour.
// How long it takes is logged; that it is less than a second rests on the intervals of the
// stores, which their own tests hold.
func TestForgetReachesRunningGateways(t *testing.T) {
	t.Parallel()
	pg := testservers.NewPostgres(t, &testservers.PostgresOptions{InMemory: true})
	for name, store := range map[string]string{
		"PostgreSQL": testservers.Shared(t),
		"PgBouncer":  testservers.NewPgBouncer(t, pg, nil).URL("postgres") + "&pgbouncer=true",
		"SQLite":     "sqlite:" + filepath.Join(t.TempDir(), "keys.db"),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newService(t)
			c := conf(s, store, "cache: { bytes: 8MiB, max_age: 1h }")
			first, second := newGateway(t, c), newGateway(t, c)
			post := func(g *gateway) answer {
				t.Helper()
				var got answer
				eventually(t, "a payment is answered", func() (done bool) { // a busy machine may be late for the store's time limit
					var err error
					got, err = g.post(t.Context(), "/payments", "forgotten-everywhere-1", `{"amount": 1}`)
					return err == nil && got.status == http.StatusCreated
				})
				return got
			}
			old := post(first)
			for range 3 { // into the memory of both
				for _, g := range []*gateway{first, second} {
					if got := post(g); got.body != old.body || got.header.Get("Idempotent-Replayed") != "true" {
						t.Fatalf("a replay got %+v", got)
					}
				}
			}
			scope := scopeOf(t, store, "forgotten-everywhere-1")
			out := command(t, "keys", "forget", "--store", store, scope, "forgotten-everywhere-1", "--why", "a wrong answer was kept", "--by", "anna", "--yes")
			if !strings.Contains(out, "within a second") {
				t.Errorf("the command does not say when gateways follow:\n%s", out)
			}
			start := time.Now()
			eventually(t, "the second gateway runs it anew", func() bool { return post(second).body != old.body })
			t.Logf("%s: the second gateway followed after %v", name, time.Since(start))
			now := post(second)
			eventually(t, "the first gateway has the new answer", func() bool { return post(first).body == now.body })
			t.Logf("%s: the first gateway followed after %v", name, time.Since(start))
			if n, _ := s.called(`{"amount": 1}`); n != 2 {
				t.Errorf("the service was called %d times, want twice", n)
			}
		})
	}
}

// command runs the command and returns what it prints.
func command(t *testing.T, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(context.WithoutCancel(t.Context()), built(t), args...)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("retrysafe %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return string(out)
}

// scopeOf finds the scope of a key.
func scopeOf(t *testing.T, store, key string) string {
	t.Helper()
	for line := range strings.Lines(command(t, "keys", "list", "--store", store, "--format", "json")) {
		var r struct{ Scope, Key string }
		if err := json.Unmarshal([]byte(line), &r); err != nil {
			t.Fatalf("%v: %s", err, line)
		}
		if r.Key == key {
			return r.Scope
		}
	}
	t.Fatalf("there is no key %q", key)
	return ""
}
