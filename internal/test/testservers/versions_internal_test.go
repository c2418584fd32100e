package testservers

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/retrysafe/retrysafe/internal/test/pages"
)

// The tests change the environment, so they are not parallel.
func TestAVersionIsFoundWhereItWasFetched(t *testing.T) {
	cache, debian := t.TempDir(), t.TempDir()
	t.Setenv(cacheVariable, cache)
	_, err := findVersion("18", debian)
	if !errors.Is(err, ErrMissing) || !strings.Contains(err.Error(), "scripts/postgres 18") {
		t.Errorf("a version that is missing: %v; want what to run", err)
	}
	for _, bin := range []string{filepath.Join(debian, "18/bin"), filepath.Join(cache, "postgresql/18/bin")} {
		if err := os.MkdirAll(bin, 0o755); err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{"initdb", "postgres"} {
			if err := os.WriteFile(filepath.Join(bin, name), nil, 0o755); err != nil {
				t.Fatal(err)
			}
		}
		if got, err := findVersion("18", debian); err != nil || got != bin {
			t.Errorf("found %s, %v; want %s", got, err, bin)
		}
	}
}

func TestVersionsAreTheOldestAndTheNewest(t *testing.T) {
	t.Setenv(versionsVariable, "")
	script := pages.Read(t, "scripts/postgres")
	var pinned []string
	for line := range strings.Lines(script) {
		if fields := strings.Split(line, " | "); len(fields) == 3 && strings.HasPrefix(line, "\t\t") {
			pinned = append(pinned, strings.TrimSpace(fields[0]))
		}
	}
	if want := []string{pinned[0], pinned[len(pinned)-1]}; !slices.Equal(Versions(), want) {
		t.Errorf("tests run on %v; scripts/postgres has %v to %v", Versions(), want[0], want[1])
	}
	if setup := pages.Read(t, "scripts/setup"); !strings.Contains(setup, "\nscripts/postgres "+strings.Join(Versions(), " ")+"\n") {
		t.Errorf("scripts/setup does not fetch %v", Versions())
	}
	if all := "RETRYSAFE_POSTGRES_VERSIONS='" + strings.Join(pinned, " ") + "'"; !strings.Contains(pages.Read(t, "Makefile"), all) {
		t.Errorf("make versions does not run on %v", pinned)
	}
	t.Setenv(versionsVariable, "15 17")
	if got := Versions(); !slices.Equal(got, []string{"15", "17"}) {
		t.Errorf("Versions = %v", got)
	}
}
