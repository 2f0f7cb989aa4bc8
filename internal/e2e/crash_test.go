package e2e

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"supervisor/client"
)

// acknowledged is what clients were told, over several lives of the agent.
type acknowledged struct {
	mu     sync.Mutex
	starts map[string]int // pid by handle
	exits  map[string]int // code by handle
}

// load starts up to so many processes, one after the other, and waits for
// them, until it is refused or the connection breaks.
func (k *acknowledged) load(c *client.Client, code, count int) {
	ctx := context.Background()
	for range count {
		p, err := c.Start(ctx, client.StartRequest{Cmd: []string{"/bin/sh", "-c", fmt.Sprintf("exit %d", code)}})
		if err != nil {
			return
		}
		k.mu.Lock()
		k.starts[p.Handle] = p.PID
		k.mu.Unlock()
		e, err := c.Wait(ctx, p.Handle)
		if err != nil {
			return
		}
		if e.Unjournaled {
			continue // shown, not promised
		}
		k.mu.Lock()
		k.exits[p.Handle] = e.ExitCode
		k.mu.Unlock()
	}
}

// No acknowledged start or exit is missing after a SIGKILL under eight busy
// clients.
func TestCrashKeepsWhatWasAcknowledged(t *testing.T) {
	a := start(t, "--max-procs", "5000")
	known := &acknowledged{starts: map[string]int{}, exits: map[string]int{}}
	for range 5 {
		var wg sync.WaitGroup
		for code := range 8 {
			c, err := client.Dial(context.Background(), a.addr(), client.WithPatience(0))
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			wg.Go(func() { known.load(c, code, math.MaxInt) })
		}
		time.Sleep(time.Duration(200+rand.IntN(400)) * time.Millisecond) // when the agent dies is up to chance
		a.kill9()
		wg.Wait()
		a.serve()
	}
	a.stop()
	if len(known.starts) < 20 {
		t.Fatalf("only %d starts were acknowledged", len(known.starts))
	}
	known.check(t, a.records())
	a.serve()
}

// What a reply showed in the moment before a SIGKILL is there afterwards.
func TestCrashRightAfterAReply(t *testing.T) {
	a := start(t)
	for i := range 20 {
		h := a.sh(fmt.Sprintf("exit %d", i+1))
		shown := a.wait(h)
		a.kill9()
		a.serve()
		if again := a.wait(h); again != shown || again.ExitCode != i+1 {
			t.Fatalf("round %d: shown %+v, afterwards %+v", i, shown, again)
		}
	}
}

// A writer lives through SIGKILLs of the agent, and every byte that it writes
// before, between and after them is there.
func TestCrashLosesNoOutput(t *testing.T) {
	a := start(t, "--proc-buf-bytes", "8388608")
	const lines = 100_000
	// It must not end while no agent runs: what is in its pipe then is gone.
	end := filepath.Join(t.TempDir(), "end")
	h := a.sh(fmt.Sprintf("i=0; while [ $i -lt %d ]; do i=$((i+1)); echo line-$i; done; while [ ! -e %s ]; do sleep .02; done", lines, end))
	for range 5 {
		time.Sleep(time.Duration(20+rand.IntN(60)) * time.Millisecond) // when the agent dies is up to chance
		a.kill9()
		a.serve()
	}
	if err := os.WriteFile(end, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	stdout, _ := a.output(h)
	var want strings.Builder
	for i := 1; i <= lines; i++ {
		fmt.Fprintf(&want, "line-%d\n", i)
	}
	if stdout != want.String() {
		t.Errorf("%d bytes read of %d", len(stdout), want.Len())
	}
}

// A process that the kernel cannot tell about any more is lost, not exit 0.
func TestEndedUnseen(t *testing.T) {
	a := start(t)
	h := a.sh("sleep .1; exit 9")
	pid := a.row(h).PID
	a.kill9()
	eventually(t, "the process ends", func() bool { return !alive(pid) })
	a.serve()
	e := a.wait(h)
	if e.ExitCode != -1 && e.ExitCode != 9 || e.ExitCode == -1 && e.Reason != "lost" {
		t.Errorf("ended as %+v", e)
	}
}

// What a process used is told to its parent alone: of one that a later agent has
// found again it is not known, and so is not shown, rather than as nothing.
func TestUsageOfTheAdoptedIsUnknown(t *testing.T) {
	a := start(t)
	adopted := a.sh("exec sleep 60")
	a.kill9()
	a.serve()
	own := a.sh("exit 0")
	a.wait(own)
	if err := a.Kill(a.context(20*time.Second), adopted); err != nil {
		t.Fatal(err)
	}
	a.wait(adopted)
	if usage := a.row(own).Rusage; usage == nil || usage.MaxRSSKiB == 0 {
		t.Errorf("of a child: %+v", usage)
	}
	if usage := a.row(adopted).Rusage; usage != nil {
		t.Errorf("of an adopted process: %+v", usage)
	}
	reply := a.raw().call(`{"op":"journal_read","after_seq":0}`)
	for _, r := range reply["records"].([]any) {
		r := r.(map[string]any)
		if _, shown := r["data"].(map[string]any)["rusage"]; r["kind"] == "proc.exited" && shown != (r["handle"] == own) {
			t.Errorf("%v", r)
		}
	}
}
