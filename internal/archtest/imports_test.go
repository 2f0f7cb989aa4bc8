package archtest

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

// allowed lists, for every package, which of ours it may import: always
// downwards. One that is not in it may import none. The leaves have no row:
// they know nothing of each other, so that a change on the wire never alters
// a journal.
var allowed = map[string][]string{
	"engine":            {"statemachine", "journal", "procs", "wire", "upgrade"},
	"client":            {"wire"},
	"cmd/supervisor":    {"engine", "journal", "wire"},
	"cmd/supctl":        {"client", "internal/manpage"},
	"tools/replay":      {"journal", "statemachine", "client", "internal/manpage"},
	"internal/badimage": {"engine"},
	"internal/bench":    {"client", "journal"},
	"internal/e2e":      {"client", "journal", "statemachine", "wire"}, // tests of the binaries alone
}

// forTests is what every package's tests may import besides.
const forTests = "internal/testproc"

// pure is all that the state machine may import: nothing in it knows a clock's
// time, a file, a socket, a lock or chance. Of package time it may use what is
// not in impure.
var pure = []string{
	"bytes", "cmp", "encoding/base64", "encoding/binary", "encoding/hex", "encoding/json", "errors", "fmt", "io",
	"iter", "maps", "math", "math/bits", "slices", "sort", "strconv", "strings", "time", "unicode", "unicode/utf8",
	"github.com/go-json-experiment/json/jsontext",
	"github.com/vmihailenco/msgpack/v5",
}

// violations are the imports of a module that its architecture forbids.
func violations(all []pkg) []string {
	var found []string
	for _, p := range all {
		may := allowed[p.name()]
		for _, name := range ours(p.Imports) {
			if !slices.Contains(may, name) {
				found = append(found, fmt.Sprintf("%s imports %s", p.name(), name))
			}
		}
		mayTest := append(slices.Clone(may), forTests, p.name())
		for _, name := range ours(slices.Concat(p.TestImports, p.XTestImports)) {
			if !slices.Contains(mayTest, name) {
				found = append(found, fmt.Sprintf("the tests of %s import %s", p.name(), name))
			}
		}
		if p.name() != "statemachine" {
			continue
		}
		for _, path := range p.Imports {
			if !slices.Contains(pure, path) {
				found = append(found, "statemachine imports "+path)
			}
		}
	}
	return found
}

func TestImports(t *testing.T) {
	all := packages(t)
	if !slices.ContainsFunc(all, func(p pkg) bool { return p.name() == "statemachine" }) {
		t.Fatal("go list found no statemachine: nothing was looked at")
	}
	for _, v := range violations(all) {
		t.Error(v)
	}
}

// TestImportsAreChecked feeds the check a module that breaks every rule once.
func TestImportsAreChecked(t *testing.T) {
	bad := []pkg{
		{ImportPath: "supervisor/wire", Imports: []string{"net", "supervisor/procs"}},
		{ImportPath: "supervisor/journal", TestImports: []string{"supervisor/statemachine"}},
		{ImportPath: "supervisor/client", Imports: []string{"supervisor/wire", "supervisor/engine"}},
		{ImportPath: "supervisor/procs", Imports: []string{"supervisor/internal/testproc"}},
		{ImportPath: "supervisor/newcomer", XTestImports: []string{"supervisor/newcomer", "supervisor/client"}},
		{ImportPath: "supervisor/statemachine", Imports: []string{"bytes", "os", "math/rand/v2", "go.etcd.io/bbolt"}},
	}
	want := []string{
		"wire imports procs",
		"the tests of journal import statemachine",
		"client imports engine",
		"procs imports internal/testproc",
		"the tests of newcomer import client",
		"statemachine imports os",
		"statemachine imports math/rand/v2",
		"statemachine imports go.etcd.io/bbolt",
	}
	if got := violations(bad); !slices.Equal(got, want) {
		t.Errorf("found\n%s\nnot\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// TestNothingForbiddenIsAllowed: what may import is not imported by what it
// may import.
func TestNothingForbiddenIsAllowed(t *testing.T) {
	for name, may := range allowed {
		for _, below := range may {
			if slices.Contains(allowed[below], name) {
				t.Errorf("%s and %s may import each other", name, below)
			}
		}
	}
}
