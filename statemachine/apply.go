package statemachine

import "fmt"

// Apply folds the next record into the registry. It is total: a record that
// cannot follow is an error and changes nothing.
func (r *Registry) Apply(rec *Record) error {
	if rec.Seq != r.seq+1 {
		return fmt.Errorf("record %d does not follow record %d", rec.Seq, r.seq)
	}
	if err := r.change(rec); err != nil {
		return err
	}
	r.seq = rec.Seq
	return nil
}

// change does what the event means; the sequence is Apply's. In a partial
// registry a record that cannot follow is passed over: what it follows may be
// what was not understood.
func (r *Registry) change(rec *Record) error {
	if _, unknown := rec.Event.(*Unknown); unknown {
		r.partial = true
		return nil
	}
	if s, ok := rec.Event.(*Snapshot); ok {
		r.cutTails(s.TailBudget)
	}
	if _, about := lifecycle[rec.Event.Kind()]; !about {
		return r.changeSession(rec) // of no process
	}
	p, known := r.processes[rec.Handle]
	if !known {
		p = &Process{Handle: rec.Handle, State: StateAbsent}
	}
	counted := p.usesQuota()
	if err := p.Follow(rec); err != nil {
		if r.partial {
			return nil
		}
		return err
	}
	if !known {
		r.processes[rec.Handle] = p
	}
	r.noteKey(p, rec)
	r.count(p, counted)
	r.index(p)
	return nil
}

// Follow folds the next record about the process into it alone, as Apply does
// in a registry. A record that cannot follow is an error and changes nothing.
// It is for readers that keep a process longer than a registry does: one that
// was never heard of is in StateAbsent.
func (p *Process) Follow(rec *Record) error {
	to := next(p.State, rec.Event.Kind())
	if to == never || rec.Handle == "" {
		return &TransitionError{Seq: rec.Seq, Handle: rec.Handle, State: p.State, Kind: rec.Event.Kind()}
	}
	p.State = to
	p.note(rec)
	return nil
}

// note keeps what an event says of its process.
func (p *Process) note(rec *Record) {
	switch e := rec.Event.(type) {
	case *Requested:
		p.Spec, p.RequestedSeq = e.Spec, rec.Seq
		p.StdinClosed = e.Spec.StdinNull
	case *Started:
		p.Started, p.StartedAt = *e, rec.Stamp.Instant
	case *StdinClosed:
		p.StdinClosed = true
	case *Signalled:
		p.Sent = p.Sent.With(e.Signal)
		p.Killed = p.Killed || e.Kill && e.Signal != sigint
	case *Resized:
		p.Spec.Cols, p.Spec.Rows = e.Cols, e.Rows
	case *Deadline:
		p.DeadlineHit = true
	case *Exited:
		p.end(*e, rec)
	case *Lost:
		p.end(Exited{ExitCode: -1, TimedOut: p.DeadlineHit, Reason: ReasonLost}, rec)
	case *Drained:
		p.Output = *e
	case *Delivered:
		p.Delivered = true
	case *Orphaned:
		p.Orphaned, p.StdinClosed = true, true
	}
}

func (p *Process) end(e Exited, rec *Record) {
	p.Exit, p.ExitedAt, p.ExitedSeq = e, rec.Stamp.Instant, rec.Seq
}

// index keeps the registry's queues in step with a process's state.
func (r *Registry) index(p *Process) {
	r.deadlines.remove(p)
	if at, ok := p.deadline(); ok && p.State.Alive() && !p.DeadlineHit {
		r.deadlines.add(at, p)
	}
	r.undrained.remove(p)
	r.drained.remove(p)
	switch p.State {
	case StateExited:
		r.undrained.add(int64(p.ExitedSeq), p)
	case StateDrained:
		r.drained.add(int64(p.ExitedSeq), p)
	case StateAbsent:
		delete(r.processes, p.Handle)
	}
}
