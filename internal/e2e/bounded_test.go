package e2e

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"sync"
	"testing"
	"time"

	"supervisor/client"
)

// journalSize is that of the file.
func (a *agent) journalSize() int64 {
	a.t.Helper()
	info, err := os.Stat(a.path())
	if err != nil {
		a.t.Fatal(err)
	}
	return info.Size()
}

// churn has several clients start processes that write more than the tail that
// is kept, and send signals to one that stays, until enough records are made.
func (a *agent) churn(stays string, starts, signals int) {
	a.t.Helper()
	const clients = 8
	ctx := context.Background()
	var all sync.WaitGroup
	for n := range clients {
		c, err := client.Dial(ctx, a.addr())
		if err != nil {
			a.t.Fatal(err)
		}
		all.Go(func() {
			defer c.Close()
			for i := range starts / clients {
				p, err := c.Start(ctx, client.StartRequest{
					Cmd: []string{"head", "-c", "20000", "/dev/urandom"}, Idem: fmt.Sprintf("churn-%d-%d", n, i),
				})
				if err != nil {
					a.t.Error(err)
					return
				}
				_, _ = c.Wait(ctx, p.Handle) // perhaps collected already
			}
			for range signals / clients {
				if err := c.Signal(ctx, stays, 18, false); err != nil {
					a.t.Error(err)
					return
				}
			}
		})
	}
	all.Wait()
}

// The journal's file is bounded while the agent goes on, through thousands of
// processes and verbs: old records go, and what was derived from them stays, also
// after a crash: a process, its idempotency key and that of one whose record is
// gone, a session.
func TestJournalFileIsBoundedWhileTheAgentGoesOn(t *testing.T) {
	const limit = 2 << 20
	a := startFront(t, "--journal-max-bytes", fmt.Sprint(limit), "--journal-sync", "off") // the bound is the same, and sooner met
	ended := client.StartRequest{Cmd: []string{"true"}, Idem: "ended"}
	stays := client.StartRequest{Cmd: []string{"sleep", "600"}, Idem: "stays"}
	first, old := a.start(stays), a.start(ended)
	s := a.session()
	s.conn.Close()
	var sizes []int64
	firstSeq := uint64(1)
	rounds, signals := times(3, 10), 16_000
	for range rounds {
		a.churn(first.Handle, times(400, 2000), signals)
		info, err := a.JournalInfo(a.context(20 * time.Second))
		if err != nil || info.FirstSeq <= firstSeq {
			t.Errorf("the oldest record is %d, was %d (%v)", info.FirstSeq, firstSeq, err)
		}
		if info.Bytes > 2*limit {
			t.Errorf("%d bytes of records, under a limit of %d", info.Bytes, limit)
		}
		firstSeq = info.FirstSeq
		sizes = append(sizes, a.journalSize())
	}
	t.Logf("sizes %v, oldest record %d", sizes, firstSeq)
	if last := sizes[len(sizes)-1]; last > 5*limit {
		t.Errorf("the file has %v bytes, under a limit of %d", sizes, limit)
	}
	a.kill9()
	a.serve()
	if again := a.start(stays); again != first || !a.row(first.Handle).Running {
		t.Errorf("%+v, at first %+v", again, first)
	}
	if again := a.start(ended); again.Handle != old.Handle {
		t.Errorf("the key of a record that is gone: %+v, at first %+v", again, old)
	}
	a.resume(s, "")
	if out, err := exec.Command(replay(t), "verify", a.addr()).CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}
