package e2e

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"supervisor/client"
	"supervisor/internal/testproc"
	"supervisor/statemachine"
)

// many makes the fault tests thorough, for make fault.
var many = flag.Bool("fault", false, "run every fault test many times")

func times(few, lots int) int {
	if *many {
		return lots
	}
	return few
}

// fault is what strace does to the agent: the nth call of one thread fails, or
// the agent is killed at it.
type fault struct {
	call string
	what string
	nth  int
}

func (f fault) String() string { return fmt.Sprintf("%s:%s:when=%d", f.call, f.what, f.nth) }

// Whatever system call of the journal fails, at whichever the agent is killed,
// while it creates its files, commits or recovers: what was acknowledged is
// there afterwards, and the next agent works.
func TestFaults(t *testing.T) {
	if _, err := exec.LookPath("strace"); err != nil {
		t.Skip("needs strace")
	}
	rounds, hits := 0, 0
	for _, call := range []string{"pwrite64", "fdatasync", "fsync", "ftruncate", "rename,renameat,renameat2"} {
		for _, what := range []string{"error=EIO", "error=ENOSPC", "signal=KILL"} {
			for range times(1, 8) {
				f := fault{call, what, 1 + rand.IntN(12)}
				if !strings.Contains(call, "data") && call != "pwrite64" {
					f.nth = 1 + rand.IntN(2)
				}
				t.Run(f.String(), func(t *testing.T) {
					rounds++
					if meetFault(t, f) {
						hits++
					}
				})
			}
		}
	}
	if t.Logf("%d of %d were hit", hits, rounds); hits == 0 {
		t.Error("no call was hit")
	}
}

// meetFault has one life meet the fault, in its first moments or in a state
// directory that an earlier one has left, and checks what remains.
func meetFault(t *testing.T, f fault) (hit bool) {
	a := &agent{t: t, dir: t.TempDir(), exe: binary}
	known := &acknowledged{starts: map[string]int{}, exits: map[string]int{}}
	if rand.IntN(2) == 0 { // so that it recovers
		a.serve()
		known.some(a)
		a.sh("sleep 60")
		a.kill9()
	}
	trace := filepath.Join(t.TempDir(), "trace")
	wrapped := append([]string{"-f", "--seccomp-bpf", "-o", trace, "-e", "trace=" + f.call, "-e", "inject=" + f.String()},
		a.command().Args...)
	if a.begin(exec.Command("strace", wrapped...)) {
		known.some(a)
		a.mustEnd(known)
	}
	died := !a.crash()
	log, err := os.ReadFile(trace)
	if err != nil {
		t.Fatal(err)
	}
	a.serve()
	a.wait(a.sh("exit 0"))
	a.killAll()
	a.stop()
	known.check(t, a.records())
	return strings.Contains(string(log), "INJECTED") || died
}

// some has clients start processes and wait for them until they are through,
// or are told that it does not work.
func (k *acknowledged) some(a *agent) {
	var wg sync.WaitGroup
	for code := range 4 {
		c, err := client.Dial(context.Background(), a.addr(), client.WithPatience(0))
		if err != nil {
			return
		}
		wg.Go(func() {
			defer c.Close()
			k.load(c, code, 5)
		})
	}
	wg.Wait()
}

// mustEnd kills a process, which works as long as there is an agent.
func (a *agent) mustEnd(k *acknowledged) {
	a.t.Helper()
	ctx := a.context(20 * time.Second)
	p, err := a.Start(ctx, client.StartRequest{Cmd: []string{"sleep", "60"}})
	if err != nil {
		return
	}
	k.starts[p.Handle] = p.PID
	if err := a.Kill(ctx, p.Handle); err != nil {
		if info, gone := a.Info(ctx); gone == nil {
			a.t.Errorf("kill: %v, while the journal is %s", err, info.Journal)
		}
	}
}

// crash kills the agent if it still lives, and waits for it and for strace.
func (a *agent) crash() (lived bool) {
	if a.Client != nil {
		if info, err := a.Info(a.context(20 * time.Second)); err == nil {
			lived = kill(info.PID) == nil
		}
		a.Client.Close()
	}
	_ = a.cmd.Wait() // of strace: ends as the agent did, after all that it traced
	return lived
}

func (k *acknowledged) check(t *testing.T, records []statemachine.Record) {
	t.Helper()
	started, exited := map[string]int{}, map[string]int{}
	for _, r := range records {
		switch e := r.Event.(type) {
		case *statemachine.Started:
			started[r.Handle] = e.PID
		case *statemachine.Exited:
			exited[r.Handle] = e.ExitCode
		}
	}
	for handle, pid := range k.starts {
		if started[handle] != pid {
			t.Errorf("start of %s: acknowledged pid %d, journaled %d", handle, pid, started[handle])
		}
	}
	for handle, code := range k.exits {
		if got, ok := exited[handle]; !ok || got != code {
			t.Errorf("exit of %s: acknowledged %d, journaled %d (%v)", handle, code, got, ok)
		}
	}
}

// The agent dies again and again under a writer that never pauses. Its lines
// count up, so a byte that was lost or doubled would show ever after.
func TestFloodedThroughCrashes(t *testing.T) {
	a := start(t)
	h := a.start(client.StartRequest{Cmd: []string{"seq", "-f", "%015.0f", "0", "1000000000000"}}).Handle
	for round := range times(5, 200) {
		before := a.row(h).StdoutLen
		eventually(t, "more output", func() bool { return a.row(h).StdoutLen > before+1<<20 })
		time.Sleep(rand.N(20 * time.Millisecond)) // when the agent dies is up to chance
		a.kill9()
		a.serve()
		m, err := a.Logs(context.Background(), client.LogsRequest{Handle: h, Limit: 4 << 20})
		if err != nil {
			t.Fatal(err)
		}
		at := m.StdoutDropped
		if want := linesAt(at, len(m.Stdout)); string(m.Stdout) != want || len(m.Stdout) == 0 {
			t.Fatalf("round %d: %d bytes from %d are not what was written", round, len(m.Stdout), at)
		}
	}
}

// linesAt is what a process that counts in lines of 16 bytes writes at an offset.
func linesAt(off int64, n int) string {
	var b strings.Builder
	for i := off / 16; b.Len() < n+16; i++ {
		b.WriteString(testproc.Line(i))
	}
	return b.String()[off%16:][:n]
}
