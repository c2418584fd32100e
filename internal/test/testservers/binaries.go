package testservers

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
)

// ErrMissing says that a program is not installed. Its text names the Debian
// package that has it.
var ErrMissing = errors.New("not installed")

// Where Debian puts servers: off the PATH of users other than root.
const (
	debianPostgres = "/usr/lib/postgresql"
	debianSbin     = "/usr/sbin"
	debianBin      = "/usr/bin"
)

// findPostgres returns the directory of PostgreSQL's programs: Debian's version
// 15, which is the one we test with, else what PATH has, else Debian's newest.
func findPostgres(debian string) (string, error) {
	dirs := []string{filepath.Join(debian, "15/bin")}
	if path, err := exec.LookPath("postgres"); err == nil {
		if path, err = filepath.EvalSymlinks(path); err == nil { // a link on PATH may be alone there
			dirs = append(dirs, filepath.Dir(path))
		}
	}
	others, _ := filepath.Glob(filepath.Join(debian, "*/bin"))
	slices.Sort(others)
	slices.Reverse(others)
	for _, dir := range append(dirs, others...) {
		if hasAll(dir, "initdb", "postgres", "pg_basebackup") {
			return dir, nil
		}
	}
	return "", missing("PostgreSQL (initdb, postgres, pg_basebackup)", "postgresql-15")
}

// findPgBouncer returns the path of PgBouncer's program.
func findPgBouncer(debian string) (string, error) {
	if path, err := exec.LookPath("pgbouncer"); err == nil {
		return path, nil
	}
	if hasAll(debian, "pgbouncer") {
		return filepath.Join(debian, "pgbouncer"), nil
	}
	return "", missing("PgBouncer (pgbouncer)", "pgbouncer")
}

// findCron looks for pg_cron beside PostgreSQL's programs.
func findCron(bin string) error {
	if hasAll(filepath.Join(filepath.Dir(bin), "lib"), "pg_cron.so") {
		return nil
	}
	return missing("pg_cron", "postgresql-15-cron")
}

// findProgram returns the path of a program: on PATH, or where Debian puts it.
func findProgram(name, debian, what, pkg string) (string, error) {
	if path, err := exec.LookPath(name); err == nil {
		return path, nil
	}
	if hasAll(debian, name) {
		return filepath.Join(debian, name), nil
	}
	return "", missing(what+" ("+name+")", pkg)
}

func missing(what, debian string) error {
	return fmt.Errorf("%s: %w: on Debian, run scripts/setup or apt-get install %s", what, ErrMissing, debian)
}

func hasAll(dir string, names ...string) bool {
	return !slices.ContainsFunc(names, func(name string) bool {
		info, err := os.Stat(filepath.Join(dir, name))
		return errors.Is(err, fs.ErrNotExist) || err == nil && info.IsDir()
	})
}
