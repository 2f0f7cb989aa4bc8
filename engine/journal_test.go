package engine

import (
	"context"
	"errors"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"supervisor/journal"
	"supervisor/statemachine"
	"supervisor/wire"
)

func (a *agent) signal(handle string, signal int) wire.Ack {
	a.t.Helper()
	ack, err := a.Signal(context.Background(), caller("proc_signal"), wire.SignalRequest{Handle: handle, Signal: signal})
	if err != nil {
		a.t.Fatal(err)
	}
	return ack
}

// In every mode the journal holds all of an orderly life, is pruned behind
// snapshots, and wakes its readers.
func TestSyncModes(t *testing.T) {
	for _, mode := range []journal.SyncMode{journal.Always, journal.Batch, journal.Off} {
		t.Run(mode.String(), func(t *testing.T) {
			a := newAgent(t, func(c *Config) { c.JournalSync, c.JournalMaxBytes = mode, 32<<10 })
			h := a.sh("read x; exit 4")
			for range 600 {
				a.signal(h, 18)
			}
			if a.journal.FirstSeq() == 1 {
				t.Errorf("nothing was pruned of %d bytes", a.journal.Bytes())
			}
			a.wantWoken(func() { a.signal(h, 18) })
			if _, err := a.Stdin(context.Background(), caller("proc_stdin"), wire.StdinRequest{Handle: h, CloseStdin: true}); err != nil {
				t.Fatal(err)
			}
			a.wait(h)
			a.close()
			a.open()
			if e := a.wait(h); e.ExitCode != 4 {
				t.Errorf("after a restart it ended as %+v", e)
			}
		})
	}
}

// wantWoken has a journal_read wait at the head, acts, and expects the record
// long before the wait is over.
func (a *agent) wantWoken(act func()) {
	a.t.Helper()
	a.awaitQuiet()
	head := a.journal.Head().Seq
	got := make(chan wire.JournalReadReply, 1)
	go func() {
		reply, _ := a.JournalRead(context.Background(), wire.JournalReadRequest{AfterSeq: head, WaitMS: 60_000})
		got <- reply
	}()
	act()
	select {
	case reply := <-got:
		if len(reply.Records) == 0 {
			a.t.Error("woken for nothing")
		}
	case <-time.After(20 * time.Second):
		a.t.Error("the reader was not woken")
	}
}

// awaitQuiet waits until all that was decided is committed.
func (a *agent) awaitQuiet() {
	a.t.Helper()
	for {
		var seq uint64
		if err := a.whileIdle(func() { seq = a.registry.Seq() }); err != nil {
			a.t.Fatal(err)
		}
		if a.journal.Head().Seq == seq {
			return
		}
		time.Sleep(time.Millisecond) // of the batch's 20
	}
}

// A failed write is final: what ends processes works, exits are shown, nothing
// else is done, and the next agent checks the journal and goes on.
func TestFailedJournal(t *testing.T) {
	a := newAgent(t)
	ctx := context.Background()
	h, idle := a.sh("sleep 60"), a.sh("sleep 60")
	timed := a.start(wire.StartRequest{Cmd: []string{"sleep", "60"}, TimeoutMS: 1000})
	a.journal.File().Close() // every later write is an error
	ack, err := a.Kill(ctx, caller("proc_kill"), wire.HandleRequest{Handle: h})
	if err != nil || !ack.Unjournaled {
		t.Errorf("kill: %+v, %v", ack, err)
	}
	for handle, want := range map[string]wire.Exit{
		h:     {ExitCode: 137, Signal: 9, Reason: "killed", Unjournaled: true},
		timed: {ExitCode: 137, Signal: 9, Reason: "timeout", TimedOut: true, Unjournaled: true},
	} {
		if e := a.wait(handle); e != want {
			t.Errorf("%s: %+v, want %+v", handle, e, want)
		}
	}
	_, err = a.Start(ctx, caller("proc_start"), wire.StartRequest{Cmd: []string{"true"}})
	wantCode(t, err, wire.CodeJournalFailed)
	_, err = a.Stdin(ctx, caller("proc_stdin"), wire.StdinRequest{Handle: idle, Data: []byte("x")})
	wantCode(t, err, wire.CodeJournalFailed)
	if got := a.Info().Journal; got != "failed" {
		t.Errorf("agent_info says %q", got)
	}
	_ = a.Engine.Close(ctx, "test")
	a.open()
	if got := a.Info().Journal; got != "ok" {
		t.Errorf("after a restart agent_info says %q", got)
	}
	if e := a.wait(h); e.ExitCode == 0 || e.Unjournaled { // what is known of it depends on the kernel
		t.Errorf("after a restart: %+v", e)
	}
	if e := a.wait(a.sh("exit 3")); e.ExitCode != 3 {
		t.Errorf("%+v", e)
	}
}

