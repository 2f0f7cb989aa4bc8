package engine

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"supervisor/journal"
	"supervisor/statemachine"
	"supervisor/wire"
)

// step is one thing for a turn to decide.
type step struct {
	at      statemachine.Instant // zero: the turn's own time
	command statemachine.Command // nil: nothing but the call's outcome
	call    *call                // who waits for it, or nil
	final   bool                 // the call's outcome is known: its verb is journaled with this step
}

// call is a request that changes something, from its submission until it is
// settled. The loop owns it until then, the caller afterwards.
type call struct {
	caller wire.Caller
	handle string
	done   chan struct{} // closed when settled
	err    error         // the outcome

	spawn       func()  // hands a start to the processes' table
	write       func()  // hands bytes to a stdin
	pid         int     // of a start
	row         *row    // of a start: the first one
	same        []*call // starts with the same idempotency key, which wait for this one
	written     int     // of a write
	unjournaled bool    // done although the journal could not take it
	anyway      bool    // it counts as done then: it ends something
	attended    bool    // of an older verb; see Engine.attended
}

// settle gives the outcome to whoever waits. Only the first one counts.
func (c *call) settle(err error) {
	if c == nil {
		return
	}
	select {
	case <-c.done:
	default:
		c.err = err
		close(c.done)
	}
}

// outcome is a turn in the making.
type outcome struct {
	records []*statemachine.Record
	effects []effectOf
	settled []settlement
	touched map[string]bool // handles whose row changed
}

type effectOf struct {
	call   *call
	effect statemachine.Effect
}

type settlement struct {
	call *call
	err  error
}

// turn decides all steps, commits what follows from them at once, and only
// then performs, publishes and replies. It alone decides, applies and appends.
func (e *Engine) turn(steps []step) {
	_ = e.commit() // what an earlier turn could not write goes first
	out := &outcome{touched: map[string]bool{}}
	now := e.now()
	for _, s := range steps {
		if s.at == (statemachine.Instant{}) {
			s.at = now
		}
		e.decide(out, s)
	}
	err := e.commit()
	e.publish(out, err)
	for _, f := range out.effects {
		e.perform(f, err)
	}
	for _, s := range out.settled {
		e.settle(s, err)
	}
}

// decide takes one step. Later steps of the turn see what it changed.
func (e *Engine) decide(out *outcome, s step) {
	d := e.registry.Decide(e.limits, s.at, s.command)
	if errors.Is(d.Err, statemachine.ErrRegistryFull) {
		// Room may have come about that nobody has told of yet.
		e.table.Sweep()
		for _, o := range e.observations() {
			e.decide(out, o)
		}
		d = e.registry.Decide(e.limits, s.at, s.command)
	}
	if d.Err != nil {
		e.refuse(out, s.call, rejection(d.Err))
		return
	}
	if err := e.withoutJournal(s.command); err != nil {
		e.refuse(out, s.call, err)
		return
	}
	for _, ev := range d.Events {
		e.apply(out, s.at, ev)
	}
	if d.Same != nil {
		e.join(out, s.call, d.Same)
		return
	}
	for _, f := range d.Effects {
		if spawn, ok := f.(statemachine.Spawn); ok {
			e.starting[spawn.Handle] = s.call
		}
		out.effects = append(out.effects, effectOf{s.call, f})
	}
	if s.final {
		e.apply(out, s.at, e.verb(s.call))
		out.settled = append(out.settled, settlement{s.call, s.call.err})
	}
}

// refuse answers a request that changes nothing, after the turn: what it was
// refused for may still be on its way to the journal.
func (e *Engine) refuse(out *outcome, c *call, err error) {
	if c == nil {
		return
	}
	e.verbs.add(c.caller, c.handle, err)
	out.settled = append(out.settled, settlement{c, err})
}

// apply makes the next record, folds it in, and queues it for the commit.
func (e *Engine) apply(out *outcome, at statemachine.Instant, ev statemachine.HandleEvent) {
	if e.expendable(ev) {
		return
	}
	rec := &statemachine.Record{
		Seq:    e.registry.Seq() + 1,
		Stamp:  statemachine.Stamp{Instant: at, Gen: e.gen},
		Handle: ev.Handle,
		Event:  ev.Event,
	}
	if err := e.registry.Apply(rec); err != nil {
		panic(fmt.Sprintf("decided what cannot be applied: %v", err))
	}
	payload := e.encoder.Encode(rec)
	e.pending = append(e.pending, payload)
	e.snapshots.grown += int64(len(payload))
	out.records = append(out.records, rec)
	if rec.Event.Kind() != statemachine.KindVerb && rec.Handle != "" {
		out.touched[rec.Handle] = true
	}
}

// verb is the record of a call whose outcome is known.
func (e *Engine) verb(c *call) statemachine.HandleEvent {
	return statemachine.HandleEvent{Handle: c.handle, Event: verbEvent(c.caller, c.err, time.Now())}
}

// commit makes the pending records durable. What it cannot write stays
// pending, and goes first when there is room again.
func (e *Engine) commit() error {
	for len(e.pending) > 0 {
		n := appendable(e.pending)
		if _, err := e.journal.Append(e.pending[:n]...); err != nil {
			e.setHealth(healthAfter(err))
			return err
		}
		e.pending = slices.Delete(e.pending, 0, n)
		e.setHealth(journalOK)
	}
	return nil
}

// appendable is how many of the first payloads one Append takes.
func appendable(payloads [][]byte) int {
	size := 0
	for n, p := range payloads {
		if size += len(p); size > journal.MaxAppend {
			return n
		}
	}
	return len(payloads)
}

// settle replies.
func (e *Engine) settle(s settlement, commitErr error) {
	if commitErr != nil && s.err == nil {
		s.err = e.unrecorded(s.call, commitErr)
	}
	if s.call.spawn != nil {
		s.call.row = e.view.get(s.call.handle)
	}
	for _, c := range s.call.same {
		c.pid = s.call.pid
		e.verbs.add(c.caller, c.handle, s.err)
		c.settle(s.err)
	}
	if s.call.attended {
		e.attended.Add(-1)
	}
	s.call.settle(s.err)
}

// unrecorded is the outcome of a call that was carried out, and then could not
// be recorded. A process that was started for it must not run on unknown.
func (e *Engine) unrecorded(c *call, commitErr error) error {
	if c.anyway {
		c.unjournaled = true
		return nil
	}
	if c.spawn != nil {
		e.followUp(step{command: statemachine.Kill{Handle: c.handle}})
	}
	return journalError(commitErr)
}

// join makes a start the same as an earlier one: it changes nothing, and its
// outcome is the other's.
func (e *Engine) join(out *outcome, c *call, k *statemachine.Key) {
	c.handle, c.pid = k.Handle, k.PID
	if first := e.starting[k.Handle]; first != nil {
		first.same = append(first.same, c)
		return
	}
	e.verbs.add(c.caller, c.handle, nil)
	out.settled = append(out.settled, settlement{c, nil})
}

// retryFull is how often a full disk is tried again without other cause.
const retryFull = time.Second
