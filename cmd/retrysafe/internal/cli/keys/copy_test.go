package keys_test

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/cli/clitest"
	"github.com/retrysafe/retrysafe/internal/test/testservers"
)

func TestCopy(t *testing.T) {
	t.Parallel()
	from, s := clitest.SQLite(t)
	everyState(t, s.Store)
	to := testservers.Shared(t)
	here := clitest.NewShell(t, "")
	line := []string{"keys", "copy", from, to}
	for _, new := range []string{to, "sqlite:" + filepath.Join(t.TempDir(), "new.db")} {
		here.Run("keys copy --dry-run", from, new).Exits(0).Says("11 keys could move")
		here.Run("keys list --store", new).Exits(3).Says("migrate up") // a dry run creates nothing
	}
	here.Run("migrate up --store", to).Exits(0)
	here.RunArgs(append(line, "--dry-run")...).Exits(0).Says("11 keys could move")
	here.RunArgs(line...).Exits(2).Says("--yes").InOneLine()
	here.Typing("no\n").RunArgs(line...).Exits(1).Says("closed for good")
	here.Run("keys list --store", from).Exits(0)
	here.RunArgs(append(line, "--yes", "--format", "json")...).Exits(0).Says(`"records":11`)
	here.Run("keys list --store", to).Exits(0).Says("unknown, dead")
	here.Run("keys list --store", from).Exits(3).Says("this store was moved to", "point the configuration there").InOneLine()
	here.RunArgs(append(line, "--yes")...).Exits(1).Says("already moved: this store was moved to", "point the configuration there").Hides("source:", "follow:").InOneLine()
	here.Run("keys copy --yes", from, from).Exits(2).Says("both are").InOneLine()
	here.Run("keys copy --yes memory:", to).Exits(2).InOneLine()
	here.Run("keys copy --yes", to, "nonsense").Exits(2).InOneLine()
	full, other := clitest.SQLite(t)
	everyState(t, other.Store)
	here.Run("keys copy --dry-run", to, full).Exits(1).Says("into an empty one").InOneLine()
	here.Run("keys copy --yes", to, full).Exits(1).Says(full+": this store holds records already; move into an empty one (records: 11)", "keys list --store "+full+" shows", "name another file").InOneLine()
	back := "sqlite:" + filepath.Join(t.TempDir(), "back.db")
	here.Run("keys copy --abandon", to, back).Exits(0).Says("stays in service")
	here.Run("keys copy --yes", to, back).Exits(0).Says("11 keys moved", "point every configuration to "+back)
	for _, ask := range []string{"keys list", "keys groups", "migrate status"} {
		here.Run(ask+" --store", to).Exits(3).Says("this store was moved to", "point the configuration there").InOneLine()
	}
	if got := here.Run("keys list --format json --store", back).Exits(0); strings.Count(got.Out, "\n") != 11 {
		t.Errorf("%s", got.Out)
	}
}

// A store that is closed beforehand takes no key until a copy has filled it, also if that
// copy fails at first, and its source serves on.
func TestCopyPrepared(t *testing.T) {
	t.Parallel()
	from, s := clitest.SQLite(t)
	everyState(t, s.Store)
	to := "sqlite:" + filepath.Join(t.TempDir(), "to.db")
	here := clitest.NewShell(t, "")
	here.Run("keys copy --prepare --abandon", from, to).Exits(2).InOneLine()
	for range 2 {
		here.Run("keys copy --prepare", from, to).Exits(0).Says(to+" is closed until the keys are there", from+" stays in service", "next: the same command without --prepare")
		here.Run("keys list --store", to).Exits(3).Says("being filled from " + from).InOneLine()
		here.Run("keys list --store", from).Exits(0)
	}
	here.Run("keys copy --dry-run", from, to).Exits(0).Says("11 keys could move")
	here.Run("keys copy --yes", from, to).Exits(0).Says("11 keys moved")
	here.Run("keys list --store", to).Exits(0).Says("unknown, dead")
	here.Run("keys copy --prepare", from, to).Exits(1).Says("already moved").InOneLine()
	full, other := clitest.SQLite(t)
	everyState(t, other.Store)
	here.Run("keys copy --prepare", to, full).Exits(1).Says("records: 11").InOneLine()
	here.Run("keys list --store", full).Exits(0)
}

// The stores of a copy are its arguments: a flag that names one is refused, and the help
// does not offer it.
func TestCopyTakesNoFlagOfOneStore(t *testing.T) {
	t.Parallel()
	from, _ := clitest.SQLite(t)
	here := clitest.NewShell(t, "")
	help := here.Run("keys copy --help").Exits(0).Says("--prepare")
	for _, name := range []string{"--store", "--config", "--keys-file", "--admin", "--admin-token-file"} {
		help.Hides(name + " ")
		here.Run("keys copy a b", name, from).Exits(2).Says("as arguments; "+name+" is not for it", "with FROM and TO").InOneLine()
	}
}

// The audit of a store that a key was forgotten in is a record too: it does not become a
// destination by that.
func TestCopyIsRefusedByAnAudit(t *testing.T) {
	t.Parallel()
	from, _ := clitest.SQLite(t)
	to, s := clitest.SQLite(t)
	clitest.Put(t, s.Store, clitest.Record("tenant-a", "a-key", retrysafe.StateCompleted))
	here := clitest.NewShell(t, "")
	here.Run("keys forget tenant-a a-key --yes --why moved --by anna --store", to).Exits(0)
	here.Run("keys copy --yes", from, to).Exits(1).Says("into an empty one (records: ").InOneLine()
}
