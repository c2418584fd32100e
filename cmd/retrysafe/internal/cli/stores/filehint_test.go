package stores_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/cli/clitest"
)

// A file or folder that this user may not write says so. Root may write everything.
func TestUnwritableStoresSayWhatToDo(t *testing.T) {
	t.Parallel()
	if os.Geteuid() == 0 {
		t.Skip("root may write everything")
	}
	dir := filepath.Join(t.TempDir(), "closed")
	clitest.Must(t, os.Mkdir(dir, 0o500))
	clitest.NewShell(t, "sqlite:"+filepath.Join(dir, "keys.db")).Run("migrate up").Exits(3).Says("may not create files in " + dir).InOneLine()
	url, s := clitest.SQLite(t)
	clitest.Must(t, s.Close())
	path := url[len("sqlite:"):]
	clitest.Must(t, os.Chmod(path, 0o000))
	clitest.NewShell(t, url).Run("keys list").Exits(3).Says("may not read and write " + path).InOneLine()
}
