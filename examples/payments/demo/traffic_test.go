package demo_test

import (
	"bytes"
	"log/slog"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/examples/payments/demo"
	"github.com/retrysafe/retrysafe/store/sqlitestore"
)

// logBuffer is a log that may be read while it is written.
type logBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *logBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *logBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// A fault that a person has set is there for the person's own request, however much
// traffic came meanwhile, and the log has nothing of the traffic's failures.
func TestTrafficLeavesFaultsAndLogToPeople(t *testing.T) {
	t.Parallel()
	const key = "charge-beside-traffic"
	file, log := filepath.Join(t.TempDir(), "payments.db"), new(logBuffer)
	p := start(t, "sqlite:"+file, 1, func(o *demo.Options) {
		o.Traffic, o.Logger = true, slog.New(slog.NewTextHandler(log, nil))
	})
	p.fault(`{"mode": "error_before", "times": 2}`)
	trafficFails(t, file)
	if text := log.String(); text != "" {
		t.Errorf("the log has the traffic's failures:\n%s", text)
	}
	if got := p.post("/charges", a, key, euro); got.status != http.StatusBadGateway {
		t.Errorf("with a fault for two calls a charge got %+v, want 502", got)
	}
	if text := log.String(); !strings.Contains(text, "may have been executed") {
		t.Errorf("the log does not have the failure of a person's charge:\n%s", text)
	}
}

// trafficFails waits until a charge of the traffic has failed, and was settled.
func trafficFails(t *testing.T, file string) {
	t.Helper()
	s, err := sqlitestore.Open(t.Context(), file, nil)
	must(t, err)
	defer s.Close()
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		list, err := s.List(t.Context(), retrysafe.Query{States: []retrysafe.State{retrysafe.StateCompleted}, Limit: 1000})
		must(t, err)
		for i := range list {
			if notes := list[i].Inquiry.Notes; list[i].Scope == "tenant-traffic" && len(notes) > 0 && notes[len(notes)-1].By == "the provider's ledger" {
				return
			}
		}
	}
	t.Fatal("no charge of the traffic failed and was settled")
}
