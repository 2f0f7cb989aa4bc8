package e2e

import (
	"fmt"
	"testing"
	"time"
)

// crashed kills the agent, starts it again, and goes on with the session behind
// the last event that the broken connection still gave.
func (s *session) crashed(a *agent) *session {
	s.t.Helper()
	a.kill9()
	a.Client = nil
	return s.afterwards(a)
}

// afterwards is the second half of crashed.
func (s *session) afterwards(a *agent) *session {
	s.t.Helper()
	for { // what was on its way
		if _, err := s.read(); err != nil {
			break
		}
	}
	if a.Client == nil {
		a.serve()
	}
	last := 0
	if n := len(s.events); n > 0 {
		last = s.events[n-1].Seq
	}
	again := a.resume(s, fmt.Sprintf(`,"last_seq":%d`, last))
	again.events = append(s.events, again.events...)
	for id := range s.ended {
		again.ended[id] = true
	}
	return again
}

// whole checks that all events of a session are there, once each.
func (s *session) whole() {
	s.t.Helper()
	for i, e := range s.events {
		if e.Seq != i+1 {
			s.t.Fatalf("event %d has seq %d", i+1, e.Seq)
		}
	}
}

// A kill -9 of the agent loses no event of a session, and repeats none.
func TestSessionOutlivesCrashes(t *testing.T) {
	a := startFront(t)
	s := a.session()
	id := s.spawn("for ((i=1; i<=600; i++)); do echo $i; sleep .002; done; exit 7")
	gone := s.spawn("exit 4")
	s.until(gone)
	for range 4 {
		for range 60 {
			s.next()
		}
		s = s.crashed(a)
	}
	s.until(id)
	s.whole()
	if got := s.text(id); got != counted(600) {
		t.Errorf("%d bytes", len(got))
	}
	if len(s.exits(gone)) != 1 {
		t.Error("an exit that was delivered comes again")
	}
	if e := s.exits(id); len(e) != 1 || e[0].Data != `{"code":7}` && e[0].Data != `{"code":-1}` {
		t.Errorf("exits: %+v", e)
	}
}

// Events that were made, but not taken by a client that is busy, come after a
// crash; the exit too.
func TestCrashBehindASlowClient(t *testing.T) {
	a := startFront(t)
	var all []*session
	var ids []string
	for i := range 16 { // about as much as a socket holds, so that some last events are in it, and some are not
		s := a.session()
		all, ids = append(all, s), append(ids, s.spawn(fmt.Sprintf("for ((i=1; i<=%d; i++)); do echo $i; done; exit 5", 300+40*i)))
	}
	eventually(t, "all have ended", func() bool {
		procs, err := a.List(a.context(10 * time.Second))
		for _, p := range procs {
			if p.Running || !p.Drained {
				return false
			}
		}
		return err == nil
	})
	a.kill9()
	a.Client = nil
	for i, s := range all {
		s = s.afterwards(a)
		s.until(ids[i])
		s.whole()
		if got := s.text(ids[i]); got != counted(300+40*i) || len(s.exits(ids[i])) != 1 {
			t.Errorf("%d: %d bytes, exits %v", i, len(got), s.exits(ids[i]))
		}
	}
}
