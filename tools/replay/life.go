package main

import (
	"slices"

	"supervisor/statemachine"
)

// life is what the records tell of one process. The process is as it was when
// the registry forgot it, or as it is.
type life struct {
	statemachine.Process
	cut     bool                      // its first records were pruned
	partial bool                      // it has records of unknown kinds
	from    int64                     // on the axis: its request, then its start
	to      int64                     // its end, if it has one
	drained int64                     // the end of its streams, if they have one
	asked   *statemachine.Verb        // who asked for it; nil where that is not known
	failed  *statemachine.StartFailed // the start that came to nothing
	gone    *statemachine.Collected   // it was forgotten

	cols, rows int            // a terminal's first size
	reads      map[string]int // requests that only asked about it, by verb
	steps      []step
	keep       int // so many steps at most
	omitted    int // steps that were not kept
}

// step is a record that led a process on, or several alike in a row.
type step struct {
	seq   uint64
	at    int64 // on the axis
	last  int64 // of several the last, else at
	wall  int64 // the clock of the record, unix nanoseconds
	count int
	event statemachine.Event
	by    *statemachine.Verb // the request that brought it about
	agent string             // what happened to the agent, where the record is of that
}

// note takes the next record about the process.
func (l *life) note(rec *statemachine.Record, at int64) error {
	s := newStep(rec, at)
	switch e := rec.Event.(type) {
	case *statemachine.Verb:
		l.noteVerb(e, s)
		return nil
	case *statemachine.Unknown:
		l.partial = true
	case *statemachine.Collected:
		l.gone = e
	default:
		if err := l.follow(rec); err != nil {
			return err
		}
		l.mark(e, at)
	}
	l.add(s)
	return nil
}

func newStep(rec *statemachine.Record, at int64) step {
	return step{seq: rec.Seq, at: at, last: at, wall: rec.Stamp.Wall, count: 1, event: rec.Event}
}

// follow folds a record. Where the first ones were pruned, the process was in
// one of the states that the record can follow.
func (l *life) follow(rec *statemachine.Record) error {
	err := l.Follow(rec)
	if err == nil || !l.cut {
		return err
	}
	was := l.State
	for l.State = statemachine.StateRequested; l.State <= statemachine.StateDrained; l.State++ {
		if l.Follow(rec) == nil {
			return nil
		}
	}
	l.State = was
	return err
}

// mark keeps what the process itself does not.
func (l *life) mark(e statemachine.Event, at int64) {
	switch e := e.(type) {
	case *statemachine.Requested:
		l.from, l.cols, l.rows = at, e.Spec.Cols, e.Spec.Rows
	case *statemachine.Started:
		l.from = at
	case *statemachine.StartFailed:
		l.failed, l.to = e, at
	case *statemachine.Exited, *statemachine.Lost:
		l.to = at
	case *statemachine.Drained:
		l.drained = at
	}
}

// brings is which kinds of steps a verb brings about.
var brings = map[string][]statemachine.Kind{
	"proc_start":  {statemachine.KindRequested},
	"proc/spawn":  {statemachine.KindRequested},
	"proc_signal": {statemachine.KindSignalled},
	"proc_kill":   {statemachine.KindSignalled},
	"proc/kill":   {statemachine.KindSignalled},
	"proc_stdin":  {statemachine.KindStdin, statemachine.KindStdinClosed},
	"proc/write":  {statemachine.KindStdin, statemachine.KindStdinClosed},
	"proc_resize": {statemachine.KindResized},
}

// noteVerb takes a request about the process: it brought about steps before
// it, or it was refused, or it only asked.
func (l *life) noteVerb(v *statemachine.Verb, s step) {
	kinds := brings[v.Op]
	switch {
	case l.asked == nil && slices.Contains(kinds, statemachine.KindRequested):
		l.asked = v
		l.attribute(v, kinds)
	case l.attribute(v, kinds):
	case v.OK:
		if l.reads == nil {
			l.reads = map[string]int{}
		}
		l.reads[v.Op] += max(v.Count, 1)
	default:
		s.count = max(v.Count, 1)
		l.add(s)
	}
}

// attribute names the request that brought about the newest steps of these
// kinds, and whether there are any that nobody was named for.
func (l *life) attribute(v *statemachine.Verb, kinds []statemachine.Kind) (any bool) {
	for i := len(l.steps) - 1; i >= 0; i-- {
		s := &l.steps[i]
		if !slices.Contains(kinds, s.event.Kind()) {
			continue
		}
		if s.by != nil {
			break
		}
		s.by, any = v, true
	}
	return any
}

// add adds a step, at the cost of one in the middle if there are too many.
func (l *life) add(s step) {
	l.merge()
	if len(l.steps) == l.keep {
		l.omitted++
		if l.keep == 0 {
			return
		}
		l.omitted += l.steps[l.keep/2].count - 1
		l.steps = slices.Delete(l.steps, l.keep/2, l.keep/2+1)
	}
	l.steps = append(l.steps, s)
}

// merge makes one step of the last two if they are alike.
func (l *life) merge() {
	n := len(l.steps)
	if n < 2 || !l.alike(&l.steps[n-2], &l.steps[n-1]) {
		return
	}
	a, b := &l.steps[n-2], l.steps[n-1]
	if first, ok := a.event.(*statemachine.Stdin); ok {
		a.event = &statemachine.Stdin{Bytes: first.Bytes + b.event.(*statemachine.Stdin).Bytes}
	}
	a.count += b.count
	a.last = b.last
	l.steps = l.steps[:n-1]
}

// alike tells whether two steps differ in nothing but their time, or the bytes
// of an input.
func (l *life) alike(a, b *step) bool {
	if a.event.Kind() != b.event.Kind() || asker(a.by) != asker(b.by) || a.agent != "" {
		return false
	}
	return a.event.Kind() == statemachine.KindStdin || l.says(a) == l.says(b)
}

// agentWas takes what happened to the agent while the process was there.
func (l *life) agentWas(rec *statemachine.Record, at int64, what string) {
	if l.State.Alive() {
		s := newStep(rec, at)
		s.agent = what
		l.add(s)
	}
}

// sender is the last step before the end that sent the signal of which the
// process died, nil if there is none.
func (l *life) sender() *step {
	for i := len(l.steps) - 1; i >= 0; i-- {
		s := &l.steps[i]
		if e, ok := s.event.(*statemachine.Signalled); ok && e.Signal == l.Exit.Signal && s.seq < l.ExitedSeq {
			return s
		}
	}
	return nil
}
