package main

import (
	"go/ast"
	"go/constant"
	"go/token"
	"go/types"
	"strings"
)

// statements finds the statements of a block that can be missing.
func (f *finder) statements(list []ast.Stmt) {
	for i, s := range list {
		switch s := s.(type) {
		case *ast.ExprStmt:
			call, ok := s.X.(*ast.CallExpr)
			if ok && f.isUninteresting(call) {
				continue
			}
			f.deletable(s)
		case *ast.AssignStmt:
			if s.Tok != token.DEFINE && !isBlank(s.Lhs) {
				f.deletable(s)
			}
		case *ast.DeferStmt:
			if !f.isUninteresting(s.Call) {
				f.deletable(s)
			}
		case *ast.IncDecStmt, *ast.SendStmt, *ast.GoStmt:
			f.deletable(s)
		case *ast.BranchStmt:
			// An if of which this is all has a mutant without it.
			if i > 0 && (s.Tok == token.BREAK || s.Tok == token.CONTINUE) {
				f.deletable(s)
			}
		}
	}
}

func (f *finder) deletable(s ast.Stmt) {
	f.add(s, "statement deleted", "(nothing)", "if !zzMutant(%d) { ", " }")
}

func isBlank(lhs []ast.Expr) bool {
	for _, e := range lhs {
		if id, ok := e.(*ast.Ident); !ok || id.Name != "_" {
			return false
		}
	}
	return true
}

// isUninteresting reports calls whose absence is noticed at once, or by no caller: locks,
// panics, log lines, the release of a context that has ended.
func (f *finder) isUninteresting(n *ast.CallExpr) bool {
	name := f.callee(n)
	switch name {
	case "panic", "runtime.KeepAlive", "runtime.Gosched":
		return true
	case "sync.Mutex.Lock", "sync.Mutex.Unlock", "sync.RWMutex.Lock", "sync.RWMutex.Unlock", "sync.RWMutex.RLock", "sync.RWMutex.RUnlock":
		return true
	}
	if t := f.info.Types[n.Fun].Type; t != nil && t.String() == "context.CancelFunc" {
		return true
	}
	return isText(name) || strings.Contains(name, "/internal/failpoint.")
}

// isText reports functions whose arguments are text for people.
func isText(callee string) bool {
	return strings.HasPrefix(callee, "log/slog.") || strings.HasPrefix(callee, "fmt.") || strings.HasPrefix(callee, "errors.New")
}

// ifStmt finds conditions that are ignored, and returns that are missing.
func (f *finder) ifStmt(n *ast.IfStmt) {
	if !f.isBool(n.Cond) || f.isConstant(n.Cond) || f.isPanic(n.Body) {
		return
	}
	f.cond(n.Cond)
	body := n.Body.List
	if alternative, ok := n.Else.(*ast.IfStmt); ok {
		f.skip[alternative] = true
		f.ifStmtAsElse(alternative)
	}
	if len(body) < 2 || n.Else != nil {
		return
	}
	if last, ok := body[len(body)-1].(*ast.ReturnStmt); ok {
		// A branch with an else may end its function; this one does not.
		f.addReturn(last)
	}
}

// ifStmtAsElse walks an if that follows else. Its return may be what ends the function.
func (f *finder) ifStmtAsElse(n *ast.IfStmt) {
	if n.Init != nil {
		ast.Inspect(n.Init, f.visit)
	}
	if f.isBool(n.Cond) && !f.isConstant(n.Cond) && !f.isPanic(n.Body) {
		f.cond(n.Cond)
	}
	ast.Inspect(n.Cond, f.visit)
	ast.Inspect(n.Body, f.visit)
	if next, ok := n.Else.(*ast.IfStmt); ok {
		f.ifStmtAsElse(next)
	} else if n.Else != nil {
		ast.Inspect(n.Else, f.visit)
	}
}

func (f *finder) addReturn(s *ast.ReturnStmt) {
	f.add(s, "return deleted", "(nothing)", "if !zzMutant(%d) { ", " }")
}

// cond finds a condition that is never true, or always. A failure that is always seen is
// noticed by every test.
func (f *finder) cond(e ast.Expr) {
	f.add(e, "never", "false", "(!zzMutant(%d) && (", "))")
	if !isNilTest(e) {
		f.add(e, "always", "true", "(zzMutant(%d) || (", "))")
	}
}

