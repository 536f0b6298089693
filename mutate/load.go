package main

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
	"path/filepath"
)

// A source is a file of a package, without the tests.
type source struct {
	name string // without its directory
	path string
	text []byte
	ast  *ast.File
}

// A pkg is a package whose types are known.
type pkg struct {
	dir   string
	path  string
	name  string
	fset  *token.FileSet
	files []*source
	info  *types.Info

	imports types.Importer
}

// load reads and checks the package in dir.
func load(dir string) (*pkg, error) {
	listed, exports, err := list(dir)
	if err != nil {
		return nil, err
	}

	p := &pkg{dir: dir, path: listed.ImportPath, name: listed.Name, fset: token.NewFileSet()}
	p.imports = importer.ForCompiler(p.fset, "gc", func(path string) (io.ReadCloser, error) {
		if actual, ok := listed.ImportMap[path]; ok {
			path = actual
		}
		return os.Open(exports[path])
	})
	for _, name := range listed.GoFiles {
		path := filepath.Join(dir, name)
		text, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		file, err := parser.ParseFile(p.fset, path, text, parser.SkipObjectResolution)
		if err != nil {
			return nil, err
		}
		p.files = append(p.files, &source{name: name, path: path, text: text, ast: file})
	}

	p.info = &types.Info{
		Types: map[ast.Expr]types.TypeAndValue{},
		Defs:  map[*ast.Ident]types.Object{},
		Uses:  map[*ast.Ident]types.Object{},
	}
	var files []*ast.File
	for _, f := range p.files {
		files = append(files, f.ast)
	}
	config := types.Config{Importer: p.imports}
	_, err = config.Check(p.path, p.fset, files, p.info)
	return p, err
}

// A listedPackage is what go list says about a package.
type listedPackage struct {
	ImportPath string
	Name       string
	GoFiles    []string
	ImportMap  map[string]string
	Export     string
	DepOnly    bool
	Standard   bool
}

// goCommand returns a command of go in dir. A module with a newest.mod is built with that, because some tests are
// skipped with the lowest versions.
func goCommand(dir string, args ...string) *exec.Cmd {
	cmd := exec.Command("go", args...)
	cmd.Dir = dir
	if _, err := os.Stat(filepath.Join(dir, "newest.mod")); err == nil {
		cmd.Env = append(os.Environ(), "GOFLAGS=-modfile=newest.mod")
	}
	return cmd
}

// list returns the package in dir, and the files with the exported types of all that it imports.
func list(dir string) (*listedPackage, map[string]string, error) {
	cmd := goCommand(dir, "list", "-export", "-deps", "-json=ImportPath,Name,GoFiles,ImportMap,Export,DepOnly,Standard",
		".", "os", "strconv", "syscall") // the last ones for the switch
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, nil, fmt.Errorf("go list in %s: %w", dir, err)
	}

	var found *listedPackage
	exports := map[string]string{}
	for d := json.NewDecoder(bytes.NewReader(out)); ; {
		var p listedPackage
		if err := d.Decode(&p); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return nil, nil, err
		}
		exports[p.ImportPath] = p.Export
		if !p.DepOnly && !p.Standard {
			found = &p
		}
	}
	if found == nil {
		return nil, nil, fmt.Errorf("there is no package in %s", dir)
	}
	return found, exports, nil
}
