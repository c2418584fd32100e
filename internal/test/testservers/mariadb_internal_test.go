package testservers

import (
	"errors"
	"strings"
	"testing"
)

func TestAMissingMariaDBNamesItsPackage(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	if _, err := findMariaDB(t.TempDir()); !errors.Is(err, ErrMissing) || !strings.Contains(err.Error(), "apt-get install mariadb-server-core") {
		t.Errorf("the error is %v, which does not name the package", err)
	}
}
