package modules

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// elsewhere are functions that call their argument on another goroutine, where require, which ends its goroutine,
// doesn't end the test: a guard takes it for a tool that has ended its goroutine.
var elsewhere = map[string]bool{
	"go": true, "Go": true, "Do": true, "Run": true, "All": true, "Wrap": true, "WithTimeout": true, "NewConnector": true,
	"NewSession": true, "AfterFunc": true, "judge": true,
}

// A test that can't fail is a defect. This finds two kinds of them in all modules.
func TestAssertionsCanFail(t *testing.T) {
	root, err := Root()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("git", "ls-files", "--cached", "--others", "--exclude-standard", "--", "*_test.go")
	cmd.Dir = root
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}

	names := strings.Fields(string(out))
	if len(names) == 0 {
		t.Fatal("there are no tests")
	}
	for _, name := range names {
		path := filepath.Join(root, name)
		text, err := os.ReadFile(path)
		if err != nil {
			continue // it was removed
		}
		for _, wrong := range checkAssertions(t, name, text) {
			t.Error(wrong)
		}
	}
}

func TestAssertionsThatCannotFailAreFound(t *testing.T) {
	const text = `package p
func TestX(t *testing.T) {
	go func() { require.True(t, x) }()
	wg.Go(func() { t.Fatal("x") })
	resilience.Do(ctx, g, "x", func(context.Context) (int, error) { require.NoError(t, err); return 0, nil })
	assert.Equal(t, got, got)
	go func() { assert.True(t, x) }()
	t.Run("x", func(t *testing.T) { require.Equal(t, want, got) })
}`
	if found := checkAssertions(t, "x_test.go", []byte(text)); len(found) != 4 {
		t.Errorf("found %q", found)
	}
}

func checkAssertions(t *testing.T, name string, text []byte) (wrong []string) {
	t.Helper()
	files := token.NewFileSet()
	file, err := parser.ParseFile(files, name, text, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	source := func(n ast.Node) string {
		return string(text[files.Position(n.Pos()).Offset:files.Position(n.End()).Offset])
	}

	ast.PreorderStack(file, nil, func(n ast.Node, stack []ast.Node) bool {
		call, ok := n.(*ast.CallExpr)
		if !ok {
			return true
		}
		called := source(call.Fun)
		at := files.Position(n.Pos()).String() + ": "
		if strings.HasPrefix(called, "require.") || called == "t.Fatal" || called == "t.Fatalf" || called == "t.FailNow" {
			if caller := callerOf(stack); elsewhere[caller] {
				wrong = append(wrong, at+called+" in a function that "+caller+" calls on another goroutine")
			}
		}
		isAssertion := strings.HasPrefix(called, "require.") || strings.HasPrefix(called, "assert.")
		if isAssertion && len(call.Args) > 2 && source(call.Args[1]) == source(call.Args[2]) {
			wrong = append(wrong, at+called+" compares a value with itself")
		}
		return true
	})
	return wrong
}

// callerOf returns the name of the function that is given the innermost function of a stack, or "go".
func callerOf(stack []ast.Node) string {
	for i := len(stack) - 1; i > 0; i-- {
		lit, ok := stack[i].(*ast.FuncLit)
		if !ok {
			continue
		}
		call, ok := stack[i-1].(*ast.CallExpr)
		if !ok {
			return ""
		}
		if call.Fun == lit {
			if _, ok := stack[i-2].(*ast.GoStmt); ok {
				return "go"
			}
			continue // it is called where it stands
		}
		switch f := call.Fun.(type) {
		case *ast.Ident:
			return f.Name
		case *ast.SelectorExpr:
			if x, ok := f.X.(*ast.Ident); ok && x.Name == "t" {
				return "" // t.Run
			}
			return f.Sel.Name
		}
		return ""
	}
	return ""
}
