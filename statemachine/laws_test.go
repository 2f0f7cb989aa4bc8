package statemachine

import (
	"testing"

	"pgregory.net/rapid"
)

// TestLaws drives a registry at random, with commands that make sense and with
// some that do not, and checks the laws after each; then the law of snapshots.
func TestLaws(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := newWorld(Limits{
			MaxProcs: rapid.IntRange(1, 6).Draw(t, "max procs"),
			RetainNS: rapid.Int64Range(0, 20e9).Draw(t, "retention"),
		})
		d := driver{t, w}
		t.Repeat(map[string]func(*rapid.T){
			"start":       d.start,
			"grow up":     d.growUp,
			"observe":     d.observe,
			"ask":         d.ask,
			"note":        d.note,
			"time":        d.time,
			"reboot":      d.reboot,
			"other limit": d.otherLimit,
		})
		checkSnapshots(t, w)
	})
}

// checkSnapshots: a snapshot at any point and the records after it are all.
func checkSnapshots(t *rapid.T, w *world) {
	cut := rapid.IntRange(0, len(w.payloads)).Draw(t, "cut")
	prefix, err := fold(w.payloads[:cut])
	if err != nil {
		t.Fatal(err)
	}
	r, err := DecodeSnapshot(prefix.EncodeSnapshot())
	if err != nil {
		t.Fatal(err)
	}
	if err := foldMore(r, w.payloads[cut:]); err != nil {
		t.Fatal(err)
	}
	if err := differ(r, w.live); err != nil {
		t.Fatal("snapshot and rest are not all:", err)
	}
}

// driver draws commands for a world.
type driver struct {
	t *rapid.T
	w *world
}

func (d driver) play(c Command) {
	if _, err := d.w.command(c); err != nil {
		d.t.Fatal(err)
	}
}

// handle draws one of those in the states, or skips the action.
func (d driver) handle(t *rapid.T, states ...State) string {
	known := d.w.in(states...)
	if len(known) == 0 {
		t.Skip("none in that state")
	}
	return rapid.SampledFrom(known).Draw(t, "handle")
}

// anyHandle draws a known handle, a forgotten or a foreign one.
func (d driver) anyHandle(t *rapid.T) string {
	all := d.w.in(StateRequested, StateRunning, StateClosed, StateExited, StateDrained)
	all = append(append(all, d.w.forgotten()...), "stranger", "")
	return rapid.SampledFrom(all).Draw(t, "handle")
}

func (d driver) start(t *rapid.T) {
	handle := d.w.newHandle()
	if rapid.IntRange(0, 9).Draw(t, "in use") == 0 {
		handle = rapid.SampledFrom(append(d.w.in(StateRequested, StateRunning, StateDrained), "")).Draw(t, "handle")
	}
	d.play(Start{handle, drawSpec(t)})
}

func drawSpec(t *rapid.T) Spec {
	return Spec{
		Cmd:       rapid.SliceOfN(rapid.String(), 0, 3).Draw(t, "cmd"),
		PTY:       rapid.Bool().Draw(t, "pty"),
		StdinNull: rapid.Bool().Draw(t, "stdin null"),
		TimeoutMS: rapid.SampledFrom([]int64{0, 0, 1, 500, 500, 20_000, -1, 1 << 62, 1<<63 - 1}).Draw(t, "timeout"),
		Idem:      rapid.SampledFrom([]string{"", "", "", "k1", "k2"}).Draw(t, "idem"),
		IdemArgs:  rapid.SampledFrom([]string{"a", "a", "b"}).Draw(t, "args"),
	}
}

// growUp takes a process a step further in its life.
func (d driver) growUp(t *rapid.T) {
	h := d.handle(t, StateRequested, StateRunning, StateClosed, StateExited)
	switch d.w.live.Get(h).State {
	case StateRequested:
		d.play(Spawned{h, Started{PID: rapid.IntRange(1, 1<<22).Draw(t, "pid"), StartTicks: 7}})
	case StateClosed:
		d.play(drawEnded(t, h))
	case StateExited:
		d.play(drawStreams(t, h))
	default:
		d.play(rapid.SampledFrom([]Command{drawEnded(t, h), drawStreams(t, h)}).Draw(t, "what ended"))
	}
}

func drawEnded(t *rapid.T, handle string) Ended {
	return Ended{
		Handle: handle,
		Known:  rapid.Bool().Draw(t, "known"),
		Code:   rapid.IntRange(-1, 255).Draw(t, "code"),
		Signal: rapid.SampledFrom([]int{0, 0, 9, 9, 15, 11, 64}).Draw(t, "signal"),
		OOM:    rapid.Bool().Draw(t, "oom"),
	}
}

func drawStreams(t *rapid.T, handle string) StreamsEnded {
	tail := rapid.SliceOfN(rapid.Byte(), 0, 20).Draw(t, "tail")
	return StreamsEnded{handle, Drained{StdoutLen: int64(len(tail)), StdoutTail: tail}}
}

// observe tells of anything, whether or not it can have happened.
func (d driver) observe(t *rapid.T) {
	h := d.anyHandle(t)
	d.play(rapid.SampledFrom([]Command{
		Spawned{h, Started{PID: 1}},
		SpawnFailed{h, "no such file"},
		Written{h, rapid.Int64Range(-1, 1<<40).Draw(t, "bytes"), rapid.Bool().Draw(t, "closed")},
		Sized{h, rapid.Int().Draw(t, "cols"), 25},
		drawEnded(t, h),
		drawStreams(t, h),
		Found{h, Orphaned{Stdout: rapid.Bool().Draw(t, "regained")}},
		Missing{h},
	}).Draw(t, "observation"))
}

// ask asks for anything, sensible or not.
func (d driver) ask(t *rapid.T) {
	h := d.anyHandle(t)
	d.play(rapid.SampledFrom([]Command{
		Signal{h, rapid.SampledFrom([]int{1, 9, 9, 15, 64, 0, -1, 65, 1 << 62}).Draw(t, "signal"), rapid.Bool().Draw(t, "group")},
		Kill{h, rapid.Bool().Draw(t, "leftovers")},
		Write{h},
		Resize{h, rapid.Int().Draw(t, "cols"), 25},
	}).Draw(t, "request"))
}

// note records what is about no process, under any handle.
func (d driver) note(t *rapid.T) {
	d.play(Note{d.anyHandle(t), rapid.SampledFrom([]Event{
		&AgentStarted{Version: "1"},
		&AgentStopped{Reason: "SIGTERM"},
		&Verb{Op: "proc_list", OK: true, Count: 3},
		&Snapshot{ThroughSeq: d.w.live.Seq()},
		&Pruned{ThroughSeq: d.w.live.Seq()},
		&Unknown{Name: "moon.phase", Data: []byte{0x80}},
	}).Draw(t, "event")})
}

func (d driver) time(t *rapid.T) {
	d.w.pass(rapid.Int64Range(0, 10e9).Draw(t, "ns"))
	d.play(Tick{})
}

// reboot ends every process unseen, as the agent's next start finds it.
func (d driver) reboot(t *rapid.T) {
	d.w.now.Boot[0]++
	d.w.now.Wall += 30e9
	d.w.now.Mono = 5e9
	for _, h := range d.w.in(StateRequested, StateRunning, StateClosed) {
		d.play(Missing{h})
	}
}

// otherLimit restarts the agent with another --max-procs.
func (d driver) otherLimit(t *rapid.T) {
	d.w.limits.MaxProcs = rapid.IntRange(0, 6).Draw(t, "max procs")
}
