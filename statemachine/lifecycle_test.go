package statemachine

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// allKinds is every kind that event.go declares, in its order.
var allKinds = declaredKinds()

func declaredKinds() []Kind {
	file, err := parser.ParseFile(token.NewFileSet(), "event.go", nil, 0)
	if err != nil {
		panic(err)
	}
	var kinds []Kind
	ast.Inspect(file, func(n ast.Node) bool {
		spec, ok := n.(*ast.ValueSpec)
		if ok && fmt.Sprint(spec.Type) == "Kind" {
			name, err := strconv.Unquote(spec.Values[0].(*ast.BasicLit).Value)
			if err != nil {
				panic(err)
			}
			kinds = append(kinds, Kind(name))
		}
		return true
	})
	return kinds
}

var liveStates = []State{StateAbsent, StateRequested, StateRunning, StateClosed, StateExited, StateDrained}

// TestKinds: each kind has an event that says it is of that kind.
func TestKinds(t *testing.T) {
	if len(allKinds) < 18 {
		t.Fatalf("only %d kinds were found in event.go", len(allKinds))
	}
	for _, k := range allKinds {
		if e := newEvent(k); e == nil || e.Kind() != k {
			t.Errorf("the event of kind %s is %v", k, e)
		}
	}
}

// TestLifecycleIsWhole: every event about a process has a row, no other has
// one, and no cell was left out.
func TestLifecycleIsWhole(t *testing.T) {
	for _, k := range allKinds {
		r, listed := lifecycle[k]
		if want := strings.HasPrefix(string(k), "proc."); listed != want {
			t.Errorf("%s has a row: %v", k, listed)
			continue
		}
		cells := reflect.ValueOf(r)
		for i := range cells.NumField() {
			if listed && State(cells.Field(i).Int()) == unset {
				t.Errorf("%s: no cell for %s", k, cells.Type().Field(i).Name)
			}
		}
	}
}

// TestLifecycleIsTheDiagram: the arrows of the package's diagram are exactly
// the events that change a state.
func TestLifecycleIsTheDiagram(t *testing.T) {
	want := []string{
		"absent -proc.requested-> requested",
		"requested -proc.started-> running",
		"requested -proc.start_failed-> absent",
		"running -proc.exited-> exited",
		"running -proc.lost-> exited",
		"running -proc.drained-> closed",
		"closed -proc.exited-> drained",
		"closed -proc.lost-> drained",
		"exited -proc.drained-> drained",
		"exited -proc.collected-> absent",
		"drained -proc.collected-> absent",
	}
	var got []string
	for _, from := range liveStates {
		for _, k := range allKinds {
			if to := next(from, k); to != never && to != from {
				got = append(got, fmt.Sprintf("%s -%s-> %s", from, k, to))
			}
		}
	}
	slices.Sort(want)
	slices.Sort(got)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// TestDiagramNamesAll: the diagram in the package's documentation knows every
// state and every kind that changes one.
func TestDiagramNamesAll(t *testing.T) {
	doc, err := os.ReadFile("doc.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, from := range liveStates {
		if !strings.Contains(string(doc), from.String()) {
			t.Errorf("no state %s", from)
		}
		for k := range lifecycle {
			if to := next(from, k); to != never && to != from && !strings.Contains(string(doc), string(k)) {
				t.Errorf("no event %s", k)
			}
		}
	}
}

// TestNoLifeOutside: nothing follows in what is no state of a process, and an
// event about none is no step of its life.
func TestNoLifeOutside(t *testing.T) {
	for _, k := range allKinds {
		for _, s := range []State{unset, never, StateDrained + 1} {
			if next(s, k) != never {
				t.Errorf("%s follows in state %d", k, s)
			}
		}
	}
	for _, s := range liveStates {
		if next(s, KindVerb) != never || next(s, "proc.teleported") != never {
			t.Errorf("in state %s", s)
		}
	}
}
