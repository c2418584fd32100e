package gateway_test

import (
	"net/http"
	"path/filepath"
	"testing"
	"time"

	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/cli/clitest"
	"github.com/retrysafe/retrysafe/internal/test/testservers"
)

// A gateway is started on the destination of a move beforehand. Once that is prepared, the
// gateway is not ready and runs no key until the keys are there; then it replays them. The
// gateway on the source is not ready from the first request on that is told of the move.
func TestGatewayOnAPreparedDestinationRunsNoKnownKey(t *testing.T) {
	t.Parallel()
	for name, to := range map[string]string{"sqlite": "sqlite:" + filepath.Join(t.TempDir(), "to.db"), "postgres": testservers.Shared(t)} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, from := newService(t), "sqlite:"+filepath.Join(t.TempDir(), "from.db")
			start := func(store string) *clitest.Process {
				return clitest.Start(t, "gateway", "--upstream", s.URL, "--tenant", "bearer", "--store", store, "--listen", "127.0.0.1:0")
			}
			ready := func(at string) {
				t.Helper()
				for end := time.Now().Add(time.Minute); ; time.Sleep(20 * time.Millisecond) {
					status, said := clitest.Get(t, at+"/.retrysafe/readyz", "")
					if status == http.StatusOK {
						return
					}
					if time.Now().After(end) {
						t.Fatalf("readyz says %d %s", status, said)
					}
				}
			}
			then := start(from).Word("gateway on ")
			pay := func(at, key string) (int, string) { return clitest.Post(t, at+"/payments", "a", key, "{}") }
			if status, body := pay(then, "a-key-that-ran-once"); status != http.StatusCreated || body != "answer 1" {
				t.Fatalf("got %d %s", status, body)
			}
			now := start(to).Word("gateway on ")
			ready(now)

			here := clitest.NewShell(t, "")
			here.Run("keys copy --prepare", from, to).Exits(0)
			if status, body := pay(now, "a-key-that-ran-once"); status != http.StatusServiceUnavailable {
				t.Errorf("before the keys are there, got %d %s", status, body)
			}
			if status, _ := clitest.Get(t, now+"/.retrysafe/readyz", ""); status != http.StatusServiceUnavailable {
				t.Errorf("the gateway on the destination is ready: %d", status)
			}
			start(to).Exits(3).Says("this store is being filled from " + from)
			if status, _ := pay(then, "a-key-in-between-1"); status != http.StatusCreated {
				t.Errorf("the source does not serve: %d", status)
			}

			here.Run("keys copy --yes", from, to).Exits(0).Says("keys moved from")
			ready(now)
			if status, body := pay(now, "a-key-that-ran-once"); status != http.StatusCreated || body != "answer 1" {
				t.Errorf("after the move, got %d %s", status, body)
			}
			if status, _ := pay(then, "a-key-that-is-late"); status != http.StatusServiceUnavailable {
				t.Errorf("the source serves after the move: %d", status)
			}
			if status, _ := clitest.Get(t, then+"/.retrysafe/readyz", ""); status != http.StatusServiceUnavailable {
				t.Errorf("the gateway on the source is ready: %d", status)
			}
			if n := s.calls.Load(); n != 2 {
				t.Errorf("two keys ran %d times", n)
			}
		})
	}
}
