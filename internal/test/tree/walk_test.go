package tree_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"regexp"
	"strings"
	"testing"

	"github.com/retrysafe/retrysafe/internal/test/pages"
)

// The walk through the code in ARCHITECTURE.md links functions and types to the files
// that declare them: [`Type.method`](file.go). Each of them must be there.
func TestDocsWalkLeadsToDeclarations(t *testing.T) {
	t.Parallel()
	step := regexp.MustCompile("\\[`(\\w+(?:\\.\\w+)?)`\\]\\(([\\w./-]+\\.go)\\)")
	steps := step.FindAllStringSubmatch(pages.Read(t, "ARCHITECTURE.md"), -1)
	if len(steps) < 30 {
		t.Fatalf("the walk has %d steps; this test looks in the wrong place", len(steps))
	}
	for _, s := range steps {
		if !declares(t, s[2], s[1]) {
			t.Errorf("ARCHITECTURE.md: %s does not declare %s", s[2], s[1])
		}
	}
}

// A settle and a lease are to be read in few files.
func TestDocsSettleCrossesThreeFiles(t *testing.T) {
	t.Parallel()
	settle := regexp.MustCompile(`(?s)6\. .*?7\. `).FindString(pages.Read(t, "ARCHITECTURE.md"))
	files := map[string]bool{}
	for _, m := range regexp.MustCompile("`Execution\\.\\w+`\\]\\((\\w+\\.go)\\)").FindAllStringSubmatch(settle, -1) {
		files[m[1]] = true
	}
	if len(files) == 0 || len(files) > 3 {
		t.Errorf("a settle crosses %v, want three files of the root package at most", files)
	}
	for _, name := range []string{"Execution.scheduleBeat", "Execution.onBeat", "Execution.renewByBeat", "Execution.renew", "Execution.renewal", "Execution.leaseRenewed", "Execution.stopBeat"} {
		if !declares(t, "lease.go", name) {
			t.Errorf("lease.go does not declare %s: renewing a lease is in one file", name)
		}
	}
}

// declares reports whether the file declares a function or type, or a method by
// Type.name.
func declares(t *testing.T, file, name string) bool {
	t.Helper()
	parsed, err := parser.ParseFile(token.NewFileSet(), pages.Path(t, file), nil, parser.SkipObjectResolution)
	must(t, err)
	typ, method, isMethod := strings.Cut(name, ".")
	for _, d := range parsed.Decls {
		switch d := d.(type) {
		case *ast.FuncDecl:
			if !isMethod && d.Recv == nil && d.Name.Name == name || isMethod && d.Recv != nil && d.Name.Name == method && receiver(d) == typ {
				return true
			}
		case *ast.GenDecl:
			for _, s := range d.Specs {
				if s, ok := s.(*ast.TypeSpec); ok && s.Name.Name == name {
					return true
				}
			}
		}
	}
	return false
}

// receiver returns the name of a method's type.
func receiver(d *ast.FuncDecl) string {
	e := d.Recv.List[0].Type
	for {
		switch at := e.(type) {
		case *ast.StarExpr:
			e = at.X
		case *ast.IndexExpr:
			e = at.X
		case *ast.IndexListExpr:
			e = at.X
		case *ast.Ident:
			return at.Name
		default:
			return ""
		}
	}
}
