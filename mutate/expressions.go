package main

import (
	"go/ast"
	"go/constant"
	"go/token"
	"go/types"
	"strconv"
)

// otherOperator is an operator in place of another: the boundary of a comparison, or its opposite.
var otherOperator = map[token.Token]token.Token{
	token.LSS: token.LEQ, token.LEQ: token.LSS, token.GTR: token.GEQ, token.GEQ: token.GTR,
	token.EQL: token.NEQ, token.NEQ: token.EQL,
	token.ADD: token.SUB, token.SUB: token.ADD, token.MUL: token.QUO, token.QUO: token.MUL, token.REM: token.MUL,
	token.AND: token.OR, token.OR: token.AND, token.SHL: token.SHR, token.SHR: token.SHL,
}

// expr adds the mutants of an expression. It reports whether the expressions in it may have mutants, too.
func (m *mutator) expr(e ast.Expr, parent ast.Node) bool {
	if tv := m.pkg.info.Types[e]; tv.Value != nil {
		m.constant(e, tv, parent)
		return false
	} else if tv.IsType() {
		return false
	}

	switch e := e.(type) {
	case *ast.BinaryExpr:
		m.binary(e, parent)
	case *ast.UnaryExpr:
		switch e.Op {
		case token.NOT:
			if _, ok := parent.(*ast.IfStmt); !ok { // which has mutants of its own
				m.add(e, m.text(e), m.text(e.X), "(mutOn(%d) != (", "))")
			}
		case token.SUB:
			m.add(e, m.text(e), m.text(e.X), "mutPick["+m.typeName(m.pkg.info.TypeOf(e))+"](%d, ", ", "+m.text(e.X)+")")
		}
	case *ast.CompositeLit:
		m.composite(e)
	case *ast.FuncLit:
		return true
	}
	return true
}

func (m *mutator) binary(e *ast.BinaryExpr, parent ast.Node) {
	switch e.Op {
	case token.LAND, token.LOR:
		m.change(e, m.text(e.X))
		m.change(e, m.text(e.Y))
		return
	case token.EQL, token.NEQ:
		if _, ok := parent.(*ast.IfStmt); ok { // always and never say more
			return
		}
	}

	other, ok := otherOperator[e.Op]
	if !ok || m.isString(e) {
		return
	}
	changed := m.text(e.X) + " " + other.String() + " " + m.text(e.Y)
	if isBool(m.pkg.info.TypeOf(e)) {
		m.change(e, changed)
		return
	}
	m.add(e, m.text(e), changed,
		"func() "+m.typeName(m.pkg.info.TypeOf(e))+" { if mutOn(%d) { return "+quoted(changed)+" }; return ", " }()")
}

// change adds a mutant of a boolean expression.
func (m *mutator) change(e ast.Expr, changed string) {
	m.add(e, m.text(e), changed, "(mutOn(%[1]d) && ("+quoted(changed)+") || !mutOn(%[1]d) && (", "))")
}

// composite adds the mutants of a literal: without a field, an element or a key.
func (m *mutator) composite(c *ast.CompositeLit) {
	switch t := m.pkg.info.TypeOf(c).Underlying().(type) {
	case *types.Struct:
		for _, elt := range c.Elts {
			if kv, ok := elt.(*ast.KeyValueExpr); ok {
				m.zero(kv.Value, fieldType(t, kv.Key), m.text(kv.Key)+": ")
			}
		}
	case *types.Slice:
		for i, elt := range c.Elts {
			if _, ok := elt.(*ast.KeyValueExpr); ok {
				return
			}
			m.element(c, elt, "mutWithout(%d, "+strconv.Itoa(i)+", ")
		}
	case *types.Map:
		for _, elt := range c.Elts {
			m.element(c, elt, "mutWithoutKey(%d, "+quoted(m.text(elt.(*ast.KeyValueExpr).Key))+", ")
		}
	}
}

func (m *mutator) element(c *ast.CompositeLit, elt ast.Expr, before string) {
	mt := m.add(elt, m.text(elt), "(removed)", "", "")
	mt.sites = nil
	m.place(mt, c.Pos(), c.End(), before, ")")
}

func fieldType(s *types.Struct, key ast.Expr) types.Type {
	id, ok := key.(*ast.Ident)
	if !ok {
		return nil
	}
	for f := range s.Fields() {
		if f.Name() == id.Name {
			return f.Type()
		}
	}
	return nil
}

// constant adds the mutants of the greatest constant expression around a literal: true for false, and each
// number one more and one less.
func (m *mutator) constant(e ast.Expr, tv types.TypeAndValue, parent ast.Node) {
	switch p := parent.(type) {
	case *ast.ArrayType, *ast.CaseClause, *ast.ImportSpec, *ast.Field:
		return
	case *ast.KeyValueExpr:
		if p.Key == e {
			return
		}
	case *ast.CallExpr:
		if m.text(p.Fun) == "make" && e == p.Args[len(p.Args)-1] && m.isSlice(p) { // room, which is only a hint
			return
		}
	}
	before := "mutPick[" + m.typeName(tv.Type) + "](%d, "
	if tv.Value.Kind() == constant.Bool {
		m.add(e, m.within(parent, e, m.text(e)), m.within(parent, e, "!"+m.text(e)), "(mutOn(%d) != (", "))")
		return
	}

	if id, ok := e.(*ast.Ident); ok {
		for _, mt := range m.constants[m.pkg.info.Uses[id]] {
			m.place(mt, e.Pos(), e.End(), before, ", "+mt.new+")")
		}
		return
	}
	if isComparison(parent) && m.text(e) == "0" { // whose boundary is a mutant
		return
	}
	if _, ok := e.(*ast.BasicLit); ok && tv.Type.String() == "time.Duration" && !isProduct(parent) { // nanoseconds
		return
	}
	for lit, value := range numbers(e) {
		changed := m.replaced(e, lit, value)
		old, new := m.within(parent, e, m.text(e)), m.within(parent, e, changed)
		m.add(lit, old, new, "", "").sites = nil
		m.place(m.mutants[len(m.mutants)-1], e.Pos(), e.End(), before, ", "+changed+")")
	}
}

