package main

import (
	"cmp"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// A mutant is one planted bug. Its edits only insert text, so that mutants nest: a
// condition inside of a statement that another mutant deletes has mutants of its own.
type mutant struct {
	id            int
	kind          string
	file          string
	line          int
	before, after string
	edits         []edit
}

// An edit inserts text at an offset of a file, at one end of a piece of code.
type edit struct {
	file   string
	at     int
	text   string
	closes bool
	around int // the length of the piece of code
}

// compareEdits orders the edits of a file so that what they put around pieces of code
// nests. The sort is stable: of two around the same piece the first is outside.
func compareEdits(a, b edit) int {
	switch {
	case a.at != b.at:
		return cmp.Compare(a.at, b.at)
	case a.closes != b.closes:
		if a.closes {
			return -1
		}
		return 1
	case a.closes:
		return cmp.Compare(a.around, b.around)
	default:
		return cmp.Compare(b.around, a.around)
	}
}

func (m *mutant) String() string {
	return fmt.Sprintf("%s:%d %s: %s → %s", m.file, m.line, m.kind, m.before, m.after)
}

// Support is what the planted conditions call. The tree has it as text, because the name
// of its package is the mutated one's.
//
//go:embed support.go.txt
var support string

// supportFile is the name by which support joins the package.
const supportFile = "zz_mutation.go"

// apply returns the files of s with all mutants in them.
func (s *source) apply(mutants []*mutant) map[string][]byte {
	edits := map[string][]edit{}
	for _, m := range mutants {
		for _, e := range m.edits {
			if !e.closes {
				edits[e.file] = append(edits[e.file], e)
			}
		}
	}
	for _, m := range slices.Backward(mutants) {
		for _, e := range slices.Backward(m.edits) {
			if e.closes {
				edits[e.file] = append(edits[e.file], e)
			}
		}
	}
	files := map[string][]byte{supportFile: []byte(strings.Replace(support, "package support", "package "+s.pkg.Name(), 1))}
	for _, f := range s.files {
		var b []byte
		last := 0
		slices.SortStableFunc(edits[f.name], compareEdits)
		for _, e := range edits[f.name] {
			b = append(b, f.text[last:e.at]...)
			b = append(b, e.text...)
			last = e.at
		}
		files[f.name] = append(b, f.text[last:]...)
	}
	return files
}

// settle drops the mutants that do not compile, and returns the rest with the files that
// have them. No edit adds a line, so the line of a failure leads to its mutants.
func (s *source) settle(mutants []*mutant) ([]*mutant, map[string][]byte, error) {
	for {
		files := s.apply(mutants)
		fset := token.NewFileSet()
		var asts []*ast.File
		for name, text := range files {
			parsed, err := parser.ParseFile(fset, name, text, parser.SkipObjectResolution)
			if err != nil {
				return nil, nil, fmt.Errorf("a mutant broke the syntax: %w", err)
			}
			asts = append(asts, parsed)
		}
		_, failures := s.check(fset, asts, nil)
		if len(failures) == 0 {
			return mutants, files, nil
		}
		wrong := map[string]bool{}
		for _, failure := range failures {
			at := failure.Fset.Position(failure.Pos)
			wrong[fmt.Sprint(at.Filename, ":", at.Line)] = true
		}
		rest := slices.DeleteFunc(slices.Clone(mutants), func(m *mutant) bool {
			return slices.ContainsFunc(m.edits, func(e edit) bool { return wrong[fmt.Sprint(e.file, ":", s.lineOf(e.file, e.at))] })
		})
		if len(rest) == len(mutants) {
			return nil, nil, errors.New("mutants do not compile, and none stands where it fails: " + failures[0].Error())
		}
		mutants = rest
	}
}

func (s *source) lineOf(file string, at int) int {
	for _, f := range s.files {
		if f.name == file {
			return 1 + strings.Count(string(f.text[:at]), "\n")
		}
	}
	return 0
}

// writeOverlay writes the files into dir, and beside them the JSON that lets the go
// command read them in place of the package's own. It returns the path of the JSON.
func (s *source) writeOverlay(dir string, files map[string][]byte) (string, error) {
	replace := map[string]string{}
	for name, text := range files {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, text, 0o600); err != nil {
			return "", err
		}
		replace[filepath.Join(s.dir, name)] = path
	}
	text, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return "", err
	}
	path := filepath.Join(dir, "overlay.json")
	return path, os.WriteFile(path, text, 0o600)
}
