package gateway_test

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/cli/clitest"
)

// A gateway shows what its store knows: the unknown outcomes that are in it, also those
// from before it was started, and the batches of its steps.
func TestMetricsOfTheStore(t *testing.T) {
	t.Parallel()
	url, opened := clitest.SQLite(t)
	w := clitest.Dead("tenant-a", "left-by-another-process")
	w.Reason = "lease lapsed"
	clitest.Put(t, opened.Store, w)
	clitest.Put(t, opened.Store, clitest.Record("tenant-a", "done", retrysafe.StateCompleted))

	s := newService(t)
	file := filepath.Join(t.TempDir(), "gateway.yaml")
	clitest.Must(t, os.WriteFile(file, []byte("tenant: bearer\nupstream: "+s.URL+"\nstore: "+url+"\ncache: { shared: redis://127.0.0.1:1 }\n"), 0o600)) // there is no Redis: all are misses
	p := clitest.StartIn(t, []string{"RETRYSAFE_ADMIN_TOKEN=a-token-of-operators"}, "gateway", "--config", file, "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0")
	at, admin := p.Word("gateway on "), p.Word("operators on ")
	for range 3 {
		clitest.Post(t, at+"/a", "a", "a-key-for-metrics-1", "{}")
	}
	for _, want := range []string{
		`retrysafe_unknown_outcomes{reason="lapsed"} 1`, `retrysafe_unknown_outcomes{reason="timeout"} 0`, "retrysafe_unknown_dead_letters 1",
		"retrysafe_unknown_disputed 0", "retrysafe_duplicates_prevented_total 2", "retrysafe_store_batches_in_flight 0", "retrysafe_store_batch_requests_total ",
		`retrysafe_janitor_failures_total{duty="unknowns"} 0`, "retrysafe_shared_cache_hits_total 0", "retrysafe_shared_cache_misses_total ",
	} {
		for end := time.Now().Add(2 * time.Minute); ; time.Sleep(50 * time.Millisecond) {
			status, text := clitest.Get(t, admin+"/metrics", "a-token-of-operators")
			if status == http.StatusOK && strings.Contains(text, "\n"+want) {
				break
			}
			if time.Now().After(end) {
				t.Fatalf("%s is not in %d\n%s", want, status, text)
			}
		}
	}
	p.Stop(0)
}
