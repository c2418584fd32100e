package e2e_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A database behind a dangling symbolic link is created for its owner alone, and one that
// others can read draws a warning with the remedy.
func TestPermissionsOfTheDatabaseFile(t *testing.T) {
	t.Parallel()
	s := newService(t)
	dir := t.TempDir()
	target, link := filepath.Join(dir, "data.db"), filepath.Join(dir, "link.db")
	if err := os.Symlink(target, link); err != nil {
		t.Fatal(err)
	}
	g := newGateway(t, conf(s, "sqlite:"+link))
	for _, name := range []string{target, target + "-wal", target + "-shm"} {
		info, err := os.Stat(name)
		if err != nil || info.Mode().Perm() != 0o600 {
			t.Fatalf("%s: %v, %v", name, info, err)
		}
	}
	if strings.Contains(g.log.String(), "chmod") {
		t.Errorf("warned of a file that is its owner's alone:\n%s", g.log)
	}
	g.kill()
	if err := os.Chmod(target, 0o666); err != nil {
		t.Fatal(err)
	}
	g.start()
	if want := "warning: store: other users of this machine can read or change stored answers, in " + target + " (0666)"; !strings.Contains(g.log.String(), want) {
		t.Errorf("not warned %q:\n%s", want, g.log)
	}
}