func isProduct(n ast.Node) bool {
	e, ok := n.(*ast.BinaryExpr)
	return ok && (e.Op == token.MUL || e.Op == token.QUO)
}

func isComparison(n ast.Node) bool {
	e, ok := n.(*ast.BinaryExpr)
	if !ok {
		return false
	}
	switch e.Op {
	case token.EQL, token.NEQ, token.LSS, token.LEQ, token.GTR, token.GEQ:
		return true
	}
	return false
}

// declareConstants adds the mutants of the file's constants. They are at the places that use them, because what is
// declared can't be switched.
func (m *mutator) declareConstants() {
	for _, d := range m.file.ast.Decls {
		decl, ok := d.(*ast.GenDecl)
		if !ok || decl.Tok != token.CONST {
			continue
		}
		for _, s := range decl.Specs {
			spec := s.(*ast.ValueSpec)
			for i, value := range spec.Values {
				object := m.pkg.info.Defs[spec.Names[i]]
				m.function = "const " + spec.Names[i].Name
				for lit, changed := range numbers(value) {
					mt := m.add(value, m.text(value), m.replaced(value, lit, changed), "", "")
					mt.sites = nil
					m.constants[object] = append(m.constants[object], mt)
				}
			}
		}
	}
}

// numbers yields each number in a constant expression, with one more and one less. Names of enumerations and
// text have none.
func numbers(e ast.Expr) func(yield func(*ast.BasicLit, string) bool) {
	return func(yield func(*ast.BasicLit, string) bool) {
		done := false
		ast.Inspect(e, func(n ast.Node) bool {
			lit, ok := n.(*ast.BasicLit)
			if done || !ok || lit.Kind != token.INT && lit.Kind != token.FLOAT {
				return !done
			}
			value := constant.MakeFromLiteral(lit.Value, lit.Kind, 0)
			one := constant.MakeInt64(1)
			done = !yield(lit, constant.BinaryOp(value, token.ADD, one).ExactString())
			if !done && constant.Sign(value) > 0 {
				done = !yield(lit, constant.BinaryOp(value, token.SUB, one).ExactString())
			}
			return false
		})
	}
}

// replaced returns the text of e with another literal.
func (m *mutator) replaced(e ast.Expr, lit *ast.BasicLit, changed string) string {
	start, end := m.offset(lit.Pos())-m.offset(e.Pos()), m.offset(lit.End())-m.offset(e.Pos())
	text := m.text(e)
	return text[:start] + changed + text[end:]
}

// within returns the text of the expression around e, if there is one, with changed in place of e.
func (m *mutator) within(parent ast.Node, e ast.Expr, changed string) string {
	switch parent.(type) {
	case *ast.BinaryExpr, *ast.CallExpr, *ast.KeyValueExpr, *ast.AssignStmt, *ast.ReturnStmt,
		*ast.SliceExpr, *ast.IndexExpr:
		text := m.text(parent)
		start, end := m.offset(e.Pos())-m.offset(parent.Pos()), m.offset(e.End())-m.offset(parent.Pos())
		return text[:start] + changed + text[end:]
	}
	return changed
}

func (m *mutator) isNumberOrBool(e ast.Expr) bool {
	b, ok := m.pkg.info.TypeOf(e).Underlying().(*types.Basic)
	return ok && b.Info()&(types.IsNumeric|types.IsBoolean) != 0
}

// isSlice reports whether make makes a slice with room for more than it holds.
func (m *mutator) isSlice(call *ast.CallExpr) bool {
	_, ok := m.pkg.info.TypeOf(call).Underlying().(*types.Slice)
	return ok && len(call.Args) == 3
}

func (m *mutator) isString(e ast.Expr) bool {
	b, ok := m.pkg.info.TypeOf(e).Underlying().(*types.Basic)
	return ok && b.Info()&types.IsString != 0
}

func isBool(t types.Type) bool {
	b, ok := t.Underlying().(*types.Basic)
	return ok && b.Info()&types.IsBoolean != 0
}

// typeName returns a type as the file names it.
func (m *mutator) typeName(t types.Type) string {
	return types.TypeString(types.Default(t), func(p *types.Package) string {
		if p.Path() == m.pkg.path {
			return ""
		}
		for _, spec := range m.file.ast.Imports {
			path, _ := strconv.Unquote(spec.Path.Value)
			if path == p.Path() && spec.Name != nil {
				return spec.Name.Name
			}
		}
		return p.Name()
	})
}

func functionName(d *ast.FuncDecl) string {
	if d.Recv == nil {
		return d.Name.Name
	}
	t := d.Recv.List[0].Type
	star, pointer := t.(*ast.StarExpr)
	if pointer {
		t = star.X
	}
	switch generic := t.(type) {
	case *ast.IndexExpr:
		t = generic.X
	case *ast.IndexListExpr:
		t = generic.X
	}
	name := t.(*ast.Ident).Name
	if pointer {
		name = "*" + name
	}
	return "(" + name + ")." + d.Name.Name
}
