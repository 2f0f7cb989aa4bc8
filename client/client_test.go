package client

import (
	"context"
	"errors"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"supervisor/internal/testproc"
	"supervisor/wire"
)

func TestCallsRunBesideEachOther(t *testing.T) {
	release := make(chan struct{})
	f := newFakeAgent(t, true, func(_ *fakePeer, r object) object {
		if r["op"] == "proc_wait" {
			<-release
			return object{"running": false, "exit_code": 7, "timed_out": false}
		}
		return object{"agent_version": "1"}
	})
	c := f.dial()
	ctx := within(t, 10*time.Second)
	if _, err := c.Info(ctx); err != nil {
		t.Fatal(err)
	}
	var waiting sync.WaitGroup
	for range 10 {
		waiting.Go(func() {
			if exit, err := c.Wait(ctx, "p_1"); err != nil || exit.ExitCode != 7 {
				t.Errorf("Wait: %+v, %v", exit, err)
			}
		})
	}
	for range 10 {
		if info, err := c.Info(ctx); err != nil || info.AgentVersion != "1" {
			t.Errorf("Info: %+v, %v", info, err)
		}
	}
	close(release)
	waiting.Wait()
	if n := f.conns.Load(); n != 1 {
		t.Errorf("%d connections, want 1", n)
	}
}

// A burst before the agent is known to echo ids needs more connections; they
// go away again.
func TestBurstSettlesOnOneConnection(t *testing.T) {
	f := newFakeAgent(t, true, func(*fakePeer, object) object { return object{} })
	c := f.dial()
	ctx := within(t, 10*time.Second)
	var calls sync.WaitGroup
	for range 20 {
		calls.Go(func() {
			if _, err := c.Info(ctx); err != nil {
				t.Error(err)
			}
		})
	}
	calls.Wait()
	if !testproc.Eventually(5*time.Second, func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		return len(c.conns) == 1
	}) {
		t.Error("more than one connection is left")
	}
}

func TestCancelledCallLeavesConnectionUsable(t *testing.T) {
	release, asked := make(chan struct{}), make(chan struct{}, 1)
	f := newFakeAgent(t, true, func(_ *fakePeer, r object) object {
		if r["op"] == "proc_kill" {
			asked <- struct{}{}
			<-release
		}
		return object{"agent_version": "1"}
	})
	c := f.dial()
	ctx, cancel := context.WithCancel(t.Context())
	failed := make(chan error)
	go func() { failed <- c.Kill(ctx, "p_1") }()
	<-asked
	cancel()
	if err := <-failed; !errors.Is(err, context.Canceled) {
		t.Errorf("Kill: %v, want the context's error", err)
	}
	close(release) // the late reply is passed over
	for range 3 {
		if info, err := c.Info(within(t, 10*time.Second)); err != nil || info.AgentVersion != "1" {
			t.Errorf("Info: %+v, %v", info, err)
		}
	}
}

// An agent reads no further while too many replies are out.
func TestAbandonedRepliesRetireConnection(t *testing.T) {
	gone, asked := make(chan struct{}), make(chan struct{})
	f := newFakeAgent(t, true, func(_ *fakePeer, r object) object {
		if r["op"] == "proc_kill" {
			asked <- struct{}{}
			<-gone
		}
		return object{}
	})
	t.Cleanup(func() { close(gone) })
	c := f.dial()
	ctx := within(t, 10*time.Second)
	if _, err := c.Info(ctx); err != nil {
		t.Fatal(err)
	}
	for range maxAbandoned + 1 {
		abandoned, cancel := context.WithCancel(ctx)
		go func() {
			<-asked
			cancel()
		}()
		if err := c.Kill(abandoned, "p_1"); !errors.Is(err, context.Canceled) {
			t.Fatalf("Kill: %v", err)
		}
	}
	if _, err := c.Info(ctx); err != nil {
		t.Error(err)
	}
	if n := f.conns.Load(); n != 2 {
		t.Errorf("%d connections, want a second one", n)
	}
}

