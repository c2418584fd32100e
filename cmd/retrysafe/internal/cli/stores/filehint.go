package stores

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/printable"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/storeurl"
)

// fileHint returns what to do about a SQLite file that cannot be opened, or nothing. It
// changes nothing.
func (l *Location) fileHint(err error) string {
	if l.Address.Kind != storeurl.SQLite || !strings.Contains(err.Error(), "unable to open database file") && !strings.Contains(err.Error(), "no folder") &&
		!strings.Contains(err.Error(), "readonly") && !errors.Is(err, fs.ErrPermission) {
		return ""
	}
	path := l.Address.Path
	folder := filepath.Dir(path)
	name, in, user := printable.Text(path), printable.Text(folder), os.Geteuid()
	if l.noFolder() {
		return fmt.Sprintf("create the folder first: mkdir -p %s", in)
	}
	info, err := os.Stat(path)
	switch {
	case err == nil && info.IsDir():
		return fmt.Sprintf("%s is a folder: name a file in it, as sqlite:%s", name, printable.Text(filepath.Join(path, "retrysafe.db")))
	case err == nil:
		if f, err := os.OpenFile(path, os.O_RDWR, 0); err != nil {
			return fmt.Sprintf("this process runs as user %d, which may not read and write %s: run it as the owner of the file, or give it the file with chown", user, name)
		} else {
			_ = f.Close() // nothing was written
		}
	}
	return fmt.Sprintf("this process runs as user %d, which may not create files in %s, as SQLite does beside a database: give it the folder with chown, or choose another", user, in)
}

// noFolder reports whether the folder of a SQLite file does not exist.
func (l *Location) noFolder() bool {
	info, err := os.Stat(filepath.Dir(l.Address.Path))
	return err != nil || !info.IsDir()
}

// NoFolder says what to do if the folder of a SQLite file does not exist, or nothing.
func (l *Location) NoFolder() string {
	if l.Address.Kind != storeurl.SQLite || !l.noFolder() {
		return ""
	}
	in := printable.Text(filepath.Dir(l.Address.Path))
	return fmt.Sprintf("there is no folder %s; create it first: mkdir -p %s", in, in)
}
