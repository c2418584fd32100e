package stores_test

import (
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/cli/clitest"
)

// A file or folder that this user may not write says so. Root may write everything, so
// there the test runs itself as another user.
func TestUnwritableStoresSayWhatToDo(t *testing.T) {
	t.Parallel()
	if os.Geteuid() == 0 {
		asAnother(t)
		return
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

// asAnother runs this test in a process of another user, which may reach neither the
// program of the tests where it is nor the temporary files of root.
func asAnother(t *testing.T) {
	t.Helper()
	const id = 65534                                   // it needs no entry among the users
	dir, err := os.MkdirTemp("", "retrysafe-another-") //nolint:usetesting // t.TempDir is below a directory of root's alone
	clitest.Must(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	clitest.Must(t, os.Chown(dir, id, id))
	program := filepath.Join(dir, "test")
	clitest.Must(t, copyFile(program, "/proc/self/exe"))
	cmd := exec.CommandContext(t.Context(), program, "-test.run=^"+t.Name()+"$", "-test.v")
	cmd.Dir, cmd.Env = dir, append(os.Environ(), "TMPDIR="+dir, "HOME="+dir)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Credential: &syscall.Credential{Uid: id, Gid: id}}
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Errorf("as another user: %v\n%s", err, out)
	}
}

func copyFile(to, from string) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_CREATE|os.O_WRONLY, 0o755)
	if err != nil {
		return err
	}
	if _, err := io.Copy(out, in); err != nil {
		return err
	}
	return out.Close()
}