// A start whose outcome cannot be recorded any more is none: the process is
// killed again, and whoever asked is told.
func TestStartThatCannotBeRecorded(t *testing.T) {
	a := newAgent(t)
	r := wire.StartRequest{Cmd: []string{"sleep", "60"}}
	c := newCall(caller("proc_start"), newHandle())
	c.spawn = func() { a.table.Start(c.handle, a.processSpec(r)) }
	if err := a.whileIdle(func() {
		a.turn([]step{{command: statemachine.Start{Handle: c.handle, Spec: a.journalSpec(r)}, call: c}})
		a.journal.File().Close() // the intent is recorded, and nothing more will be
	}); err != nil {
		t.Fatal(err)
	}
	<-c.done
	wantCode(t, c.err, wire.CodeJournalFailed)
	if e := a.wait(c.handle); e.Reason != "killed" || !e.Unjournaled {
		t.Errorf("ended as %+v", e)
	}
	_ = a.Engine.Close(context.Background(), "test")
	a.open()
}

// A process that a verb killed is said to be, however many signals could not
// be recorded before.
func TestFullDiskRemembersWhoKilled(t *testing.T) {
	change, fill := onSmallDisk(t)
	a := newAgent(t, change, func(c *Config) { c.MaxProcs = 2 })
	h, other := a.sh("sleep 60"), a.sh("sleep 60")
	free := fill()
	for !a.signal(h, 18).Unjournaled {
	}
	for range 100 {
		a.signal(h, 18)
	}
	a.signal(other, 15)
	if e := a.wait(other); e.Reason != "killed" || !e.Unjournaled {
		t.Errorf("ended as %+v", e)
	}
	free()
	a.awaitHealth("ok")
}

// What no execve could take is refused, and nothing a peer sends is too large
// for the journal.
func TestLargeRequests(t *testing.T) {
	a := newAgent(t)
	ctx := context.Background()
	long := strings.Repeat("x", 100_000)
	cmd := []string{"/bin/true"}
	for range 15 {
		cmd = append(cmd, long)
	}
	a.wait(a.start(wire.StartRequest{Cmd: cmd}))
	for range 60 {
		cmd = append(cmd, long)
	}
	_, err := a.Start(ctx, caller("proc_start"), wire.StartRequest{Cmd: cmd})
	wantCode(t, err, wire.CodeSpawnFailed)
	_, err = a.Start(ctx, caller("proc_start"), wire.StartRequest{Cmd: []string{strings.Repeat("\x01", 5<<20)}})
	wantCode(t, err, wire.CodeSpawnFailed)
	_, err = a.Kill(ctx, caller("proc_kill"), wire.HandleRequest{Handle: strings.Repeat("p", 10<<20)})
	wantCode(t, err, wire.CodeUnknownHandle)
	a.wait(a.sh("exit 0"))
	if got := a.Info().Journal; got != "ok" {
		t.Errorf("the journal is %s", got)
	}
}

// The file stays near the limit, under verbs alone and under processes with
// tails, and what is dropped of the history is behind a snapshot.
func TestJournalStaysBounded(t *testing.T) {
	const limit = 64 << 10
	a := newAgent(t, func(c *Config) { c.JournalMaxBytes, c.MaxProcs, c.TailBytes = limit, 32, 4096 })
	size := func() int64 {
		info, err := os.Stat(a.path())
		if err != nil {
			t.Fatal(err)
		}
		return info.Size()
	}
	for i := range 20_000 {
		a.observed.addStep(a.note("", &statemachine.Verb{Op: "proc_list", Front: "guest", Peer: "test", OK: true, Count: i + 1}))
		if i%100 == 0 {
			a.awaitQuiet()
		}
	}
	afterVerbs := size()
	for range 150 {
		a.wait(a.sh("head -c 10000 /dev/zero; head -c 10000 /dev/zero >&2"))
	}
	if now := size(); afterVerbs > 16*limit || now > 16*limit {
		t.Errorf("%d bytes after verbs, %d after processes, under a limit of %d", afterVerbs, now, limit)
	}
	if first := a.journal.FirstSeq(); first < 20_000 {
		t.Errorf("the oldest record is %d", first)
	}
	tails := 0
	if err := a.whileIdle(func() {
		a.snapshot()
		for _, p := range a.registry.Processes() {
			tails += len(p.Output.StdoutTail) + len(p.Output.StderrTail)
		}
	}); err != nil {
		t.Fatal(err)
	}
	if tails == 0 || tails > limit/4 {
		t.Errorf("%d bytes of tails in a snapshot", tails)
	}
	a.close()
	a.open()
}

// A year of polling is a record a minute and kind of verb, not one a poll.
func TestYearOfPolling(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var v coalescer
		v.init()
		records, polls := 0, 0
		const year, every = 365 * 24 * time.Hour, 25 * time.Second
		for began := time.Now(); time.Since(began) < year; time.Sleep(every) {
			v.add(wire.Caller{Op: "proc_list", Front: "guest", Peer: "cid:2", Began: time.Now()}, "", nil)
			v.add(wire.Caller{Op: "proc_logs", Front: "guest", Peer: "cid:2", Began: time.Now()}, "p_x", errors.New("x"))
			polls += 2
			for _, r := range v.due(time.Now()) {
				records++
				polls -= r.verb.Count
			}
		}
		for _, r := range v.all() {
			polls -= r.verb.Count
		}
		if minutes := int(year / time.Minute); records < minutes || records > 4*minutes+4 || polls != 0 {
			t.Errorf("%d records in %d minutes, %d polls are not counted", records, minutes, polls)
		}
	})
}
