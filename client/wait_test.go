package client

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

func TestWaitGoesOnPastOneWait(t *testing.T) {
	n := 0
	f := newFakeAgent(t, true, func(*fakePeer, object) object {
		if n++; n < 5 {
			return object{"running": true, "timed_out": true, "exit_code": 0}
		}
		return object{"running": false, "timed_out": false, "exit_code": 143, "signal": 15}
	})
	exit, err := f.dial().Wait(within(t, 10*time.Second), "p_1")
	if err != nil || n != 5 || exit != (Exit{ExitCode: 143, Signal: 15}) {
		t.Errorf("%+v, %v after %d waits", exit, err, n)
	}
}

// An absent running is not false: the agent is asked when the process ended.
func TestWaitWithoutRunning(t *testing.T) {
	lists := 0
	f := newFakeAgent(t, false, func(_ *fakePeer, r object) object {
		if r["op"] == "proc_wait" {
			return object{"exit_code": 0}
		}
		row := object{"handle": "p_1", "running": true}
		if lists++; lists == 3 {
			row = object{"handle": "p_1", "exited_at": 12, "exit_code": 5}
		}
		return object{"procs": []object{row}}
	})
	exit, err := f.dial().Wait(within(t, 10*time.Second), "p_1")
	if err != nil || exit != (Exit{ExitCode: 5}) || lists != 3 {
		t.Errorf("%+v, %v after %d lists", exit, err, lists)
	}
}

func TestWaitAsksForNoMoreThanItsContext(t *testing.T) {
	asked := make(chan int64, 1)
	f := newFakeAgent(t, true, func(_ *fakePeer, r object) object {
		asked <- r.offset("timeout_ms")
		return nil
	})
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := f.dial().Wait(ctx, "p_1"); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("%v, want the context's error", err)
	}
	if ms := <-asked; ms < 1 || ms > 50 {
		t.Errorf("asked for %d ms", ms)
	}
}

// An agent that stops, hands over or is restarted is waited for.
func TestWaitOutlivesTheAgent(t *testing.T) {
	var f *fakeAgent
	var restarted atomic.Bool
	asked := make(chan struct{}, 100)
	f = newFakeAgent(t, true, func(p *fakePeer, _ object) object {
		asked <- struct{}{}
		switch {
		case restarted.Load():
			return object{"running": false, "timed_out": false, "exit_code": 6}
		case p.number == 1:
			p.Close()
			return nil
		default:
			return object{"error": "upgrading", "code": "upgrading"}
		}
	})
	c := f.dial()
	done := make(chan struct{})
	go func() {
		defer close(done)
		exit, err := c.Wait(within(t, 20*time.Second), "p_1")
		if err != nil || exit.ExitCode != 6 {
			t.Errorf("%+v, %v", exit, err)
		}
	}()
	for range 3 {
		<-asked
	}
	f.stop()
	restarted.Store(true)
	f.start()
	<-done
}

// A guest that came back from a snapshot may leave connections that are silent
// for ever.
func TestWaitLeavesASilentConnection(t *testing.T) {
	f := newFakeAgent(t, true, func(p *fakePeer, _ object) object {
		if p.number == 1 {
			return nil
		}
		return object{"running": false, "timed_out": false, "exit_code": 6}
	})
	c := f.dial()
	c.slack = 20*time.Millisecond - waitAtOnce
	exit, err := c.Wait(t.Context(), "p_1")
	if err != nil || exit.ExitCode != 6 {
		t.Errorf("%+v, %v", exit, err)
	}
}

func TestPatienceEnds(t *testing.T) {
	f := newFakeAgent(t, true, func(*fakePeer, object) object { return nil })
	c := f.dial(WithPatience(50 * time.Millisecond))
	f.stop()
	_, err := c.Wait(within(t, 10*time.Second), "p_1")
	if !errors.Is(err, ErrDisconnected) || !strings.Contains(err.Error(), f.path) {
		t.Errorf("%v, want ErrDisconnected naming the address", err)
	}
}
