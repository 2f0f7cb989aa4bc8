package main

import (
	"bytes"
	"flag"
	"os"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"supervisor/journal"
)

var update = flag.Bool("update", false, "rewrite the outputs that the scripts expect")

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"replay": main})
}

func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir:           "testdata",
		UpdateScripts: *update,
		Setup: func(env *testscript.Env) error {
			env.Setenv("TZ", "UTC")
			return nil
		},
		Cmds: map[string]func(ts *testscript.TestScript, neg bool, args []string){"journal": makeJournal},
	})
}

// makeJournal is the scripts' command `journal STORY FILE`.
func makeJournal(ts *testscript.TestScript, _ bool, args []string) {
	t, path := scriptT{ts: ts}, ts.MkAbs(args[1])
	switch args[0] {
	case "busy-day":
		write(t, path, journal.Options{}, busyDay().payloads())
	case "future":
		write(t, path, journal.Options{}, future().payloads())
	case "pruned":
		writePruned(t, path)
	case "long":
		write(t, path, journal.Options{}, busySignals(20_000).payloads())
	case "empty":
		ts.Check(os.WriteFile(path, nil, 0o600))
	case "altered":
		write(t, path, journal.Options{}, busyDay().payloads())
		raw, err := os.ReadFile(path)
		ts.Check(err)
		ts.Check(os.WriteFile(path, bytes.Replace(raw, []byte("http.server"), []byte("http.zerver"), 1), 0o600))
	default:
		ts.Fatalf("no story %q", args[0])
	}
}

// scriptT lets the helpers of tests report to a script.
type scriptT struct {
	testing.TB
	ts *testscript.TestScript
}

func (t scriptT) Helper()                        {}
func (t scriptT) Fatal(args ...any)              { t.ts.Fatalf("%v", args) }
func (t scriptT) Fatalf(format string, a ...any) { t.ts.Fatalf(format, a...) }

// invoke runs a command line in this process.
func invoke(args ...string) (stdout, stderr string, code int) {
	var out, err bytes.Buffer
	code = run(args, &out, &err)
	return out.String(), err.String(), code
}
