package engine

import (
	"slices"
	"time"

	"supervisor/procs"
	"supervisor/statemachine"
)

// run is the loop. It ends when Close is called.
func (e *Engine) run() {
	defer close(e.stopped)
	defer e.release()
	defer procs.Recover(e.cfg.Crashed)
	for {
		steps, reason := e.gather()
		e.turn(steps)
		e.snapshotIfDue()
		if reason != "" {
			e.finish(reason)
			return
		}
	}
}

// gather waits until there is something to do and takes all of it, up to an
// inbox full: that is one turn.
func (e *Engine) gather() (steps []step, stopReason string) {
	steps, e.followUps = e.followUps, nil
	if len(steps) == 0 {
		steps, stopReason = e.await()
	}
	for len(steps) < inboxSize {
		select {
		case s := <-e.inbox:
			steps = append(steps, s)
			continue
		default:
		}
		break
	}
	steps = append(e.observations(), steps...)
	if e.endIsNear(steps) {
		e.linger()
		steps = append(steps, e.observations()...)
	}
	return append(steps, e.due()...), stopReason
}

// lingerFor is how long the end of a process's streams waits for its exit.
const lingerFor = 500 * time.Microsecond

// endIsNear tells whether a turn would do nothing but record the end of streams
// of processes that live: nearly always they are about to exit, and a reader
// of the exit would have to wait for one commit more.
func (e *Engine) endIsNear(steps []step) bool {
	return len(steps) > 0 && !slices.ContainsFunc(steps, func(s step) bool {
		c, ok := s.command.(statemachine.StreamsEnded)
		if !ok {
			return true
		}
		p := e.registry.Get(c.Handle)
		return p == nil || !p.State.Alive()
	})
}

// linger waits a moment for the next observation.
func (e *Engine) linger() {
	timer := time.NewTimer(lingerFor)
	defer timer.Stop()
	select {
	case <-e.observed.ready:
	case <-timer.C:
	}
}

// await blocks until a request, an observation, the next due time or a stop.
func (e *Engine) await() (steps []step, stopReason string) {
	timer := time.NewTimer(e.untilDue())
	defer timer.Stop()
	select {
	case s := <-e.inbox:
		steps = append(steps, s)
	case <-e.observed.ready:
	case <-e.verbs.ready:
	case <-timer.C:
	case f := <-e.between:
		f()
	case stopReason = <-e.stop:
	}
	return steps, stopReason
}

// forever is how long a loop waits that waits for no particular time.
const forever = 24 * time.Hour

// untilDue is how long nothing will be due.
func (e *Engine) untilDue() time.Duration {
	wait := forever
	if ns, ok := e.registry.NextTick(e.limits, e.now()); ok {
		wait = min(wait, time.Duration(ns))
	}
	if at, ok := e.verbs.next(); ok {
		wait = min(wait, max(time.Until(at), 0))
	}
	if len(e.pending) > 0 && e.journal.Err() == nil {
		wait = min(wait, retryFull)
	}
	return wait
}

// due gives the steps whose time has come.
func (e *Engine) due() []step {
	var steps []step
	now := e.now()
	if ns, ok := e.registry.NextTick(e.limits, now); ok && ns == 0 {
		steps = append(steps, step{at: now, command: statemachine.Tick{}})
	}
	return append(steps, e.verbSteps(e.verbs.due(time.Now()))...)
}

// startGrace is how long a stop waits for starts that are under way: a process
// whose start is not recorded would be nobody's.
const startGrace = 2 * time.Second

// finish writes the last records of this life.
func (e *Engine) finish(reason string) {
	e.refuseWaiting(errShuttingDown)
	e.finishStarts()
	e.turn(e.observations())
	e.turn(e.verbSteps(e.verbs.all()))
	e.snapshot()
	e.turn([]step{e.note("", &statemachine.AgentStopped{Reason: reason})})
}

// refuseWaiting answers the requests that no turn took.
func (e *Engine) refuseWaiting(err error) {
	for {
		select {
		case s := <-e.inbox:
			e.verbs.add(s.call.caller, s.call.handle, err)
			s.call.settle(err)
		default:
			return
		}
	}
}

// finishStarts waits for the outcomes of starts that were performed, and of
// the older verbs.
func (e *Engine) finishStarts() {
	timeout := time.After(startGrace)
	for len(e.starting) > 0 || e.attended.Load() > 0 {
		select {
		case <-e.observed.ready:
			e.turn(e.observations())
		case <-timeout:
			e.cfg.Log.Error("stopping with requests under way", "starts", len(e.starting), "older", e.attended.Load())
			return
		}
	}
}
