package engine

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"supervisor/journal"
	"supervisor/statemachine"
	"supervisor/wire"
)

// agent is an engine under test, with a state directory that outlives it.
type agent struct {
	*Engine
	t   testing.TB
	cfg Config
}

// newAgent opens an engine and checks at the end of the test that its journal
// verifies, that the journal derives the very registry that it served, and
// that no descriptor and no process is left.
func newAgent(t testing.TB, change ...func(*Config)) *agent {
	t.Helper()
	dir := t.TempDir()
	a := &agent{t: t, cfg: Config{
		StateDir: filepath.Join(dir, "state"), RuntimeDir: filepath.Join(dir, "run"),
		MaxProcs: 64, Retain: 10 * time.Minute, RingBytes: 256 << 10, TailBytes: 8192,
		JournalMaxBytes: 64 << 20, Version: "test", ImageSHA256: strings.Repeat("0", 64),
		Log: slog.New(slog.NewTextHandler(t.Output(), nil)),
	}}
	for _, c := range change {
		c(&a.cfg)
	}
	before := descriptors(t)
	a.open()
	t.Cleanup(func() {
		a.killAll()
		a.close()
		if now := descriptors(t); now > before {
			t.Errorf("%d descriptors, %d before the test", now, before)
		}
	})
	return a
}

func (a *agent) open() {
	a.t.Helper()
	e, err := Open(a.cfg)
	if err != nil {
		a.t.Fatal(err)
	}
	a.Engine = e
}

// close stops the engine in order and checks what it leaves.
func (a *agent) close() {
	a.t.Helper()
	if err := a.Engine.Close(context.Background(), "test"); err != nil {
		a.t.Fatal(err)
	}
	a.checkJournal()
}

func (a *agent) path() string { return filepath.Join(a.cfg.StateDir, "journal.db") }

// checkJournal compares the registry that was served with the one that the
// journal derives, after every record of which Check holds.
func (a *agent) checkJournal() {
	a.t.Helper()
	r, err := journal.OpenReadOnly(a.path())
	if err != nil {
		a.t.Fatal(err)
	}
	defer r.Close()
	derived := statemachine.NewRegistry()
	if s, ok, err := r.Snapshot(); err != nil {
		a.t.Fatal(err)
	} else if ok && r.FirstSeq() > 1 {
		if derived, err = statemachine.DecodeSnapshot(s.Blob); err != nil {
			a.t.Fatal(err)
		}
	}
	var d statemachine.Decoder
	err = r.Verify(func(stored journal.Record) error {
		if stored.Seq <= derived.Seq() {
			return nil
		}
		rec, err := d.Decode(stored.Seq, stored.Payload)
		if err == nil {
			err = derived.Apply(&rec)
		}
		if err == nil {
			err = derived.Check()
		}
		return err
	})
	if err != nil {
		a.t.Fatal(err)
	}
	if !bytes.Equal(derived.EncodeSnapshot(), a.registry.EncodeSnapshot()) {
		a.t.Error("the registry is not what its journal derives")
	}
}

// records reads the events of one kind from a closed agent's journal.
func (a *agent) records(kind statemachine.Kind) []statemachine.Record {
	a.t.Helper()
	r, err := journal.OpenReadOnly(a.path())
	if err != nil {
		a.t.Fatal(err)
	}
	defer r.Close()
	var out []statemachine.Record
	var d statemachine.Decoder
	if err := r.Verify(func(stored journal.Record) error {
		rec, err := d.Decode(stored.Seq, stored.Payload)
		if err == nil && rec.Event.Kind() == kind {
			out = append(out, rec)
		}
		return err
	}); err != nil {
		a.t.Fatal(err)
	}
	return out
}

func (a *agent) killAll() {
	for _, p := range a.List().Procs {
		_, _ = a.Kill(context.Background(), caller("proc_kill"), wire.HandleRequest{Handle: p.Handle})
		if p.Running {
			a.wait(p.Handle)
		}
	}
}

func caller(op string) wire.Caller {
	return wire.Caller{Op: op, Front: "guest", Peer: "test", Began: time.Now()}
}

func (a *agent) start(r wire.StartRequest) string {
	a.t.Helper()
	reply, err := a.Start(context.Background(), caller("proc_start"), r)
	if err != nil {
		a.t.Fatal(err)
	}
	return reply.Handle
}

func (a *agent) sh(script string) string {
	a.t.Helper()
	return a.start(wire.StartRequest{Cmd: []string{"/bin/sh", "-c", script}})
}

func (a *agent) wait(handle string) wire.Exit {
	a.t.Helper()
	reply, err := a.Wait(context.Background(), wire.WaitRequest{Handle: handle, TimeoutMS: 20_000})
	if err != nil || reply.Running {
		a.t.Fatalf("wait for %s: %+v, %v", handle, reply, err)
	}
	return reply.Exit
}

