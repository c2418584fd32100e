package tree_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// maxExported was 650 when the packages got their present places. What a new part needs is
// added with it: resolvers over HTTP, more webhook schemes, batches of operators' actions
// and the feed of changes have 40 names; the stores for MySQL, Redis and DynamoDB and the
// shared tier 88; receipts of delivered messages 9, the inbox on MySQL 1; the client with its journal 46, and
// conform 17; spans and their package for OpenTelemetry 15, metrics of stores 13, the console with its admin API 13;
// quick reads of the outbox and notice of commits 6, moves of Redis and DynamoDB 2,
// a key that is taken in one statement 1.
const (
	maxRootFiles = 30
	maxExported  = 902
)

// The listing of the root directory reads as the architecture: few files, and none
// that is about the tree.
func TestArchRootListing(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("*.go")
	must(t, err)
	code := 0
	for _, file := range files {
		if !strings.HasSuffix(file, "_test.go") {
			code++
		} else if strings.HasPrefix(file, "arch") || strings.HasPrefix(file, "docs") {
			t.Errorf("%s tests the tree; its place is internal/test/tree", file)
		}
	}
	if code > maxRootFiles {
		t.Errorf("the root package has %d files, want %d at most", code, maxRootFiles)
	}
}

// Every pool is a pool.Of, so that tests can poison what goes back to it.
func TestArchPools(t *testing.T) {
	t.Parallel()
	walk(t, func(file string) {
		dir := path.Dir(file)
		if !strings.HasSuffix(file, ".go") || strings.HasSuffix(file, "_test.go") || dir == "internal/pool" {
			return
		}
		parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
		must(t, err)
		ast.Inspect(parsed, func(n ast.Node) bool {
			if s, ok := n.(*ast.SelectorExpr); ok && s.Sel.Name == "Pool" {
				if x, ok := s.X.(*ast.Ident); ok && x.Name == "sync" {
					t.Errorf("%s has a sync.Pool: use internal/pool, and poison its objects in the tests of %s", file, dir)
				}
			}
			return true
		})
	})
}

// An identifier that a program can use is a promise. Names, and methods of exported
// types, count; fields do not.
func TestArchExported(t *testing.T) {
	t.Parallel()
	total, by := 0, map[string]int{}
	walk(t, func(file string) {
		dir := path.Dir(file)
		if !strings.HasSuffix(file, ".go") || strings.HasSuffix(file, "_test.go") || !importable(dir) {
			return
		}
		n := exportedIn(t, file)
		total += n
		by[dir] += n
	})
	if total > maxExported {
		t.Errorf("%d exported identifiers, want %d at most: %v", total, maxExported, by)
	}
	t.Logf("%d exported identifiers: %v", total, by)
}

// importable reports whether a program outside this module can import the package.
func importable(dir string) bool {
	parts := strings.Split(dir, "/")
	first := parts[0]
	return !slices.Contains(parts, "internal") && !slices.Contains([]string{"cmd", "internal", "examples", "docs", "scripts", "tools"}, first) && !inNestedModule(dir)
}

func exportedIn(t *testing.T, file string) (n int) {
	t.Helper()
	parsed, err := parser.ParseFile(token.NewFileSet(), filepath.FromSlash(file), nil, parser.SkipObjectResolution)
	must(t, err)
	for _, d := range parsed.Decls {
		switch d := d.(type) {
		case *ast.FuncDecl:
			if d.Name.IsExported() && (d.Recv == nil || ast.IsExported(receiver(d))) {
				n++
			}
		case *ast.GenDecl:
			for _, s := range d.Specs {
				switch s := s.(type) {
				case *ast.TypeSpec:
					if s.Name.IsExported() {
						n++
					}
				case *ast.ValueSpec:
					for _, name := range s.Names {
						if name.IsExported() {
							n++
						}
					}
				}
			}
		}
	}
	return n
}

// A package that only the command imports has its place under the command.
func TestArchNothingIsOnlyForTheCommand(t *testing.T) {
	t.Parallel()
	importers := map[string][]string{}
	for from, imports := range ourImports(t) {
		for to := range imports {
			importers[to] = append(importers[to], from)
		}
	}
	for pkg, from := range importers {
		if !strings.HasPrefix(pkg, "internal/") || strings.HasPrefix(pkg, "internal/test/") {
			continue
		}
		if !slices.ContainsFunc(from, func(p string) bool { return !covers(cli+"/...", p) }) {
			t.Errorf("only the command imports %s; its place is %s", pkg, inner)
		}
	}
}

// The subject of a sentence is a thing with a name, in tests too. See CONTRIBUTING.md.
// The output of an example is not a comment of ours but what the program prints.
func TestArchCommentsNameTheirSubject(t *testing.T) {
	t.Parallel()
	unnamed := regexp.MustCompile(`(?i)\b(nobody|somebody|anybody|whoever|who|whom)\b`)
	output := regexp.MustCompile(`(?i)^\s*(unordered )?output:`)
	walk(t, func(file string) {
		if !strings.HasSuffix(file, ".go") {
			return
		}
		set := token.NewFileSet()
		parsed, err := parser.ParseFile(set, filepath.FromSlash(file), nil, parser.ParseComments|parser.SkipObjectResolution)
		must(t, err)
		for _, group := range parsed.Comments {
			if strings.HasSuffix(file, "_test.go") && output.MatchString(group.Text()) {
				continue
			}
			for _, c := range group.List {
				if word := unnamed.FindString(c.Text); word != "" {
					t.Errorf("%s: %q: name the thing instead of %q", set.Position(c.Pos()), strings.TrimSpace(c.Text), word)
				}
			}
		}
	})
}