// An agent without ids answers in order: nothing may wait behind a proc_wait.
func TestAgentWithoutIDs(t *testing.T) {
	release, asked := make(chan struct{}), make(chan struct{})
	f := newFakeAgent(t, false, func(_ *fakePeer, r object) object {
		if r["op"] == "proc_wait" {
			close(asked)
			<-release
			return object{"running": false, "exit_code": 3, "timed_out": false}
		}
		return object{"agent_version": "old"}
	})
	c := f.dial()
	ctx := within(t, 10*time.Second)
	exited := make(chan Exit)
	go func() {
		exit, err := c.Wait(ctx, "p_1")
		if err != nil {
			t.Error(err)
		}
		exited <- exit
	}()
	<-asked
	for range 3 {
		if info, err := c.Info(ctx); err != nil || info.AgentVersion != "old" {
			t.Errorf("Info: %+v, %v", info, err)
		}
	}
	close(release)
	if exit := <-exited; exit.ExitCode != 3 {
		t.Errorf("Wait: %+v", exit)
	}
	if n := f.conns.Load(); n != 2 {
		t.Errorf("%d connections, want 2", n)
	}
}

func TestErrors(t *testing.T) {
	replies := map[string]struct {
		reply object
		want  error
	}{
		"too old":               {object{"error": "unknown op: proc_kill"}, ErrTooOld},
		"unknown handle":        {object{"error": "no process p_1", "code": "unknown_handle"}, ErrUnknownHandle},
		"not running":           {object{"error": "process not running", "code": "not_running"}, ErrNotRunning},
		"not running, no codes": {object{"error": "process not running"}, ErrNotRunning},
		"upgrading":             {object{"error": "upgrading", "code": "upgrading"}, ErrUnavailable},
		"no terminal":           {object{"error": "process has no terminal", "code": "not_a_pty"}, ErrNoTerminal},
		"not started":           {object{"error": "x: not found", "code": "spawn_failed"}, ErrSpawnFailed},
		"full":                  {object{"error": "64 run", "code": "registry_full"}, ErrRegistryFull},
		"no journal":            {object{"error": "no space", "code": "journal_failed"}, ErrJournalFailed},
		"rejected":              {object{"error": "not an ELF", "code": "upgrade_rejected"}, ErrUpgradeRejected},
	}
	for name, test := range replies {
		t.Run(name, func(t *testing.T) {
			f := newFakeAgent(t, true, func(*fakePeer, object) object { return test.reply })
			err := f.dial().Kill(within(t, 10*time.Second), "p_1")
			var refusal *wire.Error
			if !errors.Is(err, test.want) || !errors.As(err, &refusal) || refusal.Message != test.reply["error"] {
				t.Errorf("%v, want %v with the agent's own error in it", err, test.want)
			}
			for _, other := range replies {
				if other.want != test.want && errors.Is(err, other.want) {
					t.Errorf("%v is also %v", err, other.want)
				}
			}
		})
	}
}

func TestDialErrors(t *testing.T) {
	path := filepath.Join(t.TempDir(), "none.sock")
	_, err := Dial(t.Context(), "unix:"+path)
	if !errors.Is(err, ErrDisconnected) || !strings.Contains(err.Error(), path) {
		t.Errorf("%v, want ErrDisconnected naming the address", err)
	}
	_, err = Dial(t.Context(), "carrier-pigeon:1")
	if !errors.Is(err, ErrBadAddress) || !strings.Contains(err.Error(), "carrier-pigeon:1") {
		t.Errorf("%v, want ErrBadAddress naming the address", err)
	}
}

func TestBrokenConnectionFailsItsCallsAndIsReplaced(t *testing.T) {
	f := newFakeAgent(t, true, func(p *fakePeer, r object) object {
		if r["op"] == "proc_kill" {
			p.Close()
			return nil
		}
		return object{}
	})
	c := f.dial()
	ctx := within(t, 10*time.Second)
	err := c.Kill(ctx, "p_1")
	if !errors.Is(err, ErrDisconnected) || !strings.Contains(err.Error(), f.path) {
		t.Errorf("Kill: %v, want ErrDisconnected naming the address", err)
	}
	if _, err := c.Info(ctx); err != nil {
		t.Errorf("Info on the next connection: %v", err)
	}
}

func TestGarbageBreaksConnection(t *testing.T) {
	for _, garbage := range []string{"HTTP/1.1 400 Bad Request\r\n", `{"ok":true}` + "\n"} {
		f := newFakeAgent(t, true, func(p *fakePeer, r object) object {
			if r["op"] == "proc_kill" {
				p.Write([]byte(garbage))
				return nil
			}
			return object{}
		})
		c := f.dial()
		ctx := within(t, 10*time.Second)
		if _, err := c.Info(ctx); err != nil {
			t.Fatal(err)
		}
		if err := c.Kill(ctx, "p_1"); !errors.Is(err, ErrDisconnected) {
			t.Errorf("%q: %v, want ErrDisconnected", garbage, err)
		}
	}
}

