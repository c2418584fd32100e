package mutate

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// A Mutant is a bug of one line that is planted into the source, and the test that
// has to find it. In its file it is
//
//	flaw:  an answer is stored although another owner has the attempt by now
//	seed:  000
//	layer: store suite
//	kill:  go test ./store/memstore -run TestContract
//	file:  store/memstore/swap.go
//	- if stored.Owner != r.Owner {
//	+ if false {
//
// Lines of the source are found by what they say, not by their number; the indent
// does not count. Several in a row are replaced together.
type Mutant struct {
	// Name is that of its file.
	Name string
	// Flaw says what is wrong then.
	Flaw string
	// Seed is the seed document that has it, if one has.
	Seed string
	// Layer is what finds it: decision table, engine, store suite, simulator …
	Layer string
	// Kill is the test, as arguments of the go command; packages and pattern are what
	// they say.
	Kill     []string
	packages []string
	pattern  string
	File     string
	old, new []string
}

// Folder is where the mutants are, in a source tree.
const Folder = "cmd/retrysafe/internal/prove/mutants"

// Load reads all mutants of a source tree, in the order of their names.
func Load(source string) ([]*Mutant, error) {
	files, err := filepath.Glob(filepath.Join(source, filepath.FromSlash(Folder), "*.mutant"))
	if err != nil {
		return nil, err
	}
	if len(files) == 0 {
		return nil, fmt.Errorf("%s has no mutants: --source names the source tree of retrysafe", source)
	}
	slices.Sort(files)
	all := make([]*Mutant, len(files))
	for i, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		if all[i], err = parse(strings.TrimSuffix(filepath.Base(file), ".mutant"), string(text)); err != nil {
			return nil, fmt.Errorf("%s: %w", filepath.Base(file), err)
		}
	}
	return all, nil
}

func parse(name, text string) (*Mutant, error) {
	m := &Mutant{Name: name}
	kill := ""
	fields := map[string]*string{"flaw": &m.Flaw, "seed": &m.Seed, "layer": &m.Layer, "kill": &kill, "file": &m.File}
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, "\n")
		rest, isOld := strings.CutPrefix(line, "-")
		added, isNew := strings.CutPrefix(line, "+")
		switch {
		case isOld:
			m.old = append(m.old, strings.TrimSpace(rest))
		case isNew:
			m.new = append(m.new, strings.TrimPrefix(added, " "))
		case line == "":
		default:
			key, value, ok := strings.Cut(line, ":")
			if !ok || fields[key] == nil {
				return nil, fmt.Errorf("cannot read the line %q", line)
			}
			*fields[key] = strings.TrimSpace(value)
		}
	}
	for key, value := range fields {
		if *value == "" && key != "seed" {
			return nil, fmt.Errorf("it has no %s", key)
		}
	}
	m.Kill = words(kill)
	switch {
	case !m.readKill():
		return nil, fmt.Errorf("kill is %q, and not go test, packages and -run", kill)
	case len(m.old) == 0:
		return nil, fmt.Errorf("it changes no line")
	}
	return m, nil
}

// readKill takes the line of go test apart, and reports whether it is one.
func (m *Mutant) readKill() bool {
	if len(m.Kill) < 3 || m.Kill[0] != "go" || m.Kill[1] != "test" {
		return false
	}
	rest := m.Kill[2:]
	for len(rest) > 0 && strings.HasPrefix(rest[0], ".") {
		m.packages, rest = append(m.packages, rest[0]), rest[1:]
	}
	if len(rest) == 2 && rest[0] == "-run" {
		m.pattern, rest = rest[1], nil
	}
	return len(m.packages) > 0 && len(rest) == 0
}

// words takes a command line apart. What stands in single quotes is one word.
func words(line string) (out []string) {
	for i, part := range strings.Split(line, "'") {
		if i%2 == 1 {
			out = append(out, part)
		} else {
			out = append(out, strings.Fields(part)...)
		}
	}
	return out
}

// Plant returns the mutant's file with the bug in it.
func (m *Mutant) Plant(source string) (string, error) {
	text, err := os.ReadFile(filepath.Join(source, m.File))
	if err != nil {
		return "", err
	}
	lines := strings.Split(string(text), "\n")
	at := -1
	for i := range len(lines) - len(m.old) + 1 {
		if !m.at(lines[i:]) {
			continue
		}
		if at >= 0 {
			return "", fmt.Errorf("%s has the line %q more than once", m.File, m.old[0])
		}
		at = i
	}
	if at < 0 {
		return "", fmt.Errorf("%s has no line %q any more: plant the bug where the code is now", m.File, m.old[0])
	}
	return strings.Join(slices.Replace(lines, at, at+len(m.old), m.new...), "\n"), nil
}

// at reports whether the lines to be replaced are the first of these.
func (m *Mutant) at(lines []string) bool {
	for i, old := range m.old {
		if strings.TrimSpace(lines[i]) != old {
			return false
		}
	}
	return true
}
