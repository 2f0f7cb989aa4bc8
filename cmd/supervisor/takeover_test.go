package main

import (
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"supervisor/engine"
)

// A panic while taking over is an error, after which there is a way back.
func TestPanicWhileTakingOver(t *testing.T) {
	a := &agent{log: slog.New(slog.DiscardHandler)}
	err := a.takeOver(&engine.Inheritance{}) // it has no state
	if err == nil || !strings.Contains(err.Error(), "panic: ") {
		t.Errorf("taken over with %v", err)
	}
}

// A candidate that does not know a flag of the running agent says so in the
// preflight, as it does of a state that it cannot read.
func TestPreflightTriesTheCommandLine(t *testing.T) {
	state, err := os.ReadFile("../../engine/testdata/handoff/schema-1.state")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ args, says string }{
		{`["serve"]`, ""},
		{`["serve","--max-procs","7"]`, ""},
		{`["serve","--of-a-later-version"]`, "--of-a-later-version"},
		{`["serve","--max-procs","x"]`, "--max-procs"},
		{`[]`, "not started with serve"},
	} {
		path := filepath.Join(t.TempDir(), "state")
		changed := strings.Replace(string(state), `"args":["serve"]`, `"args":`+c.args, 1)
		if err := os.WriteFile(path, []byte(changed), 0o600); err != nil {
			t.Fatal(err)
		}
		var out strings.Builder
		err := runPreflight([]string{path}, &out)
		switch {
		case c.says == "" && (err != nil || out.String() != engine.PreflightLine+"\n"):
			t.Errorf("%s: %q, %v", c.args, out.String(), err)
		case c.says != "" && (err == nil || !strings.Contains(err.Error(), c.says) || out.Len() > 0):
			t.Errorf("%s: %q, %v", c.args, out.String(), err)
		}
	}
}

// Without an inheritance there is nothing to go back to.
func TestNothingToGoBackTo(t *testing.T) {
	cause := usagef("a bad flag")
	if err := goBack(nil, cause); !strings.Contains(err.Error(), "a bad flag") {
		t.Errorf("went back with %v", err)
	}
}