// output follows both streams to their end.
func (a *agent) output(handle string) (stdout, stderr string) {
	a.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	r := wire.LogsRequest{Handle: handle, WaitMS: 60_000}
	for {
		var reply wire.LogsReply
		if err := a.Logs(ctx, r, &reply); err != nil {
			a.t.Fatal(err)
		}
		stdout += string(reply.Stdout)
		stderr += string(reply.Stderr)
		r.Offset, r.StderrOffset = reply.StdoutOffset, reply.StderrOffset
		if reply.Drained && len(reply.Stdout)+len(reply.Stderr) == 0 {
			return stdout, stderr
		}
	}
}

func descriptors(t testing.TB) int {
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(entries)
}

func wantCode(t *testing.T, err error, want wire.Code) {
	t.Helper()
	var e *wire.Error
	if !errors.As(err, &e) || e.Code != want {
		t.Fatalf("got %v, want code %s", err, want)
	}
}

func TestLifeOfAProcess(t *testing.T) {
	a := newAgent(t)
	h := a.sh("read x; echo got:$x; echo oops >&2; exit 7")
	if _, err := a.Stdin(context.Background(), caller("proc_stdin"),
		wire.StdinRequest{Handle: h, Data: []byte("hello\n"), CloseStdin: true}); err != nil {
		t.Fatal(err)
	}
	if e := a.wait(h); e.ExitCode != 7 || e.Reason != "exited" || e.Signal != 0 || e.TimedOut {
		t.Errorf("ended as %+v", e)
	}
	if stdout, stderr := a.output(h); stdout != "got:hello\n" || stderr != "oops\n" {
		t.Errorf("output %q, %q", stdout, stderr)
	}
	_, err := a.Stdin(context.Background(), caller("proc_stdin"), wire.StdinRequest{Handle: h})
	wantCode(t, err, wire.CodeNotRunning)
	a.close()
	defer a.open()
	for kind, want := range map[statemachine.Kind]int{
		statemachine.KindRequested: 1, statemachine.KindStarted: 1, statemachine.KindStdin: 1,
		statemachine.KindStdinClosed: 1, statemachine.KindExited: 1, statemachine.KindDrained: 1,
	} {
		if got := len(a.records(kind)); got != want {
			t.Errorf("%d records of %s, want %d", got, kind, want)
		}
	}
	drained := a.records(statemachine.KindDrained)[0].Event.(*statemachine.Drained)
	for output, digest := range map[string]string{"got:hello\n": drained.StdoutSHA256, "oops\n": drained.StderrSHA256} {
		if want := fmt.Sprintf("%x", sha256.Sum256([]byte(output))); digest != want {
			t.Errorf("digest of %q is %s, want %s", output, digest, want)
		}
	}
}

// C35: why did it die? Each kind of end is told apart.
func TestReasons(t *testing.T) {
	a := newAgent(t)
	ctx := context.Background()
	exited, signalled := a.sh("exit 3"), a.sh("kill -TERM $$")
	timedOut := a.start(wire.StartRequest{Cmd: []string{"sleep", "60"}, TimeoutMS: 50})
	killed := a.sh("sleep 60")
	if _, err := a.Signal(ctx, caller("proc_signal"), wire.SignalRequest{Handle: killed, Signal: 15, Group: true}); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		handle string
		want   wire.Exit
	}{
		{exited, wire.Exit{ExitCode: 3, Reason: "exited"}},
		{signalled, wire.Exit{ExitCode: 143, Signal: 15, Reason: "signal"}},
		{timedOut, wire.Exit{ExitCode: 137, Signal: 9, TimedOut: true, Reason: "timeout"}},
		{killed, wire.Exit{ExitCode: 143, Signal: 15, Reason: "killed"}},
	} {
		if got := a.wait(c.handle); got != c.want {
			t.Errorf("ended as %+v, want %+v", got, c.want)
		}
	}
}

func TestRegistryFull(t *testing.T) {
	a := newAgent(t, func(c *Config) { c.MaxProcs = 3 })
	ctx := context.Background()
	done := a.sh("exit 0")
	a.wait(done)
	var live []string
	for range 3 {
		live = append(live, a.sh("sleep 60"))
	}
	if a.view.get(done) != nil {
		t.Error("the ended record was not collected to make room")
	}
	_, err := a.Start(ctx, caller("proc_start"), wire.StartRequest{Cmd: []string{"true"}})
	wantCode(t, err, wire.CodeRegistryFull)
	if _, err := a.Kill(ctx, caller("proc_kill"), wire.HandleRequest{Handle: live[0]}); err != nil {
		t.Fatal(err)
	}
	a.wait(live[0])
	a.sh("exit 0")
}

// C10: 500 starts that fail, some of them terminals, leave nothing.
func TestFailedStartsLeaveNothing(t *testing.T) {
	a := newAgent(t)
	for i := range 500 {
		_, err := a.Start(context.Background(), caller("proc_start"),
			wire.StartRequest{Cmd: []string{"/no/such/program"}, PTY: i%5 < 2})
		wantCode(t, err, wire.CodeSpawnFailed)
		if !strings.Contains(err.Error(), "/no/such/program") {
			t.Fatalf("the error does not name the program: %v", err)
		}
	}
	if n := len(a.List().Procs); n != 0 {
		t.Errorf("%d phantoms", n)
	}
	for range 64 {
		a.sh("sleep 60")
	}
}

