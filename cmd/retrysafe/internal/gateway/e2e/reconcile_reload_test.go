package e2e_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"sync"
	"testing"
)

// A resolver's token in a file is read again when the file changes: a key that could not
// be asked about with the old one is settled with the new one, without a restart.
func TestResolversSecretIsReloaded(t *testing.T) {
	t.Parallel()
	const before, after = "the-token-that-expired", "the-token-that-is-valid"
	var mu sync.Mutex
	seen := map[string]int{}
	ledger := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		seen[r.Header.Get("X-Api-Key")]++
		if r.Header.Get("X-Api-Key") != after {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		_, _ = io.WriteString(w, `{"status": "booked"}`)
	}))
	t.Cleanup(ledger.Close)
	down := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.WriteHeader(http.StatusInternalServerError)
	}))
	t.Cleanup(down.Close)
	secret := filepath.Join(t.TempDir(), "token")
	must(t, os.WriteFile(secret, []byte(before+"\n"), 0o600))
	g := newGateway(t, fmt.Sprintf(`upstream: %s
store: "sqlite:%s"
tenant: { from: bearer }
routes: [{ match: "POST /payments", reconcile: 10ms }]
reconcile:
  every: 50ms
  pause: 100ms
  max_pause: 200ms
  tries: 10000
  break_pause: 50ms
  max_break_pause: 100ms
  resolvers:
    - url: "%s/{key}"
      header_files: { X-Api-Key: %s }
      rules: [{ status: 200, when: { /status: booked }, then: happened, answer: { status: 201, body: '{"paid":true}' } }]
`, down.URL, filepath.Join(t.TempDir(), "keys.db"), ledger.URL, secret))
	got, err := g.post(t.Context(), "/payments", "payment-under-an-old-token", "{}")
	must(t, err)
	if got.status != http.StatusInternalServerError {
		t.Fatalf("got %d %s", got.status, got.body)
	}
	eventually(t, "the ledger is asked with the old token", func() bool {
		mu.Lock()
		defer mu.Unlock()
		return seen[before] > 0
	})
	must(t, os.WriteFile(secret, []byte(after+"\n"), 0o600))
	eventually(t, "the key is answered", func() bool {
		got, err := g.post(t.Context(), "/payments", "payment-under-an-old-token", "{}")
		return err == nil && got.status == http.StatusCreated && got.body == `{"paid":true}`
	})
}
