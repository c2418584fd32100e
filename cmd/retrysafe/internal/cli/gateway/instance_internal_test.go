package gateway

import (
	"log/slog"
	"path/filepath"
	"testing"

	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/cli/stores"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/gateway/admission"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/gateway/config"
	"github.com/retrysafe/retrysafe/telemetry"
)

// A configuration that is refused changes nothing of the budget that requests share, and
// keeps no store open.
func TestRefusedConfigurationLeavesTheBudget(t *testing.T) {
	t.Parallel()
	b := &builder{logger: slog.New(slog.DiscardHandler), metrics: telemetry.New(nil), budget: admission.New(100, 10)}
	c := &config.Config{
		Upstream: "http://127.0.0.1:1", Store: "sqlite:" + filepath.Join(t.TempDir(), "keys.db"),
		Routes: []config.Route{{Match: "no pattern of a route"}},
	}
	c.Server.MaxMemory, c.Server.MaxConnections = 1<<20, 1000
	if app, err := b.build(t.Context(), c); err == nil {
		t.Fatalf("built %v", app)
	}
	if at, err := stores.Parse(c.Store); err != nil || b.stores.has(at) {
		t.Errorf("its store is still open, %v", err)
	}
	if memory, requests := b.budget.Memory().Most, b.budget.Requests().Most; memory != 100 || requests != 10 {
		t.Errorf("the budget has %d bytes and %d requests, want 100 and 10", memory, requests)
	}
}
