package e2e

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"supervisor/client"
	"supervisor/wire"
)

// row is a process's row of proc_list.
func (a *agent) row(handle string) client.Proc {
	a.t.Helper()
	procs, err := a.List(a.context(20 * time.Second))
	if err != nil {
		a.t.Fatal(err)
	}
	for _, p := range procs {
		if p.Handle == handle {
			return p
		}
	}
	a.t.Fatalf("no row for %s", handle)
	return client.Proc{}
}

// alive tells whether a pid is of a process that is no zombie.
func alive(pid int) bool {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return false
	}
	rest := b[bytes.LastIndexByte(b, ')')+2:]
	return rest[0] != 'Z' && rest[0] != 'X'
}

// C01: a character split over reads arrives as it is.
func TestC01SplitCharacter(t *testing.T) {
	a := start(t)
	h := a.sh(`printf '\342\202'; sleep .3; printf '\254\n'`)
	c := a.raw()
	var got string
	for offset := 0; len(got) < 4; {
		m := c.call(fmt.Sprintf(`{"op":"proc_logs","handle":%q,"offset":%d,"limit":1,"wait_ms":50}`, h, offset))
		got += m.bytes(t, "stdout")
		offset = int(m["stdout_offset"].(float64))
	}
	if got != "\xe2\x82\xac\n" {
		t.Errorf("got %x", got)
	}
}

// C02: bytes that are no UTF-8 arrive as they are, and later ones too.
func TestC02BadBytes(t *testing.T) {
	a := start(t)
	h := a.sh(`printf '\377\376\000\r\n\303\050\n'; sleep .2; echo later`)
	if stdout, _ := a.output(h); stdout != "\xff\xfe\x00\r\n\xc3\x28\nlater\n" {
		t.Errorf("got %q", stdout)
	}
}

// C04: at the first reply with drained:true both streams are complete.
func TestC04NothingAfterDrained(t *testing.T) {
	a := start(t, "--max-procs", "200")
	each(t, 1000, 20, func(int) error {
		ctx := context.Background()
		p, err := a.Start(ctx, client.StartRequest{Cmd: []string{"/bin/sh", "-c", "echo out; echo err >&2; exit 3"}})
		if err != nil {
			return err
		}
		for wait := int64(0); ; wait = 1000 {
			m, err := a.Logs(ctx, client.LogsRequest{Handle: p.Handle, WaitMS: wait, Offset: 4, StderrOffset: 4})
			if err != nil {
				return err
			}
			if !m.Drained {
				continue
			}
			m, err = a.Logs(ctx, client.LogsRequest{Handle: p.Handle})
			if err != nil || string(m.Stdout) != "out\n" || string(m.Stderr) != "err\n" {
				return fmt.Errorf("drained with %q and %q (%v)", m.Stdout, m.Stderr, err)
			}
			if e, err := a.Wait(ctx, p.Handle); err != nil || e.ExitCode != 3 {
				return fmt.Errorf("ended as %+v, %v", e, err)
			}
			return nil
		}
	})
}

// each calls f for 0 to n-1, some at a time, and reports the first error.
func each(t *testing.T, n, atOnce int, f func(i int) error) {
	t.Helper()
	var wg sync.WaitGroup
	next := make(chan int)
	errs := make(chan error, n)
	for range atOnce {
		wg.Go(func() {
			for i := range next {
				if err := f(i); err != nil {
					errs <- fmt.Errorf("%d: %w", i, err)
				}
			}
		})
	}
	for i := range n {
		next <- i
	}
	close(next)
	wg.Wait()
	select {
	case err := <-errs:
		t.Fatal(err)
	default:
	}
}

// C05: a grandchild holds the pipe: the exit is told at once, its lines come.
func TestC05GrandchildHoldsThePipe(t *testing.T) {
	a := start(t)
	file := t.TempDir() + "/F"
	began := time.Now()
	h := a.sh("(for i in 1 2 3 4 5; do sleep .5; echo t$i || exit 9; done; touch " + file + ") & exit 0")
	if e := a.wait(h); e.ExitCode != 0 || time.Since(began) > 2*time.Second {
		t.Errorf("ended as %+v after %v", e, time.Since(began))
	}
	if stdout, _ := a.output(h); stdout != "t1\nt2\nt3\nt4\nt5\n" {
		t.Errorf("got %q", stdout)
	}
	if _, err := os.Stat(file); err != nil {
		t.Error(err)
	}
}

