package prove_test

import (
	"strings"
	"testing"

	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/cli/clitest"
	"github.com/retrysafe/retrysafe/internal/test/testservers"
)

// On Redis the checks run that its class allows; the others are named as not promised. What
// a check has made is gone afterwards.
func TestProveOnRedis(t *testing.T) {
	t.Parallel()
	server := testservers.NewRedis(t)
	sh := clitest.NewShell(t, "redis://"+server.Addr())
	if out := sh.Run("prove isolation -n 200 --seed 7").Exits(0).Out; !strings.Contains(out, "class D") || !strings.Contains(out, "1 of 1 checks passed") {
		t.Errorf("isolation on Redis says:\n%s", out)
	}
	if p := sh.Run("prove nth"); p.Code != 5 || !strings.Contains(p.Out, "not promised") {
		t.Errorf("nth on Redis: exit %d\n%s", p.Code, p.Out)
	}
	if keys, err := server.Do(t.Context(), "KEYS", "*"); err != nil || keys != "" {
		t.Errorf("left behind in Redis: %q, %v", keys, err)
	}
}
