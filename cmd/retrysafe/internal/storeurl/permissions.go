package storeurl

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// tooOpen are the permissions that let users other than the owner change a store's file,
// or users outside of its group read it.
const tooOpen os.FileMode = 0o027

// Warnings says what about an open store an operator should look at: the files of a
// SQLite database that other users can read or change, by the resolved path.
func (a *Address) Warnings() []string {
	if a.Kind != SQLite {
		return nil
	}
	path, err := filepath.EvalSymlinks(a.Path)
	if err != nil {
		return nil // opening the store has said more
	}
	var found, names []string
	for _, name := range []string{path, path + "-wal", path + "-shm"} {
		if info, err := os.Stat(name); err == nil && info.Mode().Perm()&tooOpen != 0 {
			found, names = append(found, fmt.Sprintf("%s (%#o)", name, info.Mode().Perm())), append(names, name)
		}
	}
	if len(names) == 0 {
		return nil
	}
	return []string{fmt.Sprintf("store: other users of this machine can read or change stored answers, in %s; stop that with: chmod 600 %s",
		strings.Join(found, ", "), strings.Join(names, " "))}
}
