package archtest

import (
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// goroutine is a place where one is started.
type goroutine struct {
	file string // from the module's folder
	fn   string // function or method, without its receiver
}

// started finds where a file starts goroutines: `go` statements, and calls of
// a method Go, which is what the groups of sync and errgroup call it.
func started(name string, src *ast.File) map[goroutine]bool {
	found := map[goroutine]bool{}
	for _, decl := range src.Decls {
		fn := "" // of a package's variables
		if f, ok := decl.(*ast.FuncDecl); ok {
			fn = f.Name.Name
		}
		ast.Inspect(decl, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.GoStmt:
				found[goroutine{name, fn}] = true
			case *ast.CallExpr:
				if sel, ok := n.Fun.(*ast.SelectorExpr); ok && sel.Sel.Name == "Go" {
					found[goroutine{name, fn}] = true
				}
			}
			return true
		})
	}
	return found
}

// listed reads the table under "## Goroutines": its first column is a file and
// the functions in it that start goroutines.
func listed(doc string) map[goroutine]bool {
	found := map[goroutine]bool{}
	_, section, _ := strings.Cut(doc, "\n## Goroutines\n")
	section, _, _ = strings.Cut(section, "\n## ")
	for line := range strings.Lines(section) {
		cells := strings.Split(line, "|")
		if len(cells) < 2 {
			continue
		}
		file, fns, ok := strings.Cut(strings.Trim(cells[1], " `"), " ")
		if !ok || !strings.HasSuffix(file, ".go") {
			continue
		}
		for fn := range strings.SplitSeq(fns, ",") {
			found[goroutine{file, strings.TrimSpace(fn)}] = true
		}
	}
	return found
}

// missing is what is in a and not in b, sorted.
func missing(a, b map[goroutine]bool) []goroutine {
	only := maps.Clone(a)
	maps.DeleteFunc(only, func(g goroutine, _ bool) bool { return b[g] })
	return slices.SortedFunc(maps.Keys(only), func(x, y goroutine) int {
		return strings.Compare(x.file+" "+x.fn, y.file+" "+y.fn)
	})
}

// TestGoroutinesAreListed: who reads ARCHITECTURE.md knows every goroutine,
// and no row there is of one that is gone.
func TestGoroutinesAreListed(t *testing.T) {
	doc, err := os.ReadFile(filepath.Join(root(t), "ARCHITECTURE.md"))
	if os.IsNotExist(err) {
		t.Skip("there is no ARCHITECTURE.md yet")
	}
	if err != nil {
		t.Fatal(err)
	}
	code := map[goroutine]bool{}
	for _, p := range packages(t) {
		for _, name := range p.GoFiles {
			maps.Copy(code, started(filepath.Join(p.name(), name), parse(t, filepath.Join(p.Dir, name), nil)))
		}
	}
	for _, g := range missing(code, listed(string(doc))) {
		t.Errorf("ARCHITECTURE.md does not list %s %s, which starts a goroutine", g.file, g.fn)
	}
	for _, g := range missing(listed(string(doc)), code) {
		t.Errorf("ARCHITECTURE.md lists %s %s, which starts no goroutine", g.file, g.fn)
	}
}

func parse(t *testing.T, name string, src any) *ast.File {
	f, err := parser.ParseFile(token.NewFileSet(), name, src, 0)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// TestGoroutinesAreFound feeds the finder and the reader of the table.
func TestGoroutinesAreFound(t *testing.T) {
	code := started("a/b.go", parse(t, "b.go", `package a
		var background = func() bool { go println(); return true }()
		func plain() { println("go") }
		func (s *server) Serve() { if s != nil { go func() {}() } }
		func grouped() { g.Go(func() error { return nil }) }`))
	want := map[goroutine]bool{{"a/b.go", ""}: true, {"a/b.go", "Serve"}: true, {"a/b.go", "grouped"}: true}
	if !maps.Equal(code, want) {
		t.Errorf("found %v", code)
	}
	doc := "# A\n\n## Goroutines\n\n| where | what |\n|---|---|\n| a/b.go Serve, other | x |\n| `a/c.go run` | y |\n| a/d.go | z |\n\n## More\n| a/e.go no | x |\n"
	want = map[goroutine]bool{{"a/b.go", "Serve"}: true, {"a/b.go", "other"}: true, {"a/c.go", "run"}: true}
	if got := listed(doc); !maps.Equal(got, want) {
		t.Errorf("read %v", got)
	}
	if got := missing(code, listed(doc)); !slices.Equal(got, []goroutine{{"a/b.go", ""}, {"a/b.go", "grouped"}}) {
		t.Errorf("missing %v", got)
	}
}
