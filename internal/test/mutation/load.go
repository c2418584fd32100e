package main

import (
	"bytes"
	"context"
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
	"path/filepath"
)

// A source is the package that bugs are planted in: its files without tests, parsed and
// type-checked.
type source struct {
	path, dir string
	fset      *token.FileSet
	files     []*sourceFile
	info      *types.Info
	pkg       *types.Package
	exports   map[string]string // compiled packages that it imports, by path
}

type sourceFile struct {
	name string // the base name
	text []byte
	ast  *ast.File
}

// listed is what go list says of a package.
type listed struct {
	Dir, ImportPath, Export, Name string
	GoFiles                       []string
}

// load reads the package that pattern names. What it imports comes compiled from the go
// command's cache.
func load(ctx context.Context, dir, pattern string) (*source, error) {
	// The first three are what support imports.
	out, err := goCommand(ctx, dir, "list", "-export", "-deps", "-json=Dir,ImportPath,Export,Name,GoFiles", "os", "strconv", "sync", pattern)
	if err != nil {
		return nil, err
	}
	s := &source{fset: token.NewFileSet(), exports: map[string]string{}}
	var last listed // -deps lists the package itself after all that it imports
	for in := json.NewDecoder(bytes.NewReader(out)); ; {
		var p listed
		if err := in.Decode(&p); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return nil, fmt.Errorf("read what go list says: %w", err)
		}
		s.exports[p.ImportPath], last = p.Export, p
	}
	if len(last.GoFiles) == 0 {
		return nil, fmt.Errorf("%s has no Go files beside its tests", pattern)
	}
	s.path, s.dir = last.ImportPath, last.Dir
	for _, name := range last.GoFiles {
		text, err := os.ReadFile(filepath.Join(last.Dir, name))
		if err != nil {
			return nil, err
		}
		parsed, err := parser.ParseFile(s.fset, name, text, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			return nil, err
		}
		s.files = append(s.files, &sourceFile{name: name, text: text, ast: parsed})
	}
	s.info = &types.Info{
		Types: map[ast.Expr]types.TypeAndValue{}, Uses: map[*ast.Ident]types.Object{}, Defs: map[*ast.Ident]types.Object{},
		Selections: map[*ast.SelectorExpr]*types.Selection{},
	}
	var asts []*ast.File
	for _, f := range s.files {
		asts = append(asts, f.ast)
	}
	pkg, failures := s.check(s.fset, asts, s.info)
	if len(failures) > 0 {
		return nil, fmt.Errorf("type-check %s: %w", s.path, failures[0])
	}
	s.pkg = pkg
	return s, nil
}

// check type-checks files as this package, and returns all that is wrong with them.
func (s *source) check(fset *token.FileSet, files []*ast.File, info *types.Info) (*types.Package, []types.Error) {
	var failures []types.Error
	config := types.Config{
		Importer: importer.ForCompiler(fset, "gc", func(path string) (io.ReadCloser, error) { return os.Open(s.exports[path]) }),
		Error: func(err error) {
			var failure types.Error
			if errors.As(err, &failure) {
				failures = append(failures, failure)
			}
		},
	}
	pkg, err := config.Check(s.path, fset, files, info)
	if err != nil && len(failures) == 0 {
		failures = append(failures, types.Error{Fset: fset, Msg: err.Error()})
	}
	return pkg, failures
}

// goCommand runs the go command and returns its standard output.
func goCommand(ctx context.Context, dir string, args ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir = dir
	var complaints bytes.Buffer
	cmd.Stderr = &complaints
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("go %s: %w\n%s%s", args[0], err, out, &complaints)
	}
	return out, nil
}