func TestRetention(t *testing.T) {
	a := newAgent(t, func(c *Config) { c.Retain = 300 * time.Millisecond })
	h := a.sh("echo kept")
	a.wait(h)
	if a.view.get(h) == nil {
		t.Fatal("collected at once")
	}
	a.awaitGone(h)
	err := a.Logs(context.Background(), wire.LogsRequest{Handle: h}, &wire.LogsReply{})
	wantCode(t, err, wire.CodeUnknownHandle)
}

func TestRestartKeepsRecordsAndTails(t *testing.T) {
	a := newAgent(t)
	h := a.sh("echo bye; exit 9")
	a.wait(h)
	a.output(h)
	a.close()
	if err := os.RemoveAll(a.cfg.RuntimeDir); err != nil { // as a reboot does
		t.Fatal(err)
	}
	a.open()
	if e := a.wait(h); e.ExitCode != 9 {
		t.Errorf("ended as %+v", e)
	}
	if stdout, _ := a.output(h); stdout != "bye\n" {
		t.Errorf("output %q", stdout)
	}
}

func TestRestartFindsLiveProcesses(t *testing.T) {
	a := newAgent(t)
	r, err := a.Start(context.Background(), caller("proc_start"), wire.StartRequest{
		Cmd: []string{"/bin/sh", "-c", "echo before; while [ ! -e go ]; do sleep .01; done; echo after; sleep 60"},
		Cwd: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	a.awaitOutput(r.Handle, "before\n")
	a.close()
	a.open()
	row := a.view.get(r.Handle)
	if row == nil || !row.proc.Running || row.proc.PID != r.PID {
		t.Fatalf("row %+v", row)
	}
	cwd, err := os.Readlink("/proc/" + strconv.Itoa(r.PID) + "/cwd")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(cwd, "go"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	a.awaitOutput(r.Handle, "before\nafter\n")
	if _, err := a.Kill(context.Background(), caller("proc_kill"), wire.HandleRequest{Handle: r.Handle}); err != nil {
		t.Fatal(err)
	}
	a.wait(r.Handle)
}

// awaitOutput waits until stdout is at least want, and compares.
func (a *agent) awaitOutput(handle, want string) {
	a.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	var reply wire.LogsReply
	r := wire.LogsRequest{Handle: handle, Offset: int64(len(want)) - 1, StderrOffset: 1 << 40, WaitMS: 60_000}
	if err := a.Logs(ctx, r, &reply); err != nil {
		a.t.Fatal(err)
	}
	if err := a.Logs(ctx, wire.LogsRequest{Handle: handle}, &reply); err != nil || string(reply.Stdout) != want {
		a.t.Fatalf("output %q, %v; want %q", reply.Stdout, err, want)
	}
}

func TestSecondAgentIsRefused(t *testing.T) {
	a := newAgent(t)
	began := time.Now()
	e, err := Open(a.cfg)
	if err == nil {
		e.Close(context.Background(), "test")
		t.Fatal("two agents on one state directory")
	}
	if !errors.Is(err, journal.ErrLocked) || time.Since(began) > time.Second {
		t.Errorf("refused after %v with %v", time.Since(began), err)
	}
}

func TestJournalReadWakesOnARecord(t *testing.T) {
	a := newAgent(t)
	head := a.journal.Head().Seq
	type result struct {
		reply wire.JournalReadReply
		err   error
	}
	got := make(chan result, 1)
	go func() {
		reply, err := a.JournalRead(context.Background(), wire.JournalReadRequest{AfterSeq: head, WaitMS: 20_000, Raw: true})
		got <- result{reply, err}
	}()
	h := a.sh("exit 0")
	r := <-got
	if r.err != nil || len(r.reply.Records) == 0 || !bytes.Contains(r.reply.Records[0], []byte(h)) {
		t.Fatalf("read %q, %v", r.reply.Records, r.err)
	}
	a.wait(h)
}

// One stream that ended must not keep a reader of the other busy.
func TestWaitingBesideAnEndedStream(t *testing.T) {
	a := newAgent(t)
	h := a.sh("exec 2>&-; echo up; sleep 60")
	a.awaitOutput(h, "up\n")
	before := cpuTime(t)
	var reply wire.LogsReply
	if err := a.Logs(context.Background(), wire.LogsRequest{Handle: h, Offset: 3, WaitMS: 500}, &reply); err != nil {
		t.Fatal(err)
	}
	if used := cpuTime(t) - before; used > 200*time.Millisecond {
		t.Errorf("waiting 500 ms took %v of CPU", used)
	}
}

func cpuTime(t *testing.T) time.Duration {
	t.Helper()
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		t.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
