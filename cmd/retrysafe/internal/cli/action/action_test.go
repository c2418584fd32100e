package action_test

import (
	"testing"

	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/cli/clitest"
)

func TestWhoItIs(t *testing.T) {
	t.Parallel()
	url, s := clitest.SQLite(t)
	clitest.Put(t, s.Store, clitest.Dead("t", "k"))
	here := clitest.NewShell(t, url)
	here.Run("keys redrive t k --why one --by carol").Exits(0).Says("by carol")
	here.With("USER", "").With("LOGNAME", "dan").Run("keys redrive t k --why two").Exits(0).Says("by dan@")
	here.With("USER", "").Run("keys redrive t k --why three").Exits(2).Says("use --by NAME").InOneLine()
}