func TestClosedClient(t *testing.T) {
	asked := make(chan struct{})
	f := newFakeAgent(t, true, func(*fakePeer, object) object { close(asked); return nil })
	c := f.dial()
	failed := make(chan error)
	go func() { failed <- c.Kill(t.Context(), "p_1") }()
	<-asked
	c.Close()
	if err := <-failed; !errors.Is(err, ErrClosed) {
		t.Errorf("the call under way: %v, want ErrClosed", err)
	}
	if _, err := c.Info(t.Context()); !errors.Is(err, ErrClosed) {
		t.Errorf("the next call: %v, want ErrClosed", err)
	}
}

func TestRequestTooLong(t *testing.T) {
	f := newFakeAgent(t, true, func(*fakePeer, object) object { return object{} })
	c := f.dial()
	_, err := c.Stdin(t.Context(), "p_1", make([]byte, wire.MaxLine))
	if wire.CodeOf(err) != wire.CodeBadRequest {
		t.Errorf("%v, want bad_request", err)
	}
	if _, err := c.Info(within(t, 10*time.Second)); err != nil {
		t.Errorf("the connection afterwards: %v", err)
	}
}

// An agent that reads nothing holds a write up, but not past the context.
func TestCallEndsInTheMiddleOfAWrite(t *testing.T) {
	stuck := make(chan struct{})
	f := newFakeAgent(t, false, func(p *fakePeer, r object) object {
		if p.number == 1 {
			<-stuck
		}
		return object{"agent_version": "1"}
	})
	t.Cleanup(func() { close(stuck) })
	c := f.dial()
	abandoned, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if err := c.Kill(abandoned, "p_1"); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatal(err)
	}
	c.mu.Lock()
	first := c.conns[0]
	c.mu.Unlock()
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := first.write(ctx, make([]byte, 8<<20)); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("write: %v, want the context's error", err)
	}
	if !errors.Is(first.broken(), ErrDisconnected) {
		t.Error("a connection that owes half a line is still used")
	}
	if _, err := c.Info(within(t, 10*time.Second)); err != nil {
		t.Errorf("the next connection: %v", err)
	}
}

// The records of a reply outlive the buffer that it was read into.
func TestJournalRecordsAreTheCallers(t *testing.T) {
	f := newFakeAgent(t, true, func(_ *fakePeer, r object) object {
		return object{"records": []object{{"seq": r.offset("after_seq") + 1}}, "head_seq": 9, "first_seq": 1}
	})
	c := f.dial()
	ctx := within(t, 10*time.Second)
	first, err := c.JournalRead(ctx, JournalReadRequest{AfterSeq: 1})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.JournalRead(ctx, JournalReadRequest{AfterSeq: 7}); err != nil {
		t.Fatal(err)
	}
	if got := string(first.Records[0]); got != `{"seq":2}` || first.HeadSeq != 9 {
		t.Errorf("first record became %s", got)
	}
}

func TestStdinPipeGoesOnAfterTheWriteDeadline(t *testing.T) {
	var got []byte
	closed := false
	f := newFakeAgent(t, true, func(_ *fakePeer, r object) object {
		data := decode(t, r["data"])
		closed = closed || r["close_stdin"] == true
		taken := min(len(data), 1000)
		got = append(got, data[:taken]...)
		if taken < len(data) {
			return object{"error": "the process does not read", "code": "write_deadline", "written": taken}
		}
		return object{"written": taken}
	})
	pipe := f.dial().StdinPipe(within(t, 10*time.Second), "p_1")
	want := strings.Repeat("0123456789", 1234)
	if n, err := pipe.Write([]byte(want)); n != len(want) || err != nil {
		t.Fatalf("Write: %d, %v", n, err)
	}
	if err := pipe.Close(); err != nil || !closed {
		t.Errorf("Close: %v, closed %v", err, closed)
	}
	if string(got) != want {
		t.Errorf("%d bytes arrived, want %d unchanged", len(got), len(want))
	}
}

func TestAppendJSON(t *testing.T) {
	got := string(AppendJSON([]byte("x"), &StartReply{Handle: "p_1", PID: 4}))
	if want := `x{"handle":"p_1","pid":4}`; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	if got := string(AppendJSON(nil, &wire.Ack{})); got != "{}" {
		t.Errorf("%s, want {}", got)
	}
}
