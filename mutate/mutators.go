package main

import (
	"fmt"
	"go/ast"
	"go/constant"
	"go/token"
	"go/types"
	"strings"
)

// A mutator finds the mutants of a package.
type mutator struct {
	pkg     *pkg
	file    *source
	mutants []*mutant

	function  string
	constants map[types.Object][]*mutant // of the package, where they are declared
	zeros     map[types.Object]bool      // variables that are the zero value for ever: see alwaysZero
}

// find returns the mutants of a package, in the order of the source. Most are well-typed: what isn't is
// found by instrument.
func find(p *pkg) []*mutant {
	m := &mutator{pkg: p, constants: map[types.Object][]*mutant{}, zeros: alwaysZero(p)}
	for _, f := range p.files {
		m.file = f
		m.declareConstants()
	}
	for _, f := range p.files {
		m.file = f
		for _, d := range f.ast.Decls {
			m.decl(d)
		}
	}
	return m.mutants
}

func (m *mutator) decl(d ast.Decl) {
	switch d := d.(type) {
	case *ast.FuncDecl:
		if d.Body != nil {
			m.function = functionName(d)
			m.walk(d)
		}
	case *ast.GenDecl:
		if d.Tok != token.VAR {
			return
		}
		for _, s := range d.Specs {
			m.function = "var " + s.(*ast.ValueSpec).Names[0].Name
			m.walk(s)
		}
	}
}

func (m *mutator) walk(root ast.Node) {
	ast.PreorderStack(root, nil, func(n ast.Node, stack []ast.Node) bool {
		var parent ast.Node
		if len(stack) > 0 {
			parent = stack[len(stack)-1]
		}
		switch n := n.(type) {
		case *ast.GenDecl:
			return n.Tok == token.VAR
		case ast.Stmt:
			m.stmt(n, parent, stack)
		case ast.Expr:
			return m.expr(n, parent)
		}
		return true
	})
}

// add adds a mutant of node n.
func (m *mutator) add(n ast.Node, old, new, before, after string) *mutant {
	mt := &mutant{
		file: m.file.name, line: m.pkg.fset.Position(n.Pos()).Line, function: m.function,
		old: short(old), new: short(new),
	}
	m.mutants = append(m.mutants, mt)
	m.place(mt, n.Pos(), n.End(), before, after)
	return mt
}

func (m *mutator) place(mt *mutant, start, end token.Pos, before, after string) {
	mt.sites = append(mt.sites, site{
		file: m.file, start: m.offset(start), end: m.offset(end), before: before, after: after,
	})
}

func (m *mutator) offset(p token.Pos) int { return m.pkg.fset.Position(p).Offset }

func (m *mutator) text(n ast.Node) string {
	return string(m.file.text[m.offset(n.Pos()):m.offset(n.End())])
}

// quoted returns text that may stand in a format.
func quoted(text string) string { return strings.ReplaceAll(text, "%", "%%") }

// stmt adds the mutants of a statement: without it, and with other values.
func (m *mutator) stmt(s ast.Stmt, parent ast.Node, stack []ast.Node) {
	switch s := s.(type) {
	case *ast.ExprStmt:
		if call, ok := s.X.(*ast.CallExpr); ok && (m.isLock(call) || m.isPanic(call)) {
			return
		}
		m.remove(s, parent)
	case *ast.DeferStmt:
		if !m.isLock(s.Call) && !m.isStop(s.Call) {
			m.remove(s, parent)
		}
	case *ast.GoStmt, *ast.SendStmt, *ast.IncDecStmt:
		m.remove(s, parent)
	case *ast.BranchStmt:
		if s.Tok == token.BREAK || s.Tok == token.CONTINUE {
			m.remove(s, parent)
		}
	case *ast.AssignStmt:
		m.assign(s, parent)
	case *ast.ReturnStmt:
		m.returns(s, stack)
	case *ast.IfStmt:
		m.condition(s.Cond)
	case *ast.ForStmt:
		if s.Cond != nil {
			m.loop(s, s.Body)
		}
	case *ast.RangeStmt:
		m.loop(s, s.Body)
	case *ast.CaseClause:
		m.cases(s, stack)
	case *ast.CommClause:
		m.comm(s)
	}
}

// remove adds a mutant without the statement.
func (m *mutator) remove(s ast.Stmt, parent ast.Node) {
	if inList(s, parent) {
		m.add(s, m.text(s), "(removed)", "if !mutOn(%d) { ", " }")
	}
}

