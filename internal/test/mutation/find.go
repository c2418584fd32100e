package main

import (
	"fmt"
	"go/ast"
	"go/token"
	"go/types"
	"regexp"
	"strconv"
	"strings"
)

// A finder walks the files of a package and collects mutants: changes of one line that a
// tired engineer or a bad merge would make.
type finder struct {
	*source
	only    *regexp.Regexp
	file    *sourceFile
	mutants []*mutant
	shared  map[types.Object]*mutant // of constants, by the object
	skip    map[ast.Node]bool        // what its parent has dealt with, and the parts of it
	started map[*ast.CallExpr]bool   // calls of go and defer, which stay calls
}

// find returns all mutants of the files, or of the lines, that match only.
func (s *source) find(only *regexp.Regexp) []*mutant {
	f := &finder{source: s, only: only, shared: map[types.Object]*mutant{}, skip: map[ast.Node]bool{}, started: map[*ast.CallExpr]bool{}}
	for _, file := range s.files {
		if ast.IsGenerated(file.ast) {
			continue
		}
		f.file = file
		for _, d := range file.ast.Decls {
			ast.Inspect(d, f.visit)
		}
	}
	return f.mutants
}

// visit finds the mutants of n itself. Mutants around the same piece of code are added from
// the outside to the inside.
func (f *finder) visit(n ast.Node) bool {
	if n == nil || f.skip[n] {
		return false
	}
	switch n := n.(type) {
	case *ast.GenDecl:
		return n.Tok == token.VAR // a constant cannot depend on the environment
	case *ast.TypeSpec, *ast.ArrayType, *ast.Field:
		return false
	case *ast.BlockStmt:
		f.statements(n.List)
	case *ast.CaseClause:
		f.caseClause(n)
	case *ast.GoStmt:
		f.started[n.Call] = true
	case *ast.DeferStmt:
		f.started[n.Call] = true
	case *ast.CommClause:
		f.statements(n.Body)
	case *ast.SwitchStmt:
		f.switchStmt(n)
	case *ast.IfStmt:
		f.ifStmt(n)
	case *ast.FuncDecl:
		if n.Body != nil {
			f.returns(n.Type, n.Body)
		}
	case *ast.FuncLit:
		f.returns(n.Type, n.Body)
	case *ast.CompositeLit:
		f.compositeLit(n)
	case *ast.CallExpr:
		return f.callExpr(n)
	case *ast.BinaryExpr:
		if !f.isConstant(n) {
			f.binaryExpr(n)
		}
	}
	if e, ok := n.(ast.Expr); ok && f.isConstant(e) {
		f.constant(e)
		return false
	}
	return true
}

// add notes a mutant at n. Open and closing are inserted around n, with the mutant's number
// in place of %d.
func (f *finder) add(n ast.Node, kind, after, open, closing string) *mutant {
	m := f.newMutant(n, kind, f.text(n), after)
	if m != nil {
		f.wrap(m, n, open, closing)
	}
	return m
}

// newMutant returns nil if mutants at n are not asked for.
func (f *finder) newMutant(n ast.Node, kind, before, after string) *mutant {
	at := f.fset.Position(n.Pos())
	if !f.only.MatchString(fmt.Sprintf("%s:%d", f.file.name, at.Line)) {
		return nil
	}
	m := &mutant{id: len(f.mutants) + 1, kind: kind, file: f.file.name, line: at.Line, before: short(before), after: short(after)}
	f.mutants = append(f.mutants, m)
	return m
}

func (f *finder) wrap(m *mutant, n ast.Node, open, closing string) {
	number := func(text string) string { return strings.ReplaceAll(text, "%d", strconv.Itoa(m.id)) }
	from, to := f.fset.Position(n.Pos()).Offset, f.fset.Position(n.End()).Offset
	m.edits = append(m.edits,
		edit{file: f.file.name, at: from, text: number(open), around: to - from},
		edit{file: f.file.name, at: to, text: number(closing), around: to - from, closes: true})
}

// text returns the source of n.
func (f *finder) text(n ast.Node) string {
	return string(f.file.text[f.fset.Position(n.Pos()).Offset:f.fset.Position(n.End()).Offset])
}

// short makes text one line of the report.
func short(text string) string {
	text = strings.Join(strings.Fields(text), " ")
	if runes := []rune(text); len(runes) > 140 {
		text = string(runes[:140]) + "…"
	}
	return text
}

func (f *finder) isConstant(e ast.Expr) bool { return f.info.Types[e].Value != nil }

func (f *finder) isBool(e ast.Expr) bool {
	t := f.info.Types[e].Type
	return t != nil && (types.Identical(t, types.Typ[types.Bool]) || types.Identical(t, types.Typ[types.UntypedBool]))
}

// isPlain reports whether e can stand in the code a second time: it has no calls and is of
// one line.
func (f *finder) isPlain(e ast.Expr) bool {
	plain := !strings.Contains(f.text(e), "\n")
	ast.Inspect(e, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.CallExpr:
			plain = plain && f.isPure(n)
		case *ast.FuncLit, *ast.UnaryExpr:
			if u, ok := n.(*ast.UnaryExpr); !ok || u.Op == token.ARROW {
				plain = false
			}
		}
		return plain
	})
	return plain
}

// isPure reports whether a second call changes nothing: conversions, len and cap, and
// methods of times and atomic values that read.
func (f *finder) isPure(n *ast.CallExpr) bool {
	if t := f.info.Types[n.Fun]; t.IsType() {
		return true
	}
	switch name := f.callee(n); {
	case name == "len", name == "cap", name == "min", name == "max":
		return true
	case strings.HasPrefix(name, "time.") && name != "time.Now" && name != "time.Since" && name != "time.Until":
		return true
	default:
		return strings.HasPrefix(name, "sync/atomic.") && strings.HasSuffix(name, ".Load")
	}
}

// callee names what a call calls: "len", "fmt.Errorf", "log/slog.Logger.Info", or "" for
// the value of a variable.
func (f *finder) callee(n *ast.CallExpr) string {
	var id *ast.Ident
	switch fun := ast.Unparen(n.Fun).(type) {
	case *ast.Ident:
		id = fun
	case *ast.SelectorExpr:
		id = fun.Sel
	default:
		return ""
	}
	switch o := f.info.Uses[id].(type) {
	case *types.Builtin:
		return o.Name()
	case *types.Func:
		name := o.Name()
		if recv := o.Signature().Recv(); recv != nil {
			t := recv.Type()
			if p, ok := t.(*types.Pointer); ok {
				t = p.Elem()
			}
			if named, ok := t.(*types.Named); ok {
				name = named.Obj().Name() + "." + name
			}
		}
		if o.Pkg() == nil {
			return name
		}
		return o.Pkg().Path() + "." + name
	default:
		return ""
	}
}

// typeName writes t as this file would, or returns false if it cannot.
func (f *finder) typeName(t types.Type) (string, bool) {
	ok := true
	name := types.TypeString(t, func(p *types.Package) string {
		if p == f.pkg {
			return ""
		}
		for _, spec := range f.file.ast.Imports {
			if path, err := strconv.Unquote(spec.Path.Value); err == nil && path == p.Path() {
				if spec.Name != nil {
					return spec.Name.Name
				}
				return p.Name()
			}
		}
		ok = false
		return p.Name()
	})
	return name, ok
}