func isNilTest(e ast.Expr) bool {
	b, ok := e.(*ast.BinaryExpr)
	if !ok {
		return false
	}
	id, ok := b.Y.(*ast.Ident)
	return ok && id.Name == "nil"
}

func (f *finder) isPanic(body *ast.BlockStmt) bool {
	if len(body.List) != 1 {
		return false
	}
	s, ok := body.List[0].(*ast.ExprStmt)
	if !ok {
		return false
	}
	call, ok := s.X.(*ast.CallExpr)
	return ok && f.callee(call) == "panic"
}

// switchStmt treats the cases of a switch without a tag as conditions. Labels of other
// switches stay as they are.
func (f *finder) switchStmt(n *ast.SwitchStmt) {
	for _, s := range n.Body.List {
		clause := s.(*ast.CaseClause)
		for _, e := range clause.List {
			if n.Tag == nil && f.isBool(e) && !f.isConstant(e) {
				f.cond(e)
			} else if f.isConstant(e) {
				f.skip[e] = true
			}
		}
	}
}

func (f *finder) caseClause(n *ast.CaseClause) { f.statements(n.Body) }

// returns finds errors that are swallowed and booleans that are turned round, in the
// returns of one function.
func (f *finder) returns(signature *ast.FuncType, body *ast.BlockStmt) {
	if signature.Results == nil {
		f.voidReturns(body)
		return
	}
	f.ownReturns(body, func(n *ast.ReturnStmt) {
		for i, e := range n.Results {
			id, isIdent := e.(*ast.Ident)
			switch {
			case isIdent && id.Name == "nil":
			case isIdent && (id.Name == "true" || id.Name == "false") && f.isBool(e):
				f.add(e, "turned round", map[string]string{"true": "false", "false": "true"}[id.Name], "(zzMutant(%d) != ", ")")
			case i == len(n.Results)-1 && f.isErrorInterface(e):
				f.add(e, "error swallowed", "nil", "zzError(%d, ", ")")
			case len(n.Results) > 1 && f.isZero(e):
				f.skip[e] = true // beside an error, which is what callers look at
			}
		}
	})
}

// voidReturns finds early returns of functions without results.
func (f *finder) voidReturns(body *ast.BlockStmt) {
	f.ownReturns(body, func(n *ast.ReturnStmt) {
		if len(n.Results) == 0 && !f.returnsOfIfs(body)[n] {
			f.addReturn(n)
		}
	})
}

// returnsOfIfs has the returns that are all of an if, or that ifStmt finds.
func (f *finder) returnsOfIfs(body *ast.BlockStmt) map[*ast.ReturnStmt]bool {
	found := map[*ast.ReturnStmt]bool{}
	ast.Inspect(body, func(n ast.Node) bool {
		if branch, ok := n.(*ast.IfStmt); ok && len(branch.Body.List) > 0 {
			if s, ok := branch.Body.List[len(branch.Body.List)-1].(*ast.ReturnStmt); ok && (len(branch.Body.List) == 1 || branch.Else == nil) {
				found[s] = true
			}
		}
		return true
	})
	return found
}

// ownReturns calls yield for the returns of a function, without those of functions in it.
func (f *finder) ownReturns(body *ast.BlockStmt, yield func(*ast.ReturnStmt)) {
	ast.Inspect(body, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.FuncLit:
			return false
		case *ast.ReturnStmt:
			yield(n)
		}
		return true
	})
}

func (f *finder) isErrorInterface(e ast.Expr) bool {
	t := f.info.Types[e].Type
	return t != nil && types.Identical(t, types.Universe.Lookup("error").Type())
}

func (f *finder) isZero(e ast.Expr) bool {
	v := f.info.Types[e].Value
	return v != nil && v.Kind() == constant.Int && constant.Sign(v) == 0
}

// compositeLit finds fields that were forgotten.
func (f *finder) compositeLit(n *ast.CompositeLit) {
	t := f.info.Types[n].Type
	if t == nil {
		return
	}
	if p, ok := t.Underlying().(*types.Pointer); ok {
		t = p.Elem()
	}
	_, isStruct := t.Underlying().(*types.Struct)
	for _, e := range n.Elts {
		kv, ok := e.(*ast.KeyValueExpr)
		if !ok {
			continue
		}
		f.skip[kv.Key] = f.isConstant(kv.Key) // an index
		key, isIdent := kv.Key.(*ast.Ident)
		if !isStruct || !isIdent {
			continue
		}
		f.skip[key] = true
		f.field(key, kv.Value)
	}
}

