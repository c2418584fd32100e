package storeurl_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/storeurl"
)

// A database that other users can read or change draws a warning with the remedy, which
// names the resolved files.
func TestOpenPermissionsDrawAWarning(t *testing.T) {
	t.Parallel()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	file, link := filepath.Join(dir, "keys.db"), filepath.Join(dir, "link.db")
	if err := os.Symlink(file, link); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		db, wal os.FileMode
		want    string
	}{
		{0o600, 0o600, ""},
		{0o640, 0o640, ""}, // a group that makes backups
		{0o666, 0o600, "chmod 600 " + file},
		{0o644, 0o644, "chmod 600 " + file + " " + file + "-wal"},
		{0o660, 0o600, "chmod 600 " + file},
		{0o600, 0o604, "chmod 600 " + file + "-wal"},
	} {
		for name, mode := range map[string]os.FileMode{file: c.db, file + "-wal": c.wal} {
			if err := os.WriteFile(name, nil, 0o600); err != nil {
				t.Fatal(err)
			}
			if err := os.Chmod(name, mode); err != nil {
				t.Fatal(err)
			}
		}
		a, err := storeurl.Parse("sqlite:" + link)
		if err != nil {
			t.Fatal(err)
		}
		got := strings.Join(a.Warnings(), "\n")
		if (got == "") != (c.want == "") || !strings.HasSuffix(got, c.want) {
			t.Errorf("%v and %v: warned %q, want %q", c.db, c.wal, got, c.want)
		}
	}
	for name, mode := range map[string]os.FileMode{file: 0o600, file + "-wal": 0o600, file + "-shm": 0o602} {
		if err := errors.Join(os.WriteFile(name, nil, 0o600), os.Chmod(name, mode)); err != nil {
			t.Fatal(err)
		}
	}
	if got := strings.Join((&storeurl.Address{Kind: storeurl.SQLite, Path: link}).Warnings(), "\n"); !strings.HasSuffix(got, "chmod 600 "+file+"-shm") {
		t.Errorf("other users can change the shared memory: warned %q", got)
	}
	for _, other := range []string{"memory:", "postgres://h/d", "sqlite:" + file + "-none"} {
		a, err := storeurl.Parse(other)
		if err != nil || len(a.Warnings()) != 0 {
			t.Errorf("%s: %q, %v", other, a.Warnings(), err)
		}
	}
}
