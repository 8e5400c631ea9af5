package main

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"strconv"
	"strings"
)

// swaps maps an operator of Go to the operator that replaces it.
var swaps = map[token.Token]token.Token{
	token.EQL: token.NEQ, token.NEQ: token.EQL,
	token.LSS: token.LEQ, token.LEQ: token.LSS, token.GTR: token.GEQ, token.GEQ: token.GTR,
	token.LAND: token.LOR, token.LOR: token.LAND,
	token.ADD: token.SUB, token.SUB: token.ADD, token.MUL: token.QUO, token.QUO: token.MUL,
	token.AND: token.OR, token.OR: token.AND, token.SHL: token.SHR, token.SHR: token.SHL,
}

// goChanges returns the mutants of a Go file. It uses the syntax tree to swap operators, to make
// conditions constant, to remove statements, and to change constants and results.
func goChanges(file string) ([]change, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	fset := token.NewFileSet()
	tree, err := parser.ParseFile(fset, file, text, parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	g := &goMutator{file: file, text: string(text), fset: fset}
	for _, decl := range tree.Decls {
		if fn, ok := decl.(*ast.FuncDecl); ok && fn.Body != nil {
			ast.Inspect(fn.Body, g.visit)
		}
	}
	return g.changes, nil
}

// goMutator collects the mutants of one file.
type goMutator struct {
	file    string
	text    string
	fset    *token.FileSet
	changes []change
}

// add records a mutant that replaces the text between two positions.
func (g *goMutator) add(operator string, from, to token.Pos, instead string) {
	begin, end := g.fset.Position(from), g.fset.Position(to)
	g.changes = append(g.changes, change{
		file: g.file, from: begin.Offset, to: end.Offset,
		old: g.text[begin.Offset:end.Offset], new: instead,
		line: begin.Line, source: lineAround(g.text, begin.Offset), operator: operator,
	})
}

func (g *goMutator) visit(node ast.Node) bool {
	switch n := node.(type) {
	case *ast.BinaryExpr:
		g.binary(n)
	case *ast.UnaryExpr:
		if n.Op == token.NOT {
			g.add("drop not", n.OpPos, n.X.Pos(), "")
		}
	case *ast.IfStmt:
		g.constant(n.Cond)
	case *ast.ForStmt:
		if n.Cond != nil {
			g.add("never loop", n.Cond.Pos(), n.Cond.End(), "false")
		}
	case *ast.BlockStmt:
		g.statements(n.List)
	case *ast.CaseClause:
		g.statements(n.Body)
	case *ast.CommClause:
		g.statements(n.Body)
	case *ast.ReturnStmt:
		g.results(n)
	case *ast.BasicLit:
		g.literal(n)
	case *ast.Ident:
		g.boolean(n)
	}
	return true
}

// binary swaps an operator. For && and || it also drops each of the two operands.
func (g *goMutator) binary(n *ast.BinaryExpr) {
	if swapped, ok := swaps[n.Op]; ok {
		g.add("swap operator", n.OpPos, n.OpPos+token.Pos(len(n.Op.String())), swapped.String())
	}
	if n.Op == token.LAND || n.Op == token.LOR {
		g.add("drop operand", n.X.Pos(), n.Y.Pos(), "")
		g.add("drop operand", n.X.End(), n.Y.End(), "")
	}
}

// constant makes a condition always true, and always false. The new condition still contains the
// old one, so that its variables stay in use.
func (g *goMutator) constant(cond ast.Expr) {
	from, to := cond.Pos(), cond.End()
	text := g.text[g.fset.Position(from).Offset:g.fset.Position(to).Offset]
	g.add("always", from, to, "("+text+") || true")
	g.add("never", from, to, "("+text+") && false")
}

// statements removes each statement that the compiler does not need. It does not remove
// definitions, because the code after them would not compile.
func (g *goMutator) statements(list []ast.Stmt) {
	for _, s := range list {
		switch s := s.(type) {
		case *ast.ExprStmt, *ast.SendStmt, *ast.IncDecStmt,
			*ast.GoStmt, *ast.BranchStmt, *ast.DeferStmt:
			g.add("remove statement", s.Pos(), s.End(), "")
		case *ast.AssignStmt:
			if s.Tok != token.DEFINE {
				g.add("remove assignment", s.Pos(), s.End(), "")
			}
		}
	}
}

// results replaces a returned err by nil.
func (g *goMutator) results(n *ast.ReturnStmt) {
	if len(n.Results) == 0 {
		return
	}
	last := n.Results[len(n.Results)-1]
	if name, ok := last.(*ast.Ident); ok && name.Name == "err" {
		g.add("return nil", last.Pos(), last.End(), "nil")
	}
}

// literal increments a number.
func (g *goMutator) literal(n *ast.BasicLit) {
	if n.Kind != token.INT {
		return
	}
	if value, err := strconv.ParseInt(strings.ReplaceAll(n.Value, "_", ""), 0, 64); err == nil {
		g.add("one more", n.Pos(), n.End(), strconv.FormatInt(value+1, 10))
	}
}

func (g *goMutator) boolean(n *ast.Ident) {
	switch n.Name {
	case "true":
		g.add("swap boolean", n.Pos(), n.End(), "false")
	case "false":
		g.add("swap boolean", n.Pos(), n.End(), "true")
	}
}
