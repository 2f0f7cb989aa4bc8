package client

import (
	"errors"
	"sync/atomic"
	"testing"
	"time"
)

// What an agent can do is asked once a boot: another connection may be one to
// another image.
func TestCapabilitiesAreAskedOnceABoot(t *testing.T) {
	var asked atomic.Int64
	f := newFakeAgent(t, true, func(p *fakePeer, r object) object {
		if r["op"] == "proc_kill" {
			p.Close()
			return nil
		}
		asked.Add(1)
		caps := []string{"proc"}
		if p.number > 1 {
			caps = append(caps, "follow")
		}
		return object{"caps": caps}
	})
	c, ctx := f.dial(), within(t, 10*time.Second)
	for boot := range int64(2) {
		for range 3 {
			if proc, err := c.Has(ctx, "proc"); err != nil || !proc {
				t.Errorf("proc: %v, %v", proc, err)
			}
			if follow, err := c.Has(ctx, "follow"); err != nil || follow != (boot == 1) {
				t.Errorf("boot %d: follow: %v, %v", boot, follow, err)
			}
		}
		if n := asked.Load(); n != boot+1 {
			t.Errorf("boot %d: asked %d times", boot, n)
		}
		if err := c.Kill(ctx, "p_1"); !errors.Is(err, ErrDisconnected) {
			t.Fatal(err)
		}
	}
}

// An agent that does not know agent_info has no capability, which is no error.
// It would start a second time what carries a key: so it is not asked to.
func TestCapabilitiesOfAnOldAgent(t *testing.T) {
	var asked, started atomic.Int64
	f := newFakeAgent(t, false, func(_ *fakePeer, r object) object {
		switch r["op"] {
		case "agent_info":
			asked.Add(1)
			return object{"error": "unknown op: agent_info"}
		case "proc_start":
			started.Add(1)
		}
		return object{"handle": "p_1"}
	})
	c, ctx := f.dial(), within(t, 10*time.Second)
	for range 3 {
		if has, err := c.Has(ctx, "proc"); has || err != nil {
			t.Errorf("proc: %v, %v", has, err)
		}
	}
	if _, err := c.Start(ctx, StartRequest{Cmd: []string{"true"}, Idem: "once"}); !errors.Is(err, ErrTooOld) || started.Load() != 0 {
		t.Errorf("a start with a key: %v, %d starts", err, started.Load())
	}
	if _, err := c.Start(ctx, StartRequest{Cmd: []string{"true"}}); err != nil || started.Load() != 1 {
		t.Errorf("a start without one: %v, %d starts", err, started.Load())
	}
	if n := asked.Load(); n != 1 {
		t.Errorf("asked %d times", n)
	}
}
