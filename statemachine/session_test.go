package statemachine

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"
)

// sessionLimits are small, so that few steps reach each of them.
var sessionLimits = Limits{MaxProcs: 12, RetainNS: 50e9, MaxSessions: 3, SessionProcs: 2, SessionTTLNS: 10e9}

// told plays one command and checks that a replay and a snapshot see the same.
func (w *world) told(c Command) (Decision, error) {
	d := w.live.Decide(w.limits, w.now, c)
	restored, err := DecodeSnapshot(w.live.EncodeSnapshot())
	if err != nil {
		return d, err
	}
	if diff := cmp.Diff(d, restored.Decide(w.limits, w.now, c), cmpopts.EquateErrors()); diff != "" {
		return d, fmt.Errorf("a snapshot decides %#v differently: %s", c, diff)
	}
	for _, e := range d.Events {
		if err := w.record(e); err != nil {
			return d, err
		}
	}
	return d, errors.Join(w.checkRegistries(), w.checkTick())
}

func (w *world) must(t testing.TB, c Command) Decision {
	t.Helper()
	d, err := w.told(c)
	if err = errors.Join(err, d.Err); err != nil {
		t.Fatalf("%#v: %v", c, err)
	}
	return d
}

// spawned starts a process in a session.
func (w *world) spawned(t testing.TB, session string) string {
	t.Helper()
	h := w.newHandle()
	w.must(t, Start{h, Spec{Cmd: []string{"sh"}, Session: session, ProcID: h}})
	w.must(t, Spawned{h, Started{PID: 100 + w.handles}})
	return h
}

// kinds names the events and effects of a decision.
func (d Decision) kinds() string {
	var out []string
	for _, e := range d.Events {
		out = append(out, string(e.Event.Kind()))
	}
	for _, f := range d.Effects {
		out = append(out, strings.TrimPrefix(fmt.Sprintf("%T", f), "statemachine."))
	}
	return strings.Join(out, " ")
}

func TestSessionQuota(t *testing.T) {
	w := newWorld(sessionLimits)
	w.must(t, OpenSession{"s_a", "hash-a"})
	w.must(t, OpenSession{"s_b", "hash-b"})
	first := w.spawned(t, "s_a")
	w.spawned(t, "s_a")
	third := Start{"p9", Spec{Cmd: []string{"sh"}, Session: "s_a"}}
	if d, _ := w.told(third); !errors.Is(d.Err, ErrSessionFull) {
		t.Fatalf("a third start: %v", d.Err)
	}
	w.spawned(t, "s_b") // another session has its own
	w.must(t, Ended{Handle: first, Known: true})
	if d, _ := w.told(third); !errors.Is(d.Err, ErrSessionFull) {
		t.Fatalf("after an exit that was not delivered: %v", d.Err)
	}
	w.must(t, Deliver{first})
	w.must(t, third)
	if d, _ := w.told(Start{"p10", Spec{Session: "s_nobody"}}); !errors.Is(d.Err, ErrUnknownSession) {
		t.Errorf("a start in no session: %v", d.Err)
	}
}

func TestSessionExpires(t *testing.T) {
	w := newWorld(sessionLimits)
	w.must(t, OpenSession{"s_a", "hash-a"})
	w.spawned(t, "s_a")
	under := Start{"late", Spec{Cmd: []string{"sh"}, Session: "s_a"}}
	w.must(t, under)
	w.must(t, LeaveSession{"s_a"})
	w.pass(9e9)
	w.must(t, ResumeSession{"s_a", "hash-a"})
	w.must(t, LeaveSession{"s_a"})
	w.pass(9e9)
	if d := w.must(t, Tick{}); d.kinds() != "" {
		t.Errorf("closed too early: %s", d.kinds())
	}
	w.pass(1e9)
	if got := w.must(t, Tick{}).kinds(); got != "proc.signalled session.closed Send ForgetSession" {
		t.Errorf("closing: %s", got)
	}
	if got := w.must(t, Spawned{"late", Started{PID: 7}}).kinds(); got != "proc.started proc.signalled Send" {
		t.Errorf("a start that came too late: %s", got)
	}
	if d, _ := w.told(ResumeSession{"s_a", "hash-a"}); !errors.Is(d.Err, ErrUnknownSession) {
		t.Errorf("resuming what is closed: %v", d.Err)
	}
}

