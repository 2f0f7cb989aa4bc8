package main

import (
	"cmp"
	"maps"
	"slices"

	"supervisor/statemachine"
)

// chronicle reads records in order and tells the lives of processes and of the
// agent. Its memory grows with what is there at a time, not with the journal,
// except for the agent's lives.
type chronicle struct {
	axis
	first   uint64 // the oldest retained record
	last    uint64 // that was read
	now     statemachine.Stamp
	agents  []agentLife
	lives   map[string]*life
	leaving []*life // forgotten or failed: later records can still be about them

	keep  int                      // steps of each life
	wants func(handle string) bool // nil for all
	over  func(l *life)            // takes each life, in the end at the latest
	also  func(e *entry, at int64) // takes each record; may be nil
}

// lingering is how many lives are kept for requests that come late.
const lingering = 256

// read reads the records up to one.
func (c *chronicle) read(src source, first, until uint64) error {
	c.first, c.lives = first, map[string]*life{}
	r, err := c.snapshot(src)
	if err != nil {
		return err
	}
	c.restore(r, first-1)
	for e, err := range entries(src, first-1, until) {
		if err == nil {
			err = c.note(&e)
		}
		if err != nil {
			return err
		}
		c.restore(r, e.Seq)
	}
	c.finish()
	return nil
}

// snapshot is the registry that stands for records that were pruned, nil if
// none were or there is none.
func (c *chronicle) snapshot(src source) (*statemachine.Registry, error) {
	if c.first == 1 {
		return nil, nil
	}
	s, found, err := oldestSnapshot(src)
	if err != nil || !found {
		return nil, err
	}
	return restore(s)
}

// restore takes from the snapshot of a record what pruned records said.
func (c *chronicle) restore(r *statemachine.Registry, seq uint64) {
	if r == nil || r.Seq() != seq {
		return
	}
	for _, p := range r.Processes() {
		l := c.life(p.Handle)
		if l == nil || !l.cut {
			continue
		}
		l.Process = *p
		l.from = c.past(p.StartedAt)
		if p.State.Ended() && l.to == 0 {
			l.to = c.past(p.ExitedAt)
		}
		if drained(p) && l.drained == 0 {
			l.drained = max(l.from, l.to)
		}
	}
}

// life finds or begins the life of a process, nil if nobody wants it.
func (c *chronicle) life(handle string) *life {
	l := c.lives[handle]
	if l == nil && (c.wants == nil || c.wants(handle)) {
		l = &life{Process: statemachine.Process{Handle: handle, State: statemachine.StateAbsent}, keep: c.keep, cut: c.first > 1}
		c.lives[handle] = l
	}
	return l
}

// note takes the next record.
func (c *chronicle) note(e *entry) error {
	rec, at := &e.Record, c.place(e.Stamp.Instant)
	if c.also != nil {
		c.also(e, at)
	}
	c.last, c.now = rec.Seq, rec.Stamp
	c.noteAgent(rec, at)
	if what := c.agentWords(rec); what != "" {
		for _, l := range c.lives {
			l.agentWas(rec, at, what)
		}
	}
	if rec.Handle == "" {
		return nil
	}
	l := c.lives[rec.Handle]
	if l == nil {
		if rec.Event.Kind() == statemachine.KindVerb {
			return nil // about something that is not there
		}
		if l = c.life(rec.Handle); l == nil {
			return nil
		}
	}
	return c.lead(l, rec, at)
}

// lead gives a life its next record.
func (c *chronicle) lead(l *life, rec *statemachine.Record, at int64) error {
	if l.from == 0 {
		l.from = at
	}
	if rec.Event.Kind() == statemachine.KindRequested {
		l.cut = false
	}
	if err := l.note(rec, at); err != nil {
		return err
	}
	switch rec.Event.(type) {
	case *statemachine.Collected, *statemachine.StartFailed:
		c.leave(l)
	}
	return nil
}

// leave lets go of the life that left first, if many did.
func (c *chronicle) leave(l *life) {
	c.leaving = append(c.leaving, l)
	if len(c.leaving) > lingering {
		c.let(c.leaving[0])
		c.leaving = c.leaving[1:]
	}
}

func (c *chronicle) let(l *life) {
	delete(c.lives, l.Handle)
	l.merge()
	c.over(l)
}

// finish lets go of the lives that are left, in the order of their starts.
func (c *chronicle) finish() {
	left := slices.SortedFunc(maps.Values(c.lives), func(a, b *life) int {
		return cmp.Or(cmp.Compare(a.RequestedSeq, b.RequestedSeq), cmp.Compare(a.Handle, b.Handle))
	})
	for _, l := range left {
		c.let(l)
	}
}
