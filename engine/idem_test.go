package engine

import (
	"bytes"
	"context"
	"os"
	"sync"
	"testing"
	"time"

	"supervisor/statemachine"
	"supervisor/wire"
)

func TestIdempotentStart(t *testing.T) {
	a := newAgent(t)
	r := wire.StartRequest{Cmd: []string{"sleep", "60"}, Env: []string{"TOKEN=a"}, Idem: "deploy 17 of shop"}
	first := a.start(r)
	if second := a.start(r); second != first {
		t.Errorf("a second start gave %s, the first %s", second, first)
	}
	other := r
	other.Env = []string{"TOKEN=b"}
	_, err := a.Start(context.Background(), caller("proc_start"), other)
	wantCode(t, err, wire.CodeBadRequest)
	a.close()
	if raw, err := os.ReadFile(a.path()); err != nil || bytes.Contains(raw, []byte(r.Idem)) {
		t.Errorf("the key is in the journal in clear (%v)", err)
	}
	a.open()
	if again := a.start(r); again != first {
		t.Errorf("after a restart a start gave %s, the first %s", again, first)
	}
	a.close()
	defer a.open()
	if n := len(a.records(statemachine.KindStarted)); n != 1 {
		t.Errorf("%d processes were started", n)
	}
}

// Starts that race with the first one of their key wait for its outcome.
func TestIdempotentStartsRace(t *testing.T) {
	a := newAgent(t)
	var wg sync.WaitGroup
	handles := make([]string, 32)
	for i := range handles {
		wg.Go(func() {
			handles[i] = a.start(wire.StartRequest{Cmd: []string{"sleep", "60"}, Idem: "one"})
		})
	}
	wg.Wait()
	for _, h := range handles {
		if h != handles[0] {
			t.Fatalf("two processes: %s and %s", handles[0], h)
		}
	}
	if n := len(a.List().Procs); n != 1 {
		t.Errorf("%d processes run", n)
	}
}

func TestFailedStartFreesItsKey(t *testing.T) {
	a := newAgent(t)
	r := wire.StartRequest{Cmd: []string{"/no/such/program"}, Idem: "one"}
	_, err := a.Start(context.Background(), caller("proc_start"), r)
	wantCode(t, err, wire.CodeSpawnFailed)
	r.Cmd = []string{"sleep", "60"}
	a.start(r)
}

// A key outlives its record by the retention time, and then starts anew.
func TestKeyOutlivesItsRecord(t *testing.T) {
	a := newAgent(t, func(c *Config) { c.Retain = 400 * time.Millisecond })
	r := wire.StartRequest{Cmd: []string{"true"}, Idem: "one"}
	first := a.start(r)
	a.awaitGone(first)
	if again := a.start(r); again != first {
		t.Errorf("a start after the collection gave %s, not %s", again, first)
	}
	for end := time.Now().Add(20 * time.Second); a.start(r) == first; time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("the key is never free again")
		}
	}
}

// awaitGone waits until the record of an ended process was collected.
func (a *agent) awaitGone(handle string) {
	a.t.Helper()
	for row := a.view.get(handle); row != nil; row = a.view.get(handle) {
		select {
		case <-row.replaced:
		case <-time.After(20 * time.Second):
			a.t.Fatalf("%s was never collected", handle)
		}
	}
}
