package procs

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"supervisor/internal/testproc"
)

// agentRole is an agent that is to be killed: it starts what it is told on
// stdin, a Spec a line, answers each with the observed Spawned on stdout, and
// lives until its stdin ends.
func agentRole(args []string) int {
	answers := json.NewEncoder(os.Stdout)
	t, err := New(Options{Dir: args[0], Observe: func(o Observation) {
		if s, ok := o.(Spawned); ok {
			_ = answers.Encode(s)
		}
	}})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	specs := json.NewDecoder(os.Stdin)
	for i := 1; ; i++ {
		var s Spec
		if err := specs.Decode(&s); err != nil {
			break
		}
		t.Start(fmt.Sprintf("p_%016x", i), s)
	}
	_ = t.Close()
	return 0
}

// agent is such an agent from outside.
type agent struct {
	t       testing.TB
	cmd     *exec.Cmd
	specs   io.WriteCloser
	answers *bufio.Scanner
}

// newAgent starts an agent with its rings where those of w are.
func (w *world) newAgent() *agent {
	w.t.Helper()
	argv := testproc.Argv("agent", w.opt.Dir)
	a := &agent{t: w.t, cmd: exec.Command(argv[0], argv[1:]...)}
	a.cmd.Stderr = os.Stderr
	var err error
	if a.specs, err = a.cmd.StdinPipe(); err != nil {
		w.t.Fatal(err)
	}
	out, err := a.cmd.StdoutPipe()
	if err != nil {
		w.t.Fatal(err)
	}
	a.answers = bufio.NewScanner(out)
	if err := a.cmd.Start(); err != nil {
		w.t.Fatal(err)
	}
	return a
}

// start has the agent start a process, which a later agent may adopt.
func (a *agent) start(s Spec) Adoptee {
	a.t.Helper()
	if s.Env == nil {
		s.Env = os.Environ()
	}
	if err := json.NewEncoder(a.specs).Encode(s); err != nil {
		a.t.Fatal(err)
	}
	var o Spawned
	if !a.answers.Scan() || json.Unmarshal(a.answers.Bytes(), &o) != nil {
		a.t.Fatalf("the agent said %q", a.answers.Text())
	}
	return Adoptee{o.Handle, o.PID, o.StartTicks, o.StdoutIno, o.StderrIno, s.PTY}
}

// kill ends the agent as a crash does.
func (a *agent) kill() {
	_ = a.cmd.Process.Kill()
	_ = a.cmd.Wait()
	a.specs.Close()
}

// stop ends it as it ends itself outside PID 1.
func (a *agent) stop() {
	a.specs.Close()
	if err := a.cmd.Wait(); err != nil {
		a.t.Error(err)
	}
}

// ringBytes is how much of a stream an agent, this or another, has on disk.
func (w *world) ringBytes(a Adoptee) int64 {
	r := newRing(filepath.Join(w.opt.Dir, a.Handle), Stdout, w.opt.RingBytes)
	if err := r.load(); err != nil { // a segment went while it looked
		return 0
	}
	return r.end
}

func (w *world) awaitRing(a Adoptee, n int64) {
	w.t.Helper()
	if !testproc.Eventually(patience, func() bool { return w.ringBytes(a) >= n }) {
		w.t.Fatalf("%s has %d bytes in its ring, not %d", a.Handle, w.ringBytes(a), n)
	}
}

