package keys_test

import (
	"testing"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/cli/clitest"
)

func TestQuarantine(t *testing.T) {
	t.Parallel()
	url, s := clitest.SQLite(t)
	everyState(t, s.Store)
	inTx := clitest.Record("tenant-b", "in tx", retrysafe.StateRetryable)
	inTx.Effects = retrysafe.EffectsInTx
	clitest.Put(t, s.Store, inTx)
	here := clitest.NewShell(t, url)
	here.Run("keys quarantine --dry-run").Exits(0).Says("would set aside 6 of 6")
	here.Run("keys quarantine --dry-run --spare-in-tx --format json").Exits(0).Says(`"quarantined":5`)
	here.Run("keys quarantine --dry-run --scope tenant-b").Exits(0).Says("would set aside 2 of 2")
	here.Run("keys quarantine --dry-run --until 2020-01-01").Exits(0).Says("would set aside 0 of 6")
	here.Run("keys quarantine --dry-run --since 2038-01-01").Exits(0).Says("would set aside 0 of 6")
	here.Run("keys quarantine --dry-run --since 1h").Exits(0).Says("would set aside 6 of 6")
	here.Run("keys quarantine --dry-run --state retryable --tenant tenant-a").Exits(0).Says("would quarantine 1 key")
	for _, filter := range []string{"--tenant tenant-nobody", "--operation 'POST /nothing'", "--reason nothing", "--status 599"} { // one alone selects keys, too
		here.Run("keys quarantine --dry-run " + filter).Exits(0).Says("would quarantine 0 keys")
	}
	here.Run("keys quarantine --dry-run --state retryable --scope tenant-b").Exits(0).Says("would quarantine 1 key")
	here.Run("keys quarantine --dry-run --state retryable --until 2020-01-01").Exits(0).Says("would quarantine 0 keys")
	here.Run("keys quarantine --dry-run --state retryable --since 2038-01-01").Exits(0).Says("would quarantine 0 keys")
	here.Run("keys quarantine --dry-run --state retryable --spare-in-tx").Exits(2).Says("--spare-in-tx is for the whole store").InOneLine()
	here.Run("keys quarantine --yes-count 6 --why x").Exits(2).Says("are for keys that a filter selects").InOneLine()
	here.Run("keys quarantine --yes").Exits(2).Says("--why is missing").InOneLine()
	here.Run("keys quarantine --why restored").Exits(2).Says("--yes").InOneLine()
	here.Typing("no\n").Run("keys quarantine --why restored").Exits(1).Says("6 keys of 6", "not confirmed")
	here.Typing("yes\n").Run("keys quarantine --why restored --id night").Exits(0).Says("set aside 6 of 6", "action night by anna@")
	here.Run("keys quarantine --why restored --id night --yes").Exits(0).Says("this was done before")
	here.Run("keys quarantine --why restored --yes --format json").Exits(0).Says(`"quarantined":0`)
	here.Run("keys quarantine --why otherwise --id night --yes").Exits(2).Says("belongs to another action").InOneLine()
	if r := clitest.Load(t, s.Store, "tenant-a", "retryable"); r.State != retrysafe.StateUnknown {
		t.Errorf("it is %s", r.State)
	}
}
