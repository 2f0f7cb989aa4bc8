package engine

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"supervisor/statemachine"
	"supervisor/wire"
)

func newCoalescer() *coalescer {
	v := &coalescer{}
	v.init()
	return v
}

func poll(v *coalescer, peer string) {
	v.add(wire.Caller{Op: "proc_logs", Front: "guest", Peer: peer, Began: time.Now()}, "p_1", nil)
}

// Polling at 100 Hz for ten minutes is one record within 250 ms, and one more
// a minute that counts the rest.
func TestPollingIsCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := newCoalescer()
		began := time.Now()
		var records []verbRecord
		total := 0
		for i := range 60_000 {
			poll(v, "uid=0 pid=1")
			total++
			time.Sleep(10 * time.Millisecond)
			got := v.due(time.Now())
			if len(got) > 0 && len(records) == 0 {
				if waited := time.Since(began); waited > firstWithin+20*time.Millisecond {
					t.Fatalf("the first record came after %v", waited)
				}
				if got[0].verb.Count != 1 || i == 0 {
					t.Fatalf("the first record counts %d", got[0].verb.Count)
				}
			}
			records = append(records, got...)
		}
		records = append(records, v.all()...)
		counted := 0
		for _, r := range records {
			counted += r.verb.Count
		}
		if counted != total {
			t.Errorf("%d counted of %d", counted, total)
		}
		if n := len(records); n < 11 || n > 22 {
			t.Errorf("%d records for ten minutes of polling", n)
		}
	})
}

func TestUnlikeVerbsAreApart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := newCoalescer()
		poll(v, "uid=0 pid=1")
		poll(v, "uid=0 pid=2")
		v.add(wire.Caller{Op: "proc_logs", Front: "guest", Peer: "uid=0 pid=1"}, "p_1",
			wire.Errorf(wire.CodeUnknownHandle, "unknown handle"))
		time.Sleep(firstWithin)
		if got := v.due(time.Now()); len(got) != 3 {
			t.Errorf("%d records of three unlike verbs", len(got))
		}
	})
}

func TestTalliesAreBounded(t *testing.T) {
	v := newCoalescer()
	written := 0
	for i := range 3 * maxTallies {
		poll(v, fmt.Sprintf("uid=0 pid=%d", i))
		written += len(v.due(time.Now()))
		if len(v.tallies) > maxTallies+1 {
			t.Fatalf("%d tallies", len(v.tallies))
		}
	}
	if written+len(v.all()) != 3*maxTallies {
		t.Error("verbs were lost")
	}
}

func TestEveryVerbIsRecorded(t *testing.T) {
	a := newAgent(t)
	h := a.sh("exit 0")
	a.wait(h)
	_, err := a.Signal(context.Background(), caller("proc_signal"), wire.SignalRequest{Handle: h, Signal: 15, Group: true})
	wantCode(t, err, wire.CodeNotRunning)
	a.Note(caller("nonsense"), "", wire.Errorf(wire.CodeUnknownOp, "unknown op: nonsense"))
	a.close()
	defer a.open()
	got := map[string]string{}
	for _, r := range a.records(statemachine.KindVerb) {
		v := r.Event.(*statemachine.Verb)
		got[v.Op] = v.Code
	}
	want := map[string]string{"proc_start": "", "proc_signal": "not_running", "nonsense": "unknown_op"}
	for op, code := range want {
		if c, ok := got[op]; !ok || c != code {
			t.Errorf("verb %s: recorded %v with code %q, want %q", op, ok, c, code)
		}
	}
}
