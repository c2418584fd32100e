package migrate

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"regexp"
	"strconv"
	"strings"
)

// A Migration is one numbered file.
type Migration struct {
	// Version is the number that the file's name begins with.
	Version int
	// Name is the file's name without its extension.
	Name string
	SQL  string
	// Oldest is the oldest version that a program must know to work on a database with this migration. Zero means
	// Version: a program that does not know the migration refuses the database.
	Oldest int
}

// Read returns the migrations in a directory, NNNN_name.sql, in the order of their numbers. Fill replaces the
// placeholders in their texts; nil means that there are none.
func Read(files fs.FS, dir string, fill func(string) string) ([]Migration, error) {
	names, err := fs.Glob(files, path.Join(dir, "*.sql"))
	if err != nil {
		return nil, err
	}
	if len(names) == 0 {
		return nil, errors.New("there are no migrations")
	}
	all := make([]Migration, 0, len(names)) // Glob returns them in order
	for _, name := range names {
		text, err := fs.ReadFile(files, name)
		if err != nil {
			return nil, err
		}
		script := string(text)
		if fill != nil {
			script = fill(script)
		}
		m, err := Parse(strings.TrimSuffix(path.Base(name), ".sql"), script)
		if err != nil {
			return nil, err
		}
		if len(all) > 0 && m.Version <= all[len(all)-1].Version {
			return nil, fmt.Errorf("migration %s does not come after %s", m.Name, all[len(all)-1].Name)
		}
		all = append(all, m)
	}
	return all, nil
}

// worksFrom is the line by which a migration says which programs can work with it.
var worksFrom = regexp.MustCompile(`(?m)^-- works from (\d+)$`)

// Parse returns the migration with this name and text.
func Parse(name, script string) (m Migration, err error) {
	m = Migration{Name: name, SQL: script}
	number, _, _ := strings.Cut(name, "_")
	if m.Version, err = strconv.Atoi(number); err != nil {
		return m, fmt.Errorf("migration %s has no number: %w", name, err)
	}
	if from := worksFrom.FindStringSubmatch(script); from != nil {
		if m.Oldest, err = strconv.Atoi(from[1]); err != nil {
			return m, fmt.Errorf("migration %s: %w", name, err)
		}
	}
	return m, nil
}
