package main

import (
	_ "embed"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"slices"
	"strings"
)

// switchText is the file that each instrumented package gets.
//
//go:embed switch.go.txt
var switchText string

// switchName is its name.
const switchName = "mutate_switch.go"

// instrument returns the files of the package with all mutants, of which the environment of a process chooses one, and
// the mutants that are well-typed, numbered. What isn't well-typed is dropped.
func instrument(p *pkg, mutants []*mutant) (map[string]string, []*mutant, error) {
	mutants = slices.Clone(mutants)
	sortByLine(mutants)
	for range 50 {
		number(mutants)
		texts := map[string]string{switchName: strings.ReplaceAll(switchText, "PACKAGE", p.name)}
		var spans []span
		for _, f := range p.files {
			text, fileSpans := insert(f, append(sitesOf(mutants, f), entries(p, f, len(mutants))...))
			texts[f.name] = text
			spans = append(spans, fileSpans...)
		}

		wrong, err := check(p, texts, spans)
		if err != nil {
			return nil, nil, err
		}
		if len(wrong) == 0 {
			uses(p, mutants)
			return texts, mutants, nil
		}
		mutants = without(mutants, wrong)
	}
	return nil, nil, errors.New("the instrumented package doesn't compile")
}

// A placed site is one of a mutant, or of none.
type placed struct {
	*site
	mutant *mutant
	id     int
}

func sitesOf(mutants []*mutant, f *source) []placed {
	var list []placed
	for _, m := range mutants {
		for i := range m.sites {
			if m.sites[i].file == f {
				list = append(list, placed{site: &m.sites[i], mutant: m, id: m.id})
			}
		}
	}
	return list
}

// entries returns a site at the beginning of each function, which notes that it was called. Their ids follow those of
// the mutants.
func entries(p *pkg, f *source, mutants int) []placed {
	var list []placed
	for id, d := range functions(p) {
		if offset := p.fset.Position(d.Body.Lbrace); offset.Filename == f.path {
			at := offset.Offset + 1
			hit := &site{file: f, start: at, end: at, before: "mutHit(%d); "}
			list = append(list, placed{site: hit, id: mutants + 1 + id})
		}
	}
	return list
}

// functions returns the declarations of functions with a body, always in the same order.
func functions(p *pkg) []*ast.FuncDecl {
	var list []*ast.FuncDecl
	for _, f := range p.files {
		for _, d := range f.ast.Decls {
			if fn, ok := d.(*ast.FuncDecl); ok && fn.Body != nil {
				list = append(list, fn)
			}
		}
	}
	return list
}

// A span is what a site covers in the instrumented text.
type span struct {
	placed
	file       string
	start, end int
}

// insert returns the text of a file with what the sites insert: the outer ones around the inner ones.
func insert(f *source, sites []placed) (string, []span) {
	slices.SortStableFunc(sites, func(a, b placed) int {
		if a.start != b.start {
			return a.start - b.start
		}
		return b.end - a.end
	})

	var b strings.Builder
	var spans, open []span
	done := 0
	closeUntil := func(offset int) {
		for len(open) > 0 && open[len(open)-1].site.end <= offset {
			s := open[len(open)-1]
			open = open[:len(open)-1]
			b.Write(f.text[done:s.site.end])
			done = s.site.end
			b.WriteString(s.after)
			s.end = b.Len()
			spans = append(spans, s)
		}
	}
	for _, s := range sites {
		closeUntil(s.start)
		b.Write(f.text[done:s.start])
		done = s.start
		start := b.Len()
		if s.before != "" {
			fmt.Fprintf(&b, s.before, s.id)
		}
		open = append(open, span{placed: s, file: f.name, start: start})
	}
	closeUntil(len(f.text))
	b.Write(f.text[done:])
	return b.String(), spans
}

// check returns the sites that aren't well-typed.
func check(p *pkg, texts map[string]string, spans []span) (map[*site]bool, error) {
	fset := token.NewFileSet()
	wrong := map[*site]bool{}
	var failed error
	report := func(file string, offset int, err error) {
		var inner *span
		for i, s := range spans {
			within := s.file == file && s.start <= offset && offset <= s.end
			if within && (inner == nil || s.end-s.start < inner.end-inner.start) {
				inner = &spans[i]
			}
		}
		if inner == nil || inner.mutant == nil {
			failed = err
			return
		}
		wrong[inner.site] = true
	}

	var files []*ast.File
	for name, text := range texts {
		file, err := parser.ParseFile(fset, name, text, parser.SkipObjectResolution)
		if err != nil {
			return nil, err
		}
		files = append(files, file)
	}
	config := types.Config{Importer: p.imports, Error: func(err error) {
		e := err.(types.Error)
		at := fset.Position(e.Pos)
		report(at.Filename, at.Offset, err)
	}}
	config.Check(p.path, fset, files, nil)
	return wrong, failed
}

// without returns the mutants without these sites, as far as any are left.
func without(mutants []*mutant, wrong map[*site]bool) []*mutant {
	var left []*mutant
	for _, m := range mutants {
		var sites []site
		for i := range m.sites {
			if !wrong[&m.sites[i]] {
				sites = append(sites, m.sites[i])
			}
		}
		if m.sites = sites; len(sites) > 0 {
			left = append(left, m)
		}
	}
	return left
}

// uses tells the mutants of variables which functions use those: the variables are made before any test runs, so
// that what a test reaches says nothing.
func uses(p *pkg, mutants []*mutant) {
	users := map[string][]int{} // ids of functions, by variable
	within := map[string][]string{}
	note := func(n ast.Node, found func(name string)) {
		ast.Inspect(n, func(n ast.Node) bool {
			if id, ok := n.(*ast.Ident); ok {
				if v, ok := p.info.Uses[id].(*types.Var); ok && v.Parent() == v.Pkg().Scope() {
					found(v.Name())
				}
			}
			return true
		})
	}

	for i, d := range functions(p) {
		note(d, func(name string) { users[name] = append(users[name], len(mutants)+1+i) })
	}
	for _, f := range p.files {
		for _, d := range f.ast.Decls {
			if g, ok := d.(*ast.GenDecl); ok && g.Tok == token.VAR {
				for _, s := range g.Specs {
					spec := s.(*ast.ValueSpec)
					note(spec, func(name string) { within[name] = append(within[name], spec.Names[0].Name) })
				}
			}
		}
	}

	for _, m := range mutants {
		m.uses = nil
		if name, ok := strings.CutPrefix(m.function, "var "); ok {
			names := []string{name}
			for i := 0; i < len(names); i++ {
				m.uses = append(m.uses, users[names[i]]...)
				for _, outer := range within[names[i]] {
					if !slices.Contains(names, outer) {
						names = append(names, outer)
					}
				}
			}
		}
	}
}