// Rings survive SIGKILL of the agent under a flood: the next one goes on at
// the next byte. The lines count up, so a byte lost or doubled would show.
func TestNoByteIsLostToSIGKILL(t *testing.T) {
	w := newWorld(t)
	for range 20 {
		a := w.newAgent()
		flood := a.start(Spec{Argv: testproc.Argv("flood")})
		w.awaitRing(flood, 1<<20)
		a.kill()
		before := w.ringBytes(flood)
		if got := w.Adopt(flood); !got.Found || !got.Pipes[Stdout] || !got.Pipes[Stderr] {
			t.Fatalf("%+v", got)
		}
		r := w.Output(flood.Handle, Stdout)
		for r.End() < before+1<<20 {
			<-r.Changed()
		}
		_ = w.Signal(flood.Handle, syscall.SIGKILL, true)
		await[Exited](w, flood.Handle)
		await[Closed](w, flood.Handle)
		if got := w.read(flood.Handle, Stdout); got != linesAt(r.First(), len(got)) || len(got) != 262144 {
			t.Fatalf("%d bytes from %d are not what was written", len(got), r.First())
		}
		w.forgetAll()
	}
}

// forgetAll makes room for the same handles again.
func (w *world) forgetAll() {
	for h := range w.procs {
		w.Forget(h)
	}
	w.mu.Lock()
	clear(w.seen)
	w.mu.Unlock()
}

// The agent dies while its processes wait, write and end: each comes out right.
func TestAdopt(t *testing.T) {
	w := newWorld(t)
	a := w.newAgent()
	dir := t.TempDir()
	until := func(file string) string { return "while ! test -e " + dir + "/" + file + "; do sleep .01; done; " }
	waits := a.start(sh("echo before; " + until("go") + "echo after; exit 7"))
	killed := a.start(sh("echo before; exec sleep 60"))
	closed := a.start(sh("exec >&- 2>&-; exec sleep 60"))
	held := a.start(sh("(" + until("go") + "echo late) & echo before"))
	silent := a.start(sh("exec sleep 60"))
	terminal := a.start(onPTY(sh("trap '' HUP; echo before; exec sleep 60")))
	for _, b := range []Adoptee{waits, killed, held, terminal} {
		w.awaitRing(b, 7)
	}
	a.kill()

	for _, c := range []struct {
		who   Adoptee
		found bool
		pipes [2]bool
	}{
		{waits, true, [2]bool{true, true}},
		{killed, true, [2]bool{true, true}},
		{closed, true, [2]bool{}},
		{held, false, [2]bool{true, true}},
		{silent, true, [2]bool{true, true}},
		{terminal, true, [2]bool{}},
	} {
		if got := w.Adopt(c.who); got.Found != c.found || got.Pipes != c.pipes {
			t.Errorf("%s: %+v, want %v %v", c.who.Handle, got, c.found, c.pipes)
		}
	}
	for _, h := range []string{closed.Handle, terminal.Handle} {
		if _, ok := awaitOr[Closed](w, h, 0); !ok {
			t.Errorf("%s: no pipe, but not closed", h)
		}
	}
	if a := <-w.say(waits.Handle, "x", false); a.err == nil {
		t.Error("an adopted stdin takes bytes")
	}
	if _, err := os.Create(dir + "/go"); err != nil {
		t.Fatal(err)
	}
	w.expectAdopted(waits.Handle, "before\nafter\n", Status{Known: true, Code: 7})
	if c := await[Closed](w, held.Handle); string(c.StdoutTail) != "before\nlate\n" {
		t.Errorf("held: %q", c.StdoutTail)
	}
	for _, b := range []Adoptee{killed, closed, silent, terminal} {
		if err := w.Signal(b.Handle, syscall.SIGKILL, true); err != nil {
			t.Errorf("%s: %v", b.Handle, err)
		}
	}
	w.expectAdopted(killed.Handle, "before\n", Status{Known: true, Signal: syscall.SIGKILL})
	w.expectAdopted(terminal.Handle, "before\r\n", Status{Known: true, Signal: syscall.SIGKILL})
	w.expectAdopted(silent.Handle, "", Status{Known: true, Signal: syscall.SIGKILL})
}

