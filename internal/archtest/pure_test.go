package archtest

import (
	"go/ast"
	"path/filepath"
	"slices"
	"strconv"
	"testing"
)

// impure are the functions of package time that read or follow a clock.
var impure = []string{"Now", "Since", "Until", "After", "AfterFunc", "NewTicker", "NewTimer", "Sleep", "Tick", "LoadLocation"}

// clockReads finds the uses of impure functions in a file, under whatever name
// it imports package time.
func clockReads(src *ast.File) []string {
	name := ""
	for _, spec := range src.Imports {
		if path, err := strconv.Unquote(spec.Path.Value); err == nil && path == "time" {
			name = "time"
			if spec.Name != nil {
				name = spec.Name.Name
			}
		}
	}
	if name == "." {
		return []string{"every function of package time"}
	}
	var found []string
	ast.Inspect(src, func(n ast.Node) bool {
		if sel, ok := n.(*ast.SelectorExpr); ok {
			x, isName := sel.X.(*ast.Ident)
			if isName && name != "" && x.Name == name && slices.Contains(impure, sel.Sel.Name) {
				found = append(found, sel.Sel.Name)
			}
		}
		return true
	})
	return found
}

// TestStateMachineReadsNoClock: time comes into it as data alone.
func TestStateMachineReadsNoClock(t *testing.T) {
	for _, p := range packages(t) {
		if p.name() != "statemachine" {
			continue
		}
		for _, name := range p.GoFiles {
			for _, fn := range clockReads(parse(t, filepath.Join(p.Dir, name), nil)) {
				t.Errorf("%s calls time.%s", name, fn)
			}
		}
	}
}

func TestClockReadsAreFound(t *testing.T) {
	for src, want := range map[string]int{
		`package p; import "time"; func f() { time.Now(); time.Unix(0, 0); g(time.Since) }`: 2,
		`package p; import clock "time"; func f() { clock.Now() }`:                          1,
		`package p; import . "time"; func f() { Now() }`:                                    1,
		`package p; func f(time timer) { time.Now() }`:                                      0,
	} {
		if got := clockReads(parse(t, "p.go", src)); len(got) != want {
			t.Errorf("%s: %v", src, got)
		}
	}
}
