package testservers

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// The test alone changes PATH, so it is not parallel.
func TestAMissingProgramNamesItsPackage(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	_, noPostgres := findPostgres(t.TempDir())
	_, noPgBouncer := findPgBouncer(t.TempDir())
	noCron := findCron(t.TempDir())
	for debian, err := range map[string]error{"postgresql-15": noPostgres, "pgbouncer": noPgBouncer, "postgresql-15-cron": noCron} {
		if !errors.Is(err, ErrMissing) || !strings.Contains(err.Error(), "apt-get install "+debian) {
			t.Errorf("without %s the error is %v, which does not name the package", debian, err)
		}
	}
}

func TestThePostgresThatWeTestWithComesFirst(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	debian := t.TempDir()
	install := func(version string, programs ...string) {
		bin := filepath.Join(debian, version, "bin")
		if err := os.MkdirAll(bin, 0o755); err != nil {
			t.Fatal(err)
		}
		for _, name := range programs {
			if err := os.WriteFile(filepath.Join(bin, name), nil, 0o755); err != nil {
				t.Fatal(err)
			}
		}
	}
	found := func() string {
		bin, err := findPostgres(debian)
		if err != nil {
			t.Fatal(err)
		}
		return filepath.Base(filepath.Dir(bin))
	}
	install("17", "initdb", "postgres") // a server without its client programs is half of one
	install("16", "initdb", "postgres", "pg_basebackup")
	if got := found(); got != "16" {
		t.Errorf("found version %s, want 16, the only whole one", got)
	}
	install("15", "initdb", "postgres", "pg_basebackup")
	if got := found(); got != "15" {
		t.Errorf("found version %s, want 15", got)
	}
}