// expectAdopted waits for the end of a process that is not our child. Its
// status is only known where the kernel keeps it (Linux 6.15) or where the
// zombie was still there.
func (w *world) expectAdopted(h, stdout string, want Status) {
	w.t.Helper()
	r := w.finish(h)
	if r.stdout != stdout {
		w.t.Errorf("%s: %q, want %q", h, r.stdout, stdout)
	}
	if r.exit.Status != want && (r.exit.Status.Known || keepsStatus()) {
		w.t.Errorf("%s: %+v, want %+v", h, r.exit.Status, want)
	}
}

// keepsStatus says whether this kernel tells a status after the reap.
func keepsStatus() bool {
	cmd := exec.Command("/bin/true")
	pidfd := -1
	cmd.SysProcAttr = &syscall.SysProcAttr{PidFD: &pidfd}
	_ = cmd.Run()
	defer syscall.Close(pidfd)
	info, err := pidfdInfo(pidfd, unix.PIDFD_INFO_EXIT)
	return err == nil && info.Mask&unix.PIDFD_INFO_EXIT != 0
}

// Where the kernel keeps no status, one that nobody can know is said to be
// unknown, never invented.
func TestUnknownStatus(t *testing.T) {
	w := newWorld(t)
	w.sys.pidfdInfo = false
	cmd := exec.Command("/bin/sh", "-c", "read x; exit 9")
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	p := w.newProcess("p_x")
	p.pid = cmd.Process.Pid
	st, err := readStat(p.pid)
	if err != nil {
		t.Fatal(err)
	}
	p.ticks = st.ticks
	if alive, _ := p.find(); !alive {
		t.Fatal("not found")
	}
	stdin.Close()
	_ = cmd.Wait() // reaped by another
	if s, _, exited := p.wait(); !exited || s != (Status{}) {
		t.Errorf("exited %v, %+v", exited, s)
	}
	p.closePidfd()
}

// An agent that lost its memory but not its place, as PID 1 after an execve,
// is still the parent of what it adopts.
func TestAdoptOwnChild(t *testing.T) {
	w := newWorld(t)
	pid, err := syscall.ForkExec("/bin/sh", []string{"sh", "-c", "exec sleep 60"}, &syscall.ProcAttr{
		Files: []uintptr{0, 1, 2}, Sys: &syscall.SysProcAttr{Setsid: true},
	})
	if err != nil {
		t.Fatal(err)
	}
	st, err := readStat(pid)
	if err != nil {
		t.Fatal(err)
	}
	if got := w.Adopt(Adoptee{Handle: "p_x", PID: pid, StartTicks: st.ticks}); !got.Found {
		t.Fatalf("%+v", got)
	}
	if err := w.Signal("p_x", syscall.SIGTERM, true); err != nil {
		t.Error(err)
	}
	e := await[Exited](w, "p_x")
	if e.Status != (Status{Known: true, Signal: syscall.SIGTERM}) || e.Rusage.MaxRSSKiB == 0 {
		t.Errorf("%+v", e)
	}
}

// An orderly stop is survived in the same way.
func TestAdoptAfterStop(t *testing.T) {
	w := newWorld(t)
	a := w.newAgent()
	flood := a.start(Spec{Argv: testproc.Argv("flood")})
	w.awaitRing(flood, 1<<20)
	a.stop()
	if got := w.Adopt(flood); !got.Found || !got.Pipes[Stdout] {
		t.Fatalf("%+v", got)
	}
	r := w.Output(flood.Handle, Stdout)
	for end := r.End(); r.End() < end+1<<20; {
		<-r.Changed()
	}
	_ = w.Signal(flood.Handle, syscall.SIGKILL, true)
	await[Closed](w, flood.Handle)
	if got := w.read(flood.Handle, Stdout); got != linesAt(r.First(), len(got)) {
		t.Error("bytes were lost")
	}
}

// C33: the pid alone identifies nobody.
func TestC33RecycledPidIsNotAdopted(t *testing.T) {
	w := newWorld(t)
	stranger := w.begin(sh("exec sleep 60"))
	o := await[Spawned](w, stranger)
	got := w.Adopt(Adoptee{Handle: "p_old", PID: o.PID, StartTicks: o.StartTicks - 1})
	if got.Found || got.Status.Known || got.Pipes != [2]bool{} {
		t.Errorf("%+v", got)
	}
	if err := w.Signal("p_old", syscall.SIGKILL, true); err == nil || !alive(o.PID) {
		t.Errorf("the stranger was signalled: %v", err)
	}
}

