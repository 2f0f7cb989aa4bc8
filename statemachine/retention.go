package statemachine

import (
	"cmp"
	"maps"
	"slices"
)

// firstEnded is the record to give up for a new one: of the drained ones the
// one that exited first, else of those with a stream still open; nil if every
// record is of a live process or a start under way.
func (r *Registry) firstEnded() *Process {
	if _, p := r.drained.first(); p != nil {
		return p
	}
	_, p := r.undrained.first()
	return p
}

// collect forgets a record.
func collect(handle string, why CollectWhy) Decision {
	return Decision{
		Events:  []HandleEvent{{handle, &Collected{Why: why}}},
		Effects: []Effect{Forget{handle}},
	}
}

// expired finds the ended records that were retained long enough. Ends are
// recorded in the order of their sequence, so the oldest come first.
func (r *Registry) expired(l Limits, now Instant) []*Process {
	done := func(_ int64, p *Process) bool { return age(p.ExitedAt, now) >= l.RetainNS }
	return append(r.drained.while(done), r.undrained.while(done)...)
}

// age is how long ago an instant was: by the monotonic clock within a boot, by
// the wall clock over a reboot.
func age(then, now Instant) int64 {
	if then.Boot == now.Boot {
		return now.Mono - then.Mono
	}
	return now.Wall - then.Wall
}

// cutTails keeps the newest tails that fit into the budget together, by the
// order of the exits; 0 keeps all.
func (r *Registry) cutTails(budget int64) {
	if budget == 0 {
		return
	}
	all := slices.Collect(maps.Values(r.processes))
	slices.SortFunc(all, func(a, b *Process) int {
		return -cmp.Or(cmp.Compare(a.ExitedSeq, b.ExitedSeq), cmp.Compare(a.RequestedSeq, b.RequestedSeq))
	})
	for _, p := range all {
		budget -= int64(len(p.Output.StdoutTail) + len(p.Output.StderrTail))
		if budget < 0 {
			p.Output.StdoutTail, p.Output.StderrTail = nil, nil
		}
	}
}

// NextTick tells in how many nanoseconds a Tick will have something to do, at
// the earliest; ok is false when nothing waits for time to pass.
func (r *Registry) NextTick(l Limits, now Instant) (ns int64, ok bool) {
	if at, p := r.deadlines.first(); p != nil {
		ns, ok = at-now.Mono, true
	}
	for _, q := range []*queue{&r.drained, &r.undrained} {
		if _, p := q.first(); p != nil {
			due := l.RetainNS - age(p.ExitedAt, now)
			if !ok || due < ns {
				ns, ok = due, true
			}
		}
	}
	if due, idle := r.nextClose(l, now); idle && (!ok || due < ns) {
		ns, ok = due, true
	}
	return max(ns, 0), ok
}
