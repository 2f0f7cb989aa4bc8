package statemachine

import (
	"bytes"
	"errors"
	"slices"
	"strconv"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// TestApplyIsTotal: any record of any kind, in any order, is applied whole or
// refused and leaves no trace. Such a journal was never written by an agent.
func TestApplyIsTotal(t *testing.T) {
	kinds := slices.Concat(allKinds, []Kind{KindRequested, KindRequested, KindStarted, KindStarted, KindExited, KindCollected})
	rapid.Check(t, func(t *rapid.T) {
		r := NewRegistry()
		for range rapid.IntRange(1, 40).Draw(t, "records") {
			rec := Record{
				Seq:    r.Seq() + rapid.SampledFrom([]uint64{1, 1, 1, 1, 1, 0, 2}).Draw(t, "step"),
				Handle: rapid.SampledFrom([]string{"p1", "p1", "p2", "p3", ""}).Draw(t, "handle"),
				Event:  newEvent(rapid.SampledFrom(kinds).Draw(t, "kind")),
			}
			rec.Event.fields(drawer{t})
			if e, ok := rec.Event.(*Requested); ok {
				e.Spec.Idem = rapid.SampledFrom([]string{"", "k1", "k1"}).Draw(t, "idem")
			}
			before, seq := r.EncodeSnapshot(), r.Seq()
			err := r.Apply(&rec)
			if err != nil && !bytes.Equal(before, r.EncodeSnapshot()) {
				t.Fatalf("refused, and applied all the same: %v", err)
			}
			if err := r.checkKeys(); err != nil {
				t.Fatal(err)
			}
			if err == nil && (rec.Seq != seq+1 || r.Seq() != rec.Seq) {
				t.Fatalf("record %d after %d, now at %d", rec.Seq, seq, r.Seq())
			}
		}
	})
}

// TestKeyTakenOver: no Decide gives one key to two processes, but a journal
// might; then it is the later one's, whatever becomes of the earlier.
func TestKeyTakenOver(t *testing.T) {
	r := NewRegistry()
	for i, e := range []HandleEvent{
		{"p1", &Requested{Spec{Idem: "k"}}}, {"p2", &Requested{Spec{Idem: "k"}}},
		{"p1", &StartFailed{}}, {"p2", &Started{PID: 2}},
	} {
		if err := r.Apply(&Record{Seq: uint64(i + 1), Handle: e.Handle, Event: e.Event}); err != nil {
			t.Fatal(err)
		}
	}
	d := r.Decide(Limits{MaxProcs: 9}, Instant{}, Start{"p3", Spec{Idem: "k"}})
	if d.Same == nil || d.Same.Handle != "p2" || d.Same.PID != 2 || r.Check() != nil {
		t.Error(d, r.Check())
	}
}

// TestForgottenKeysAreBounded: the keys of collected records do not pile up,
// and the oldest go first.
func TestForgottenKeysAreBounded(t *testing.T) {
	w := newWorld(Limits{MaxProcs: 1, RetainNS: 600e9})
	key := func(i int) Spec { return Spec{Idem: strconv.Itoa(i)} }
	for i := range maxForgotten + 2 { // each start makes room of the one before
		h := w.newHandle()
		for _, c := range []Command{Start{h, key(i)}, Spawned{h, Started{PID: 1}}, Ended{Handle: h}} {
			for _, e := range w.live.Decide(w.limits, w.now, c).Events {
				if err := w.record(e); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	if err := w.checkRegistries(); err != nil {
		t.Fatal(err)
	}
	for i, want := range map[int]bool{0: false, 1: true, maxForgotten + 1: true} {
		if d := w.live.Decide(w.limits, w.now, Start{"new", key(i)}); (d.Same != nil) != want {
			t.Errorf("start %d is known: %v", i, !want)
		}
	}
}

// TestApplyRefuses: what cannot follow is named by its record, its state and
// its kind.
func TestApplyRefuses(t *testing.T) {
	w := newWorld(Limits{MaxProcs: 9})
	for _, c := range []Command{Start{Handle: "p1"}, Spawned{"p1", Started{PID: 1}}} {
		if _, err := w.command(c); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct {
		rec  Record
		says string
	}{
		{Record{Seq: 2, Event: &Verb{}}, "record 2 does not follow record 2"},
		{Record{Seq: 4, Event: &Verb{}}, "record 4 does not follow record 2"},
		{Record{Seq: 3, Handle: "p1", Event: &Started{PID: 2}}, "record 3: proc.started of p1 cannot follow in state running"},
		{Record{Seq: 3, Handle: "p1", Event: &Collected{}}, "record 3: proc.collected of p1 cannot follow in state running"},
		{Record{Seq: 3, Handle: "p2", Event: &Exited{}}, "record 3: proc.exited of p2 cannot follow in state absent"},
		{Record{Seq: 3, Event: &Requested{}}, "record 3: proc.requested of  cannot follow in state absent"},
	} {
		err := w.live.Apply(&c.rec)
		if err == nil || err.Error() != c.says {
			t.Errorf("%v, not %s", err, c.says)
		}
		var transition *TransitionError
		if c.rec.Seq == 3 && !errors.As(err, &transition) {
			t.Errorf("%v is no TransitionError", err)
		}
	}
	if err := errors.Join(w.checkRegistries(), w.checkMemory(1)); err != nil {
		t.Error("afterwards:", err)
	}
}

// TestCheckFinds: each thing that must hold is found where it does not.
func TestCheckFinds(t *testing.T) {
	for _, c := range []struct {
		says  string
		spoil func(r *Registry)
	}{
		{"filed under", func(r *Registry) { r.processes["p9"] = r.processes["running"] }},
		{"not a state", func(r *Registry) { r.processes["running"].State = StateAbsent }},
		{"not a state", func(r *Registry) { r.processes["running"].State = never }},
		{"requested at", func(r *Registry) { r.processes["running"].RequestedSeq = r.seq + 1 }},
		{"pid", func(r *Registry) { r.processes["running"].Started.PID = 0 }},
		{"exit recorded", func(r *Registry) { r.processes["running"].ExitedSeq = 1 }},
		{"exit recorded", func(r *Registry) { r.processes["exited"].ExitedSeq = 0 }},
		{"without a reason", func(r *Registry) { r.processes["exited"].Exit.Reason = "" }},
		{"beside signal", func(r *Registry) { r.processes["exited"].Exit.Signal = 9 }},
		{"deadlines holds", func(r *Registry) { r.processes["timed"].DeadlineHit = true }},
		{"undrained holds", func(r *Registry) { r.undrained.remove(r.processes["exited"]) }},
		{"drained is out of order", func(r *Registry) { r.processes["drained"].drainedSlot = 2 }},
		{"drained is out of order", func(r *Registry) { r.drained.heap[0].key = 1 << 40 }},
		{"lined up", func(r *Registry) { r.forgotten = append(r.forgotten, &Key{Name: "k"}) }},
		{"no record", func(r *Registry) { r.keys["k"] = &Key{Handle: "nobody"} }},
		{"no record", func(r *Registry) { r.keys["k"] = &Key{Handle: "running"} }},
	} {
		r := checked(t)
		c.spoil(r)
		if err := r.Check(); err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%v, not %q", err, c.says)
		}
	}
}

// checked is a registry with a process in each state, and nothing wrong.
func checked(t *testing.T) *Registry {
	w := newWorld(Limits{MaxProcs: 9})
	for _, h := range []string{"requested", "running", "timed", "exited", "drained", "drained2"} {
		timeout := map[string]int64{"timed": 500}[h]
		for _, c := range []Command{
			Start{h, Spec{TimeoutMS: timeout}}, Spawned{h, Started{PID: 1}}, Ended{Handle: h, Known: true}, StreamsEnded{Handle: h},
		}[:map[string]int{"requested": 1, "running": 2, "timed": 2, "exited": 3, "drained": 4, "drained2": 4}[h]] {
			if _, err := w.command(c); err != nil {
				t.Fatal(err)
			}
		}
	}
	return w.live
}