// A process that ended while no agent ran: a zombie tells its status, and
// also to an agent that is its parent.
func TestAdoptZombie(t *testing.T) {
	w := newWorld(t)
	for _, script := range []string{"exit 42", "kill -TERM $$"} {
		cmd := exec.Command("/bin/sh", "-c", script)
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		pid := cmd.Process.Pid
		testproc.Eventually(patience, func() bool { return !alive(pid) })
		st, err := readStat(pid)
		if err != nil {
			t.Fatal(err)
		}
		zombie := statusFromWait(st.exitWord)
		got := w.Adopt(Adoptee{Handle: "p_" + script, PID: pid, StartTicks: st.ticks})
		if got.Found || got.Status != zombie || !zombie.Known || zombie == (Status{Known: true}) {
			t.Errorf("%s: %+v, the zombie says %+v", script, got, zombie)
		}
		await[Closed](w, "p_"+script)
		_ = cmd.Wait() // nobody left to reap
	}
}

// Reopen shows what an ended process has left, and Keep removes the others.
func TestReopenAndKeep(t *testing.T) {
	w := newWorld(t)
	a := w.newAgent()
	kept := a.start(sh("echo kept"))
	other := a.start(sh("echo other"))
	w.awaitRing(kept, 5)
	w.awaitRing(other, 6)
	a.stop()
	if err := w.Keep([]string{"p_none", kept.Handle}); err != nil {
		t.Fatal(err)
	}
	if err := w.Reopen(kept.Handle); err != nil {
		t.Fatal(err)
	}
	if r := w.Output(kept.Handle, Stdout); !r.Ended() || w.read(kept.Handle, Stdout) != "kept\n" {
		t.Errorf("%q", w.read(kept.Handle, Stdout))
	}
	if entries, _ := os.ReadDir(w.opt.Dir); len(entries) != 2 || entries[1].Name() != kept.Handle+bornSuffix {
		t.Errorf("%v", entries)
	}
}

// Signals that the agent was launched with as ignored or blocked reach
// children as usual, if it has called CatchIgnored.
func TestIgnoredAndBlockedSignals(t *testing.T) {
	testproc.NoLeaks(t)
	argv := testproc.Argv("disposition", t.TempDir())
	script := `import os, signal, sys
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM, signal.SIGUSR1])
for s in (signal.SIGINT, signal.SIGHUP, signal.SIGTSTP, signal.SIGUSR2): signal.signal(s, signal.SIG_IGN)
os.execv(sys.argv[1], sys.argv[1:])`
	out, err := exec.Command("/usr/bin/python3", append([]string{"-c", script}, argv...)...).CombinedOutput()
	if err != nil {
		t.Fatal(err, string(out))
	}
	for _, word := range strings.Fields(string(out)) {
		if strings.Trim(word, "0") != "" && !strings.HasPrefix(word, "Sig") {
			t.Errorf("the child has %s", out)
		}
	}
}

// dispositionRole starts a child that prints its mask and what it ignores.
func dispositionRole(args []string) int {
	CatchIgnored()
	closed := make(chan Closed, 1)
	t, err := New(Options{Dir: args[0], TailBytes: 4096, Observe: func(o Observation) {
		if c, ok := o.(Closed); ok {
			closed <- c
		}
	}})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	t.Start("p", Spec{Argv: []string{"/bin/grep", "-E", "^Sig(Blk|Ign)", "/proc/self/status"}})
	select {
	case c := <-closed:
		os.Stdout.Write(c.StdoutTail)
	case <-time.After(patience):
		return 1
	}
	_ = t.Close()
	return 0
}
