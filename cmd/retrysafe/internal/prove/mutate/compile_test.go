package mutate_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/prove/mutate"
)

// compiler type-checks packages of the source tree with single files replaced. What
// these import comes compiled from the go command's cache, so a package takes
// milliseconds.
type compiler struct {
	fset     *token.FileSet
	packages map[string]*listed // by folder, relative to the source tree
	exports  map[string]string  // files of compiled packages, by import path
	importer types.Importer
}

// listed is what go list says of a package.
type listed struct {
	Dir, ImportPath, Export string
	GoFiles                 []string

	parsed map[string]*ast.File
}

// newCompiler asks the go command for the packages that the mutants change.
func newCompiler(t *testing.T, all []*mutate.Mutant) *compiler {
	t.Helper()
	root, err := filepath.Abs(source)
	must(t, err)
	folders := map[string]bool{}
	args := []string{"list", "-export", "-deps", "-json=Dir,ImportPath,Export,GoFiles"}
	for _, m := range all {
		if dir := path.Dir(m.File); !folders[dir] {
			folders[dir] = true
			args = append(args, "./"+dir)
		}
	}
	cmd := exec.CommandContext(t.Context(), "go", args...)
	cmd.Dir = root
	var complaints bytes.Buffer
	cmd.Stderr = &complaints
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list: %v\n%s", err, &complaints)
	}
	c := &compiler{fset: token.NewFileSet(), packages: map[string]*listed{}, exports: map[string]string{}}
	for in := json.NewDecoder(bytes.NewReader(out)); ; {
		p := new(listed)
		if err := in.Decode(p); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		c.exports[p.ImportPath] = p.Export
		if dir, err := filepath.Rel(root, p.Dir); err == nil && folders[filepath.ToSlash(dir)] {
			c.packages[filepath.ToSlash(dir)] = p
		}
	}
	c.importer = importer.ForCompiler(c.fset, "gc", func(path string) (io.ReadCloser, error) { return os.Open(c.exports[path]) })
	return c
}

// compile returns an error if the package of a file does not compile with this text in
// its place.
func (c *compiler) compile(file, text string) error {
	p := c.packages[path.Dir(file)]
	if p == nil {
		return fmt.Errorf("%s is in no package", file)
	}
	if p.parsed == nil {
		p.parsed = map[string]*ast.File{}
		for _, name := range p.GoFiles {
			parsed, err := parser.ParseFile(c.fset, filepath.Join(p.Dir, name), nil, parser.SkipObjectResolution)
			if err != nil {
				return err
			}
			p.parsed[name] = parsed
		}
	}
	if p.parsed[path.Base(file)] == nil {
		return fmt.Errorf("%s is not compiled on this machine", file)
	}
	planted, err := parser.ParseFile(c.fset, file, text, parser.SkipObjectResolution)
	if err != nil {
		return err
	}
	files := []*ast.File{planted}
	for name, parsed := range p.parsed {
		if name != path.Base(file) {
			files = append(files, parsed)
		}
	}
	config := types.Config{Importer: c.importer}
	_, err = config.Check(p.ImportPath, c.fset, files, nil)
	return err
}

var testFunc = regexp.MustCompile(`(?m)^func ((?:Test|Fuzz|Example)\w*)\(`)

// missingTests returns an error if a mutant's command names a package or a test that is
// not there: it would run nothing, and find nothing.
func missingTests(m *mutate.Mutant) error {
	names := []string{""} // every test
	var packages []string
	for i := 2; i < len(m.Kill); i++ {
		switch word := m.Kill[i]; {
		case word == "-run" && i+1 < len(m.Kill):
			i++
			top, _, _ := strings.Cut(m.Kill[i], "/") // subtests are not functions
			names = strings.Split(top, "|")
		case word == "." || strings.HasPrefix(word, "./"):
			packages = append(packages, word)
		default:
			return fmt.Errorf("its command has the word %q, which this test does not know", word)
		}
	}
	found := make([]bool, len(names))
	for _, dir := range packages {
		files, err := filepath.Glob(filepath.Join(source, dir, "*_test.go"))
		if err != nil {
			return err
		}
		some := false
		for _, file := range files {
			text, err := os.ReadFile(file)
			if err != nil {
				return err
			}
			for _, f := range testFunc.FindAllSubmatch(text, -1) {
				for i, name := range names {
					matches, err := regexp.Match(name, f[1])
					if err != nil {
						return err
					}
					found[i], some = found[i] || matches, some || matches
				}
			}
		}
		if !some {
			return fmt.Errorf("package %s has no test that %q runs", dir, strings.Join(m.Kill, " "))
		}
	}
	for i, name := range names {
		if !found[i] {
			return fmt.Errorf("no test is called %s: %q does not run it", name, strings.Join(m.Kill, " "))
		}
	}
	return nil
}

// The test of the mutants finds one that does not compile, and one whose test is gone.
func TestBrokenMutantsAreFound(t *testing.T) {
	t.Parallel()
	const file = "internal/canonjson/encoder.go"
	good := &mutate.Mutant{File: file, Kill: strings.Fields("go test ./internal/canonjson . -run Test")}
	c := newCompiler(t, []*mutate.Mutant{good})
	text, err := os.ReadFile(filepath.Join(source, file))
	must(t, err)
	must(t, c.compile(file, string(text)))
	must(t, missingTests(good))
	for _, more := range []string{"\nfunc (", "\nvar x = y\n", "\nfunc unused() { x := 1 }\n"} {
		if err := c.compile(file, string(text)+more); err == nil {
			t.Errorf("it compiles with %q", more)
		}
	}
	for _, kill := range []string{
		"go test ./internal/canonjson -run TestOfNoBug",
		"go test ./internal/canonjson -run Test|TestOfNoBug",
		"go test ./internal/no/such ./internal/canonjson",
		"go test ./internal/canonjson -count 1",
	} {
		if missingTests(&mutate.Mutant{File: file, Kill: strings.Fields(kill)}) == nil {
			t.Errorf("%q names tests that are not there", kill)
		}
	}
}
