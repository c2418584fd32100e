package testservers

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

const (
	// versionsVariable lists the versions that Versions returns.
	versionsVariable = "RETRYSAFE_POSTGRES_VERSIONS"
	// cacheVariable is the directory of the programs that scripts/postgres has fetched.
	cacheVariable = "RETRYSAFE_CACHE"
	// versionVariable is the version of servers whose options name none.
	versionVariable = "RETRYSAFE_POSTGRES"
)

// Versions returns the major versions of PostgreSQL that tests run on beside the usual
// one: the oldest and the newest that are supported, or those in the variable
// RETRYSAFE_POSTGRES_VERSIONS, with spaces between them.
func Versions() []string {
	if list := strings.Fields(os.Getenv(versionsVariable)); len(list) > 0 {
		return list
	}
	return []string{"14", "18"}
}

// findVersion returns the directory of the programs of a major version: what
// scripts/postgres has fetched, else Debian's. They may lack pg_basebackup.
func findVersion(version, debian string) (string, error) {
	cache, err := cacheDir()
	if err != nil {
		return "", err
	}
	for _, dir := range []string{filepath.Join(cache, "postgresql", version, "bin"), filepath.Join(debian, version, "bin")} {
		if hasAll(dir, "initdb", "postgres") {
			return dir, nil
		}
	}
	return "", fmt.Errorf("PostgreSQL %s: %w: run scripts/postgres %s", version, ErrMissing, version)
}

// cacheDir is where scripts/postgres puts what it fetches. The servers of root run as
// another user, which cannot read what is below root's home.
func cacheDir() (string, error) {
	if dir := os.Getenv(cacheVariable); dir != "" {
		return dir, nil
	}
	if os.Geteuid() == 0 {
		return "/var/cache/retrysafe", nil
	}
	dir, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("find the directory of fetched servers: %w; set %s", err, cacheVariable)
	}
	return filepath.Join(dir, "retrysafe"), nil
}

// binFor returns the directory of the programs that opts ask for.
func binFor(opts *PostgresOptions) (string, error) {
	version := cmp.Or(opts.Version, os.Getenv(versionVariable))
	if version == "" {
		return findPostgres(debianPostgres)
	}
	return findVersion(version, debianPostgres)
}

// SharedOn is [Shared] on a server of a major version; empty is the usual one.
func SharedOn(t TB, version string) string {
	t.Helper()
	server, name, err := nextShared(t.Context(), version)
	if err != nil {
		t.Fatal(err)
	}
	url, err := server.CreateDatabase(t.Context(), name)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the log of %s ends:\n%s", server.name, server.Logs())
		}
		if err := server.DropDatabase(context.Background(), name); err != nil {
			t.Error(err)
		}
	})
	return url
}