// The secret decides, not the public name.
func TestSessionNeedsItsSecret(t *testing.T) {
	w := newWorld(sessionLimits)
	w.must(t, OpenSession{"s_a", "hash-a"})
	if d, _ := w.told(ResumeSession{"s_a", "hash-b"}); !errors.Is(d.Err, ErrUnknownSession) {
		t.Errorf("another secret: %v", d.Err)
	}
}

func TestSessionRoom(t *testing.T) {
	w := newWorld(sessionLimits)
	for _, name := range []string{"s_a", "s_b", "s_c"} {
		w.must(t, OpenSession{name, name})
	}
	w.spawned(t, "s_a")
	w.must(t, LeaveSession{"s_a"})
	if d, _ := w.told(OpenSession{"s_d", "d"}); !errors.Is(d.Err, ErrRegistryFull) {
		t.Errorf("all are in use: %v", d.Err)
	}
	w.must(t, LeaveSession{"s_b"})
	if got := w.must(t, OpenSession{"s_d", "d"}).kinds(); got != "session.closed session.opened ForgetSession" {
		t.Errorf("making room: %s", got)
	}
	if w.live.Session("s_b") != nil || w.live.Session("s_a") == nil {
		t.Error("the wrong one was closed")
	}
}

// What proc/kill ended is killed, whatever it made of the signal.
func TestKilledBySession(t *testing.T) {
	for signal, killed := range map[int]bool{15: true, 9: true, 2: false} {
		w := newWorld(sessionLimits)
		w.must(t, OpenSession{"s_a", "a"})
		h := w.spawned(t, "s_a")
		w.must(t, Terminate{h, signal})
		if got := w.live.Get(h).Killed; got != killed {
			t.Errorf("signal %d: killed is %v", signal, got)
		}
	}
}

// Sessions under any commands: no quota is exceeded, only idle sessions close,
// and every prefix of the records folds to the same registry.
func TestSessionLaws(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := newWorld(sessionLimits)
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			if rapid.IntRange(0, 3).Draw(t, "time") == 0 {
				w.pass(rapid.Int64Range(0, 8e9).Draw(t, "ns"))
			}
			c := anySessionCommand(t, w)
			d, err := w.told(c)
			if err != nil {
				t.Fatalf("%#v: %v", c, err)
			}
			checkClosed(t, w, d)
		}
		again, err := fold(w.payloads)
		if err != nil || !bytes.Equal(again.EncodeSnapshot(), w.live.EncodeSnapshot()) {
			t.Fatalf("the records do not fold to the live registry: %v", err)
		}
	})
}

func anySessionCommand(t *rapid.T, w *world) Command {
	name := rapid.SampledFrom([]string{"s_a", "s_b", "s_c", "s_d"}).Draw(t, "session")
	handle := rapid.SampledFrom(append(w.in(StateRequested, StateRunning, StateClosed, StateExited, StateDrained), "nobody")).Draw(t, "handle")
	switch rapid.IntRange(0, 9).Draw(t, "command") {
	case 0:
		return OpenSession{name, name}
	case 1:
		return ResumeSession{name, name}
	case 2, 3:
		return LeaveSession{name}
	case 4:
		return Start{w.newHandle(), Spec{Cmd: []string{"sh"}, Session: name}}
	case 5:
		return Spawned{handle, Started{PID: 9}}
	case 6:
		return Ended{Handle: handle, Known: true}
	case 7:
		return StreamsEnded{Handle: handle}
	case 8:
		return Deliver{handle}
	}
	return Tick{}
}

// checkClosed: no session has more than its quota, and the processes of one
// that was closed just now were killed.
func checkClosed(t *rapid.T, w *world, d Decision) {
	used := map[string]int{}
	for _, p := range w.live.Processes() {
		if p.usesQuota() {
			used[p.Spec.Session]++
		}
	}
	for _, s := range w.live.Sessions() {
		if used[s.Name] > w.limits.SessionProcs {
			t.Fatalf("session %s has %d processes", s.Name, used[s.Name])
		}
	}
	for _, e := range d.Events {
		closed, ok := e.Event.(*SessionClosed)
		for _, p := range w.live.Processes() {
			if ok && p.Spec.Session == closed.Session && p.State.Alive() && !p.Sent.Has(sigkill) {
				t.Fatalf("%s outlives its session", p.Handle)
			}
		}
	}
}
