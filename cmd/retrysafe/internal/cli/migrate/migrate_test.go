package migrate_test

import (
	"path/filepath"
	"testing"

	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/cli/clitest"
	"github.com/retrysafe/retrysafe/internal/test/testservers"
	"github.com/retrysafe/retrysafe/store/sqlitestore"
)

func TestMigrate(t *testing.T) {
	t.Parallel()
	pg := testservers.Shared(t)
	for name, url := range map[string]string{
		"sqlite":   "sqlite:" + filepath.Join(t.TempDir(), "keys.db"),
		"postgres": pg,
		"a schema": pg + "&schema=else",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			here := clitest.NewShell(t, url)
			if name != "sqlite" {
				here.Run("migrate status").Exits(1).Says("version  0", "pending  0001_", "retrysafe migrate up")
				here.Run("keys list").Exits(3).Says("has no tables of retrysafe")
			}
			here.Run("migrate up").Exits(0).Says("migrated from version 0 to")
			here.Run("migrate up").Exits(0).Says("nothing to do")
			here.Run("migrate status").Exits(0).Says("pending  none", "keys     0").Hides("version  0")
			here.Run("migrate status --format json").Exits(0).Says(`"pending":[]`, `"keys":0`)
			here.Run("keys list").Exits(0).Says("no keys")
			here.Run("migrate print").Exits(0).Says("CREATE TABLE")
		})
	}
	s := clitest.NewShell(t, "")
	s.Run("migrate print postgres --schema my").Exits(0).Says(`"my".retrysafe_keys`)
	s.Run("migrate print postgres --reaper").Exits(0).Says("cron.schedule")
	s.Run("migrate print sqlite").Exits(0).Says("CREATE TABLE retrysafe_keys")
}

func TestNewerStoreIsRefused(t *testing.T) {
	t.Parallel()
	url, s := clitest.SQLite(t)
	_, err := s.Store.(*sqlitestore.Store).DB().ExecContext(t.Context(), `INSERT INTO retrysafe_schema (version) VALUES (99)`)
	clitest.Must(t, err)
	here := clitest.NewShell(t, url)
	here.Run("migrate status").Exits(1).Says("upgrade the program")
	here.Run("migrate up").Exits(3).Says("upgrade the program").InOneLine()
	here.Run("keys list").Exits(3).Says("upgrade the program").InOneLine()
}

// A schema that was only added to says so, and the programs of the release before go
// on working on it.
func TestNewerStoreThatSaysSoIsWorkedOn(t *testing.T) {
	t.Parallel()
	url, s := clitest.SQLite(t)
	_, err := s.Store.(*sqlitestore.Store).DB().ExecContext(t.Context(), `INSERT INTO retrysafe_schema (version, oldest) VALUES (99, 1)`)
	clitest.Must(t, err)
	here := clitest.NewShell(t, url)
	here.Run("migrate status").Exits(0).Says("may work on it")
	here.Run("migrate up").Exits(0).Says("nothing to do")
	here.Run("keys list").Exits(0).Says("no keys")
}