// inList reports whether a statement may be replaced by several.
func inList(s ast.Stmt, parent ast.Node) bool {
	switch p := parent.(type) {
	case *ast.BlockStmt:
		return true
	case *ast.CaseClause:
		return true
	case *ast.CommClause:
		return p.Comm != s
	}
	return false
}

// isLock reports whether a call locks or unlocks a mutex. Without it, a test can only hang or crash by the
// mutex, which says nothing about the test.
func (m *mutator) isLock(call *ast.CallExpr) bool {
	s, ok := call.Fun.(*ast.SelectorExpr)
	if !ok {
		return false
	}
	switch s.Sel.Name {
	case "Lock", "Unlock", "RLock", "RUnlock":
		return true
	}
	return false
}

// isStop reports whether a call stops a timer or a ticker. Where that is deferred, nothing receives from it any more,
// and since Go 1.23 it is collected as well without it.
func (m *mutator) isStop(call *ast.CallExpr) bool {
	s, ok := call.Fun.(*ast.SelectorExpr)
	if !ok || s.Sel.Name != "Stop" {
		return false
	}
	switch m.pkg.info.TypeOf(s.X).String() {
	case "*time.Timer", "*time.Ticker":
		return true
	}
	return false
}

// isPanic reports whether a call panics, so that the compiler expects no return after it.
func (m *mutator) isPanic(call *ast.CallExpr) bool {
	id, ok := call.Fun.(*ast.Ident)
	return ok && id.Name == "panic"
}

// otherAssign is an operator in place of another.
var otherAssign = map[token.Token]token.Token{
	token.ADD_ASSIGN: token.SUB_ASSIGN, token.SUB_ASSIGN: token.ADD_ASSIGN,
	token.MUL_ASSIGN: token.QUO_ASSIGN, token.QUO_ASSIGN: token.MUL_ASSIGN,
	token.OR_ASSIGN: token.AND_ASSIGN, token.AND_ASSIGN: token.OR_ASSIGN,
}

func (m *mutator) assign(s *ast.AssignStmt, parent ast.Node) {
	if s.Tok == token.DEFINE {
		if len(s.Lhs) == len(s.Rhs) {
			for i, value := range s.Rhs {
				m.zero(value, m.pkg.info.TypeOf(s.Lhs[i]), m.text(s.Lhs[i])+" := ")
			}
		}
		return
	}
	if id, ok := s.Lhs[0].(*ast.Ident); ok && id.Name == "_" || !inList(s, parent) {
		return
	}

	m.remove(s, parent)
	if other, ok := otherAssign[s.Tok]; ok && !m.isString(s.Lhs[0]) {
		changed := m.text(s.Lhs[0]) + " " + other.String() + " " + m.text(s.Rhs[0])
		m.add(s, m.text(s), changed, "if mutOn(%d) { "+quoted(changed)+" } else { ", " }")
	}
}

// zero adds a mutant with the zero value of a type, or its opposite if it is a bool.
func (m *mutator) zero(e ast.Expr, t types.Type, prefix string) {
	tv := m.pkg.info.Types[e]
	if t == nil || tv.IsNil() || tv.Value != nil && m.isNumberOrBool(e) { // which have other mutants
		return
	}
	if tv.Value != nil && constant.Compare(tv.Value, token.EQL, constant.MakeString("")) {
		return
	}
	if c, ok := e.(*ast.CompositeLit); ok && len(c.Elts) == 0 || m.isZero(e) || m.isEmptySlice(e) {
		return
	}

	old := prefix + m.text(e)
	if isBool(t) {
		m.add(e, old, prefix+"!("+m.text(e)+")", "(mutOn(%d) != (", "))")
		return
	}
	m.add(e, old, prefix+"zero", "mutZero["+m.typeName(t)+"](%d, ", ")")
}

// isZero reports whether e is a variable that is always the zero value. The opposite of a bool is another.
func (m *mutator) isZero(e ast.Expr) bool {
	id, ok := e.(*ast.Ident)
	return ok && m.zeros[m.pkg.info.Uses[id]] && !isBool(m.pkg.info.TypeOf(e))
}

