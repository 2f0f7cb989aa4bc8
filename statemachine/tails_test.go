package statemachine

import (
	"fmt"
	"strings"
	"testing"
)

// A snapshot's budget for tails keeps the newest ends, and a replay forgets
// what the agent forgot.
func TestSnapshotCutsTails(t *testing.T) {
	r := NewRegistry()
	seq := uint64(0)
	apply := func(handle string, e Event) {
		t.Helper()
		seq++
		if err := r.Apply(&Record{Seq: seq, Handle: handle, Event: e}); err != nil {
			t.Fatal(err)
		}
	}
	for i := range 4 {
		handle := fmt.Sprintf("p_%d", i)
		apply(handle, &Requested{Spec: Spec{Cmd: []string{"true"}}})
		apply(handle, &Started{PID: i + 1})
		apply(handle, &Exited{Reason: ReasonExited})
		apply(handle, &Drained{StdoutLen: 10, StdoutTail: []byte(strings.Repeat("x", 10))})
	}
	apply("", &Snapshot{ThroughSeq: seq + 1, TailBudget: 25})
	var kept []string
	for _, p := range r.Processes() {
		if len(p.Output.StdoutTail) > 0 {
			kept = append(kept, p.Handle)
		}
	}
	if got := strings.Join(kept, " "); got != "p_2 p_3" {
		t.Errorf("tails of %q are kept", got)
	}
	if again, err := DecodeSnapshot(r.EncodeSnapshot()); err != nil || again.Get("p_0").Output.StdoutLen != 10 {
		t.Errorf("the lengths are lost: %v", err)
	}
	if err := r.Check(); err != nil {
		t.Error(err)
	}
}