// field finds a field of a literal that is left out.
func (f *finder) field(key *ast.Ident, value ast.Expr) {
	field := f.info.Uses[key]
	tv := f.info.Types[value]
	if field == nil || tv.Type == nil || tv.IsNil() || f.isZero(value) {
		return
	}
	if _, ok := value.(*ast.FuncLit); ok {
		return
	}
	name, ok := f.typeName(field.Type())
	if !ok {
		return
	}
	m := f.newMutant(key, "field left out", key.Name+": "+f.text(value), "(nothing)")
	if m != nil {
		f.wrap(m, value, "zzZero["+name+"](%d, ", ")")
	}
}

// callExpr finds calls that hand their argument on unchanged, and arguments that are
// swapped. It returns false if the arguments hold nothing of interest.
func (f *finder) callExpr(n *ast.CallExpr) bool {
	name := f.callee(n)
	if name == "panic" || strings.HasPrefix(name, "log/slog.") {
		return false
	}
	own := f.info.Types[n]
	isType := f.info.Types[n.Fun].IsType()
	if len(n.Args) == 1 && !isType && !f.started[n] && own.Value == nil && !isText(name) {
		if arg := n.Args[0]; f.isPlain(arg) && own.Type != nil && f.info.Types[arg].Type != nil && types.Identical(own.Type, f.info.Types[arg].Type) {
			f.add(n, "call left out", f.text(arg), "zzPick(%d, ", ", "+f.text(arg)+")")
		}
	}
	switch name {
	case "make":
		for _, size := range n.Args[1:] {
			if _, isChan := f.info.Types[n.Args[0]].Type.Underlying().(*types.Chan); !isChan && (len(n.Args) == 3 || !isSlice(f.info.Types[n.Args[0]].Type)) {
				f.skip[size] = true // a capacity
			}
		}
	case "min", "max":
		if len(n.Args) == 2 && own.Value == nil && f.isPlain(n.Args[0]) {
			f.add(n, "bound left out", f.text(n.Args[0]), "zzPick(%d, ", ", "+f.text(n.Args[0])+")")
		}
		return true
	case "append":
		return true
	}
	if strings.HasPrefix(name, "strconv.") || strings.HasSuffix(name, ".Grow") {
		for _, arg := range n.Args {
			f.skip[arg] = f.isConstant(arg)
		}
	}
	if isType || isText(name) || n.Ellipsis.IsValid() {
		return true
	}
	for i := 0; i+1 < len(n.Args); i++ {
		f.swapped(n, n.Args[i], n.Args[i+1])
	}
	return true
}

func isSlice(t types.Type) bool {
	_, ok := t.Underlying().(*types.Slice)
	return ok
}

// swapped finds two arguments of one type in the wrong order.
func (f *finder) swapped(call *ast.CallExpr, a, b ast.Expr) {
	ta, tb := f.info.Types[a], f.info.Types[b]
	if f.isErrorInterface(a) && f.isErrorInterface(b) {
		return // errors.Is finds the same, but for errors that wrap
	}
	if ta.Type == nil || tb.Type == nil || ta.IsNil() || tb.IsNil() || ta.Value != nil && tb.Value != nil || !types.Identical(ta.Type, tb.Type) || !f.isPlain(a) || !f.isPlain(b) {
		return
	}
	name, ok := f.typeName(ta.Type)
	if !ok {
		return
	}
	m := f.newMutant(a, "arguments swapped", f.text(call), f.text(b)+", "+f.text(a))
	if m == nil {
		return
	}
	f.wrap(m, a, "zzPick["+name+"](%d, ", ", "+f.text(b)+")")
	f.wrap(m, b, "zzPick["+name+"](%d, ", ", "+f.text(a)+")")
}