// alwaysZero returns the local variables that are declared without a value, and that functions only return: nothing
// can change them.
func alwaysZero(p *pkg) map[types.Object]bool {
	uses, returned := map[types.Object]int{}, map[types.Object]int{}
	for _, object := range p.info.Uses {
		uses[object]++
	}
	declared := map[types.Object]bool{}
	for _, f := range p.files {
		ast.Inspect(f.ast, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.DeclStmt:
				for _, s := range n.Decl.(*ast.GenDecl).Specs {
					if v, ok := s.(*ast.ValueSpec); ok && len(v.Values) == 0 {
						for _, name := range v.Names {
							declared[p.info.Defs[name]] = true
						}
					}
				}
			case *ast.ReturnStmt:
				for _, e := range n.Results {
					if id, ok := e.(*ast.Ident); ok {
						returned[p.info.Uses[id]]++
					}
				}
			}
			return true
		})
	}

	for object := range declared {
		if uses[object] != returned[object] {
			delete(declared, object)
		}
	}
	return declared
}

// isEmptySlice reports whether e makes a slice without elements, which is as good as none.
func (m *mutator) isEmptySlice(e ast.Expr) bool {
	call, ok := e.(*ast.CallExpr)
	return ok && len(call.Args) == 3 && m.text(call.Fun) == "make" && m.text(call.Args[1]) == "0"
}

func (m *mutator) returns(s *ast.ReturnStmt, stack []ast.Node) {
	results := m.results(stack)
	if len(s.Results) == 0 || results == nil {
		return
	}
	if len(s.Results) == results.Len() {
		for i, value := range s.Results {
			m.zero(value, results.At(i).Type(), "return ")
		}
		return
	}

	var b strings.Builder
	b.WriteString("if mutOn(%d) { ")
	var zeros []string
	for i := range results.Len() {
		fmt.Fprintf(&b, "var mut%d %s; ", i, quoted(m.typeName(results.At(i).Type())))
		zeros = append(zeros, fmt.Sprintf("mut%d", i))
	}
	b.WriteString("return " + strings.Join(zeros, ", ") + " }; ")
	m.add(s, m.text(s), "return zero values", b.String(), "")
}

// results returns the results of the innermost function of a stack.
func (m *mutator) results(stack []ast.Node) *types.Tuple {
	for i := len(stack) - 1; i >= 0; i-- {
		switch f := stack[i].(type) {
		case *ast.FuncLit:
			return m.pkg.info.TypeOf(f).(*types.Signature).Results()
		case *ast.FuncDecl:
			return m.pkg.info.Defs[f.Name].Type().(*types.Signature).Results()
		}
	}
	return nil
}

// condition adds the mutants that always and never take a branch.
func (m *mutator) condition(cond ast.Expr) {
	m.add(cond, "if "+m.text(cond), "if true", "(mutOn(%d) || (", "))")
	m.add(cond, "if "+m.text(cond), "if false", "(!mutOn(%d) && (", "))")
}

// loop adds a mutant that never runs the body of a loop.
func (m *mutator) loop(s ast.Stmt, body *ast.BlockStmt) {
	head := string(m.file.text[m.offset(s.Pos()):m.offset(body.Lbrace)])
	mt := m.add(s, head, "(no rounds)", "", "")
	mt.sites = nil
	m.place(mt, body.Lbrace+1, body.Lbrace+1, "if mutOn(%d) { break }; ", "")
}

// cases adds the mutants of a case: without one of several values, or always or never taken.
func (m *mutator) cases(c *ast.CaseClause, stack []ast.Node) {
	s, ok := stack[len(stack)-2].(*ast.SwitchStmt)
	if !ok {
		return
	}
	if s.Tag == nil {
		for _, e := range c.List {
			m.add(e, "case "+m.text(e), "case true", "(mutOn(%d) || (", "))")
			m.add(e, "case "+m.text(e), "case false", "(!mutOn(%d) && (", "))")
		}
		return
	}

	t := m.pkg.info.TypeOf(s.Tag)
	for i, e := range c.List {
		if len(c.List) > 1 {
			other := m.text(c.List[(i+1)%len(c.List)])
			m.add(e, "case "+m.text(e), "(removed)", "mutPick["+m.typeName(t)+"](%d, ", ", "+other+")")
		}
	}
}

// comm adds a mutant of a case of a select statement that is never ready.
func (m *mutator) comm(c *ast.CommClause) {
	var channel ast.Expr
	ast.Inspect(c.Comm, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.SendStmt:
			channel = n.Chan
		case *ast.UnaryExpr:
			if n.Op == token.ARROW && channel == nil {
				channel = n.X
			}
		case nil:
			return false
		}
		return channel == nil
	})
	if c.Comm == nil || channel == nil {
		return
	}
	m.add(channel, "case "+m.text(c.Comm), "(never)", "mutZero(%d, ", ")")
}