// C06: carriage returns are bytes like others, and cost no memory.
func TestC06CarriageReturns(t *testing.T) {
	a := start(t)
	h := a.sh(`printf 'A\r'; sleep .1; printf '\nB\r\n\nC\n'`)
	if stdout, _ := a.output(h); stdout != "A\r\nB\r\n\nC\n" {
		t.Errorf("got %q", stdout)
	}
	flood := a.start(client.StartRequest{Cmd: []string{"/bin/sh", "-c", `while :; do printf 'x\r'; done`}, TimeoutMS: 2000})
	a.wait(flood.Handle)
	if rss := a.status("RssAnon"); rss > 200<<10 { // with the race detector's own
		t.Errorf("RssAnon is %d KiB", rss)
	}
}

// C07: offsets at the edges of what is held.
func TestC07OffsetEdges(t *testing.T) {
	a := start(t)
	h := a.start(client.StartRequest{Cmd: []string{"/bin/sh", "-c", "yes 0123456789abcde | head -c 1000000"}}).Handle
	a.wait(h)
	eventually(t, "drained", func() bool { return a.row(h).Drained })
	for _, c := range []struct{ offset, dropped, data int64 }{
		{0, 737856, 262144}, {737855, 1, 262144}, {737856, 0, 262144}, {999999, 0, 1}, {1 << 62, 0, 0},
	} {
		m, err := a.Logs(context.Background(), client.LogsRequest{Handle: h, Offset: c.offset, Limit: 1 << 40})
		if err != nil || m.StdoutDropped != c.dropped || int64(len(m.Stdout)) != c.data || m.StdoutOffset != 1_000_000 {
			t.Errorf("offset %d: dropped %d, %d bytes, next %d (%v)", c.offset, m.StdoutDropped, len(m.Stdout), m.StdoutOffset, err)
		}
	}
}

// C15: a stdin that nobody reads delays nobody else.
func TestC15StdinBlocksNobody(t *testing.T) {
	a := start(t)
	h, other := a.sh("sleep 60"), a.sh("sleep 60")
	type result struct {
		n    int
		err  error
		took time.Duration
	}
	done := make(chan result, 1)
	go func() {
		began := time.Now()
		n, err := a.Stdin(context.Background(), h, make([]byte, 1<<20))
		done <- result{n, err, time.Since(began)}
	}()
	eventually(t, "the pipe is full", func() bool { return pipeFull(t, a.row(h).PID) })
	began := time.Now()
	if err := a.Kill(context.Background(), other); err != nil {
		t.Error(err)
	}
	a.wait(other)
	if took := time.Since(began); took > 2*time.Second {
		t.Errorf("killing another process took %v", took)
	}
	r := <-done
	if !errors.Is(r.err, client.ErrWriteDeadline) || r.n != 65536 || r.took < 4*time.Second || r.took > 9*time.Second {
		t.Errorf("the write ended with %d, %v after %v", r.n, r.err, r.took)
	}
	closed := a.sh("exec <&-; echo closed; sleep 60")
	if _, err := a.Logs(context.Background(), client.LogsRequest{Handle: closed, WaitMS: 20_000}); err != nil {
		t.Fatal(err)
	}
	if _, err := a.Stdin(context.Background(), closed, []byte("x")); !errors.Is(err, client.ErrStdinClosed) {
		t.Errorf("a write to a closed stdin: %v", err)
	}
}