// binaryExpr finds comparisons that are off by one or turned round, operands that were
// forgotten, and sums with the wrong sign.
func (f *finder) binaryExpr(n *ast.BinaryExpr) {
	x, y := f.text(n.X), f.text(n.Y)
	again := "(" + x + ") == (" + y + ")"
	switch n.Op {
	case token.LSS, token.GTR, token.LEQ, token.GEQ:
		f.unlessNamed(n)
		if !f.isBool(n) || !f.isPlain(n.X) || !f.isPlain(n.Y) {
			return
		}
		if n.Op == token.LSS || n.Op == token.GTR {
			f.add(n, "boundary", x+" "+n.Op.String()+"= "+y, "(", " || zzMutant(%d) && "+again+")")
		} else {
			f.add(n, "boundary", x+" "+n.Op.String()[:1]+" "+y, "(", " && !(zzMutant(%d) && "+again+"))")
		}
	case token.EQL, token.NEQ:
		f.unlessNamed(n)
		if f.isBool(n) && !isNilTest(n) {
			other := map[token.Token]string{token.EQL: " != ", token.NEQ: " == "}[n.Op]
			f.add(n, "turned round", x+other+y, "(zzMutant(%d) != (", "))")
		}
	case token.LAND:
		f.operands(n, y, x, "(zzMutant(%d) || (")
	case token.LOR:
		f.operands(n, y, x, "(!zzMutant(%d) && (")
	case token.ADD, token.SUB:
		t := f.info.Types[n].Type
		name, ok := f.typeName(t)
		if basic, isBasic := t.Underlying().(*types.Basic); ok && isBasic && basic.Info()&types.IsInteger != 0 {
			other := map[token.Token]string{token.ADD: " - ", token.SUB: " + "}[n.Op]
			if m := f.newMutant(n, "sign", f.text(n), x+other+y); m != nil {
				f.wrap(m, n.Y, "zzNegate["+name+"](%d, ", ")")
			}
		}
	default: // bits and products are rarely what a program decides by
	}
}

// operands finds each operand of && or || left out. The text of the mutant is the other.
func (f *finder) operands(n *ast.BinaryExpr, withoutX, withoutY, open string) {
	if !f.isBool(n.X) || !f.isBool(n.Y) {
		return
	}
	for _, side := range []struct {
		operand ast.Expr
		after   string
	}{{n.X, withoutX}, {n.Y, withoutY}} {
		if f.isConstant(side.operand) {
			continue
		}
		if m := f.newMutant(side.operand, "operand left out", f.text(n), side.after); m != nil {
			f.wrap(m, side.operand, open, "))")
		}
	}
}

// unlessNamed keeps literals beside a comparison from being changed: the comparison itself
// has mutants that do the same.
func (f *finder) unlessNamed(n *ast.BinaryExpr) {
	for _, e := range []ast.Expr{n.X, n.Y} {
		if _, ok := e.(*ast.BasicLit); ok {
			f.skip[e] = true
		}
	}
}

// constant finds numbers that are off by one, and durations of another unit. A constant of
// the package is one mutant in all its places.
func (f *finder) constant(e ast.Expr) {
	tv := f.info.Types[e]
	if lit, ok := ast.Unparen(e).(*ast.BasicLit); ok && lit.Kind == token.CHAR {
		return
	}
	basic, ok := tv.Type.Underlying().(*types.Basic)
	if !ok || basic.Info()&types.IsInteger == 0 || tv.Value.Kind() != constant.Int {
		return
	}
	t := tv.Type
	if basic.Info()&types.IsUntyped != 0 {
		t = types.Typ[types.Int]
	}
	isDuration := t.String() == "time.Duration"
	if _, named := t.(*types.Named); named && !isDuration {
		return // a state or a kind, not an amount
	}
	name, ok := f.typeName(t)
	if !ok {
		return
	}
	kind, after, open := "one more", f.text(e)+" + 1", "zzAdd["+name+"](%d, "
	if isDuration && constant.Sign(tv.Value) != 0 {
		kind, after, open = "duration", "1000 * "+f.text(e), "zzScale["+name+"](%d, "
	}
	id, isIdent := e.(*ast.Ident)
	object := f.info.Uses[id]
	if !isIdent || object == nil || object.Parent() != f.pkg.Scope() {
		f.add(e, kind, after, open, ")")
		return
	}
	if m := f.shared[object]; m != nil {
		f.wrap(m, e, open, ")")
	} else if m := f.add(e, kind, after, open, ")"); m != nil {
		f.shared[object] = m
	}
}