// pipeFull tells whether a process's stdin holds as many bytes as it can.
func pipeFull(t *testing.T, pid int) bool {
	t.Helper()
	f, err := os.OpenFile(fmt.Sprintf("/proc/%d/fd/0", pid), os.O_RDONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	n, err := pending(f)
	if err != nil {
		t.Fatal(err)
	}
	return n == 65536
}

// C18: what is no signal is refused, and nothing is touched.
func TestC18SignalValues(t *testing.T) {
	a := start(t)
	h := a.sh("sleep 60")
	c := a.raw()
	for _, signal := range []string{"-1", "0", "65", "9223372036854775808", `"9"`, "null", "9.5", "true"} {
		m := c.call(fmt.Sprintf(`{"op":"proc_signal","handle":%q,"signal":%s}`, h, signal))
		if m["ok"] != false || m["code"] != "bad_request" || !strings.Contains(m["error"].(string), "signal") {
			t.Errorf("signal %s: %v", signal, m)
		}
	}
	if m := c.call(fmt.Sprintf(`{"op":"proc_signal","handle":%q}`, h)); m["ok"] != false {
		t.Errorf("no signal: %v", m)
	}
	if !a.row(h).Running {
		t.Error("the process was harmed")
	}
	for _, signal := range []int{32, 33} { // the C library's own: any end of the process is right
		_ = a.Signal(context.Background(), a.sh("sleep 60"), signal, true)
	}
	if _, err := a.Info(context.Background()); err != nil {
		t.Error(err)
	}
}

// C19: a timeout takes the whole group, and is told apart from an own exit.
func TestC19Timeout(t *testing.T) {
	a := start(t, "--max-procs", "300")
	r := client.StartRequest{Cmd: []string{"/bin/sh", "-c", "echo part; trap '' TERM; sleep 60.19 & sleep 60.19"}, TimeoutMS: 500}
	p := a.start(r)
	if e := a.wait(p.Handle); e != (client.Exit{ExitCode: 137, Signal: 9, TimedOut: true, Reason: "timeout"}) {
		t.Errorf("ended as %+v", e)
	}
	if stdout, _ := a.output(p.Handle); stdout != "part\n" {
		t.Errorf("got %q", stdout)
	}
	each(t, 200, 8, func(int) error {
		p, err := a.Start(context.Background(), client.StartRequest{Cmd: []string{"sleep", ".5"}, TimeoutMS: 500})
		if err != nil {
			return err
		}
		e, err := a.Wait(context.Background(), p.Handle)
		own, timeout := e.ExitCode == 0 && !e.TimedOut, e.ExitCode == 137 && e.TimedOut
		if err != nil || own == timeout {
			return fmt.Errorf("ended as %+v, %v", e, err)
		}
		return nil
	})
	p = a.start(client.StartRequest{Cmd: []string{"sleep", "60"}, TimeoutMS: 5000})
	if err := a.Kill(context.Background(), p.Handle); err != nil {
		t.Error(err)
	}
	if e := a.wait(p.Handle); e.TimedOut || e.Reason != "killed" {
		t.Errorf("ended as %+v", e)
	}
}

// C20: of a hundred waiters half go away; the others are told at once, and
// nothing is left of any.
func TestC20Waiters(t *testing.T) {
	a := start(t)
	h := a.sh("sleep 1; exit 9")
	before := a.descriptors()
	var waiters []*raw
	for range 100 {
		w := a.raw()
		w.send(fmt.Sprintf(`{"op":"proc_wait","handle":%q}`, h))
		waiters = append(waiters, w)
	}
	for _, w := range waiters[:50] {
		w.conn.Close()
	}
	for _, w := range waiters[50:] {
		if m := w.reply(); m["exit_code"] != 9.0 {
			t.Fatalf("told %v", m)
		}
	}
	at := time.Now()
	a.wait(h)
	if late := time.Since(at); late > time.Second {
		t.Errorf("a late wait took %v", late)
	}
	for _, w := range waiters[50:] {
		w.conn.Close()
	}
	eventually(t, "the connections are gone", func() bool { return a.descriptors() <= before })
}

// C30: a reader whose bytes are gone is told exactly how many.
func TestC30LostBytesAreCounted(t *testing.T) {
	a := start(t, "--proc-buf-bytes", "65536")
	h := a.sh("echo first; read x; yes | head -c 1000000")
	c := a.raw()
	m := c.call(fmt.Sprintf(`{"op":"proc_logs","handle":%q,"wait_ms":20000}`, h))
	if m.bytes(t, "stdout") != "first\n" {
		t.Fatalf("read %v", m)
	}
	if _, err := a.Stdin(context.Background(), h, []byte("go\n")); err != nil {
		t.Fatal(err)
	}
	eventually(t, "drained", func() bool { return a.row(h).Drained })
	m = c.call(fmt.Sprintf(`{"op":"proc_logs","handle":%q,"offset":6,"limit":4194304}`, h))
	if m["stdout_dropped"] != float64(1_000_000-65536) || len(m.bytes(t, "stdout")) != 65536 {
		t.Errorf("dropped %v, %d bytes", m["stdout_dropped"], len(m.bytes(t, "stdout")))
	}
}

// C31: proc_kill takes the group; who left the session is seen, not hung on.
func TestC31KillAndThoseWhoLeft(t *testing.T) {
	a := start(t)
	h := a.sh(`setsid sh -c 'echo $$; exec sleep 301' & sleep 302 & (sleep 303 &); sleep 304`)
	stdout, err := a.Logs(context.Background(), client.LogsRequest{Handle: h, WaitMS: 20_000})
	if err != nil {
		t.Fatal(err)
	}
	left, err := strconv.Atoi(strings.TrimSpace(string(stdout.Stdout)))
	if err != nil {
		t.Fatal(err)
	}
	leader := a.row(h).PID
	if err := a.Kill(context.Background(), h); err != nil {
		t.Fatal(err)
	}
	a.wait(h)
	eventually(t, "the group is gone", func() bool { return len(groupMembers(t, leader)) == 0 })
	if !alive(left) || a.row(h).Drained {
		t.Errorf("who left the session: alive %v, drained %v", alive(left), a.row(h).Drained)
	}
	if err := kill(left); err != nil {
		t.Error(err)
	}
	eventually(t, "drained", func() bool { return a.row(h).Drained })
}

// C34: a line is told within 100 ms of its writing.
func TestC34Follow(t *testing.T) {
	a := start(t)
	h := a.start(client.StartRequest{Cmd: []string{"cat"}}).Handle
	line := make(chan time.Time)
	go func() {
		for chunk, err := range a.Follow(context.Background(), h, client.Position{}) {
			if err == nil && len(chunk.Data) > 0 {
				line <- time.Now()
			}
		}
		close(line)
	}()
	late := 0
	for range 20 {
		written := time.Now()
		if _, err := a.Stdin(context.Background(), h, []byte("line\n")); err != nil {
			t.Fatal(err)
		}
		if took := (<-line).Sub(written); took > 100*time.Millisecond {
			late++
		}
	}
	if late > 2 { // a busy machine may be late by itself
		t.Errorf("%d of 20 lines were late", late)
	}
	if err := a.CloseStdin(context.Background(), h); err != nil {
		t.Fatal(err)
	}
	<-line
}

// Ten thousand short processes, half of them terminals: every code and byte
// is right, and nothing grows.
func TestManyShortProcesses(t *testing.T) {
	n := 10_000
	if testing.Short() {
		n = 500
	}
	a := start(t, "--max-procs", "256")
	run := func(i int) error {
		ctx := context.Background()
		p, err := a.Start(ctx, client.StartRequest{
			Cmd: []string{"/bin/sh", "-c", fmt.Sprintf("echo %d; exit %d", i, i%200)}, PTY: i%2 == 0,
		})
		if err != nil {
			return err
		}
		e, err := a.Wait(ctx, p.Handle)
		if err != nil || e.ExitCode != i%200 {
			return fmt.Errorf("ended as %+v, %v", e, err)
		}
		out, err := output(ctx, a.Client, p.Handle)
		if want := fmt.Sprint(i); err != nil || strings.TrimSpace(out[client.Stdout]) != want {
			return fmt.Errorf("wrote %q, %v", out[client.Stdout], err)
		}
		return nil
	}
	each(t, 500, 64, run)
	fds, threads, rss, terminals := a.descriptors(), a.status("Threads"), a.status("RssAnon"), openTerminals(t)
	each(t, n, 64, run)
	eventually(t, "descriptors are flat", func() bool { return a.descriptors() <= fds+8 })
	if now := a.status("Threads"); now > threads+8 {
		t.Errorf("%d threads, %d before", now, threads)
	}
	if now := a.status("RssAnon"); now > rss+rss/2+16<<10 {
		t.Errorf("RssAnon is %d KiB, %d before", now, rss)
	}
	if now := openTerminals(t); now > terminals {
		t.Errorf("%d terminals, %d before", now, terminals)
	}
	if z := zombiesOf(t, a.cmd.Process.Pid); z != 0 {
		t.Errorf("%d zombies", z)
	}
}

// A client that never reads costs a busy one nothing.
func TestAPeerThatNeverReads(t *testing.T) {
	a := start(t)
	h := a.sh("yes | head -c 262144; sleep 60")
	eventually(t, "output", func() bool { return a.row(h).StdoutLen == 262144 })
	deaf := a.raw()
	for i := range 100 {
		deaf.send(fmt.Sprintf(`{"op":"proc_logs","handle":%q,"limit":4194304,"id":"%d"}`, h, i))
	}
	var slowest time.Duration
	for end := time.Now().Add(3 * time.Second); time.Now().Before(end); {
		began := time.Now()
		if _, err := a.Logs(context.Background(), client.LogsRequest{Handle: h}); err != nil {
			t.Fatal(err)
		}
		slowest = max(slowest, time.Since(began))
	}
	if slowest > 200*time.Millisecond {
		t.Errorf("the slowest answer took %v", slowest)
	}
	var e *wire.Error
	if _, err := a.Logs(context.Background(), client.LogsRequest{Handle: "p_0"}); !errors.As(err, &e) {
		t.Errorf("not an answer: %v", err)
	}
}

// Ends that a wait status can garble: a real-time signal, a core dump.
func TestUnusualEnds(t *testing.T) {
	a := start(t)
	rt := a.sh("sleep 60")
	if err := a.Signal(context.Background(), rt, 40, true); err != nil {
		t.Fatal(err)
	}
	if e := a.wait(rt); e != (client.Exit{ExitCode: 168, Signal: 40, Reason: "killed"}) {
		t.Errorf("real-time signal: ended as %+v", e)
	}
	core := a.start(client.StartRequest{
		Cmd: []string{"/bin/sh", "-c", "ulimit -c unlimited; kill -SEGV $$"}, Cwd: t.TempDir(),
	})
	if e := a.wait(core.Handle); e != (client.Exit{ExitCode: 139, Signal: 11, Reason: "signal"}) {
		t.Errorf("core dump: ended as %+v", e)
	}
}

// A stopped process runs, for all that is told of it, and can be killed.
func TestStoppedProcess(t *testing.T) {
	a := start(t)
	p := a.start(client.StartRequest{Cmd: []string{"sleep", "60"}})
	if err := a.Signal(context.Background(), p.Handle, 19, true); err != nil {
		t.Fatal(err)
	}
	eventually(t, "stopped", func() bool { f := stat(strconv.Itoa(p.PID)); return f != nil && f[0] == "T" })
	if m := a.raw().call(fmt.Sprintf(`{"op":"proc_wait","handle":%q,"timeout_ms":200}`, p.Handle)); m["running"] != true || m["timed_out"] != true {
		t.Errorf("a stopped process is %v", m)
	}
	if err := a.Kill(context.Background(), p.Handle); err != nil {
		t.Fatal(err)
	}
	if e := a.wait(p.Handle); e.Signal != 9 {
		t.Errorf("ended as %+v", e)
	}
}

// A thousand peers that say nothing cost little, and nobody is kept out.
func TestIdlePeers(t *testing.T) {
	a := start(t, "--max-conns", "1100")
	before := a.status("RssAnon")
	for range 1000 {
		a.raw()
	}
	eventually(t, "accepted", func() bool { return a.descriptors() > 1000 })
	if _, err := a.Info(context.Background()); err != nil {
		t.Fatal(err)
	}
	limit := 32 << 10 // KiB: some for the race detector's shadow
	if grown := a.status("RssAnon") - before; grown > limit {
		t.Errorf("a thousand idle peers take %d KiB", grown)
	}
}
