package statemachine

import "fmt"

// Check verifies what must hold of a registry after every record. The first
// violation is the error; there is none unless this package is wrong or the
// registry was not made by Apply.
func (r *Registry) Check() error {
	counts := map[State]int{}
	timed := 0
	for handle, p := range r.processes {
		if err := p.check(handle, r.seq); err != nil {
			return fmt.Errorf("process %s in state %s: %w", handle, p.State, err)
		}
		counts[p.State]++
		if _, ok := p.deadline(); ok && p.State.Alive() && !p.DeadlineHit {
			timed++
		}
	}
	if err := r.checkKeys(); err != nil {
		return err
	}
	if err := r.checkSessions(); err != nil {
		return err
	}
	return checkQueues(r, counts, timed)
}

// check verifies one process.
func (p *Process) check(handle string, seq uint64) error {
	started := p.State != StateRequested
	switch {
	case handle == "" || p.Handle != handle:
		return fmt.Errorf("it is filed under %q", handle)
	case next(p.State, KindRequested) != never || p.State == unset || p.State == never:
		return fmt.Errorf("not a state that a record can be in")
	case p.RequestedSeq == 0 || p.RequestedSeq > seq:
		return fmt.Errorf("requested at %d of %d", p.RequestedSeq, seq)
	case started && p.Started.PID <= 0:
		return fmt.Errorf("pid %d", p.Started.PID)
	case p.State.Ended() != (p.ExitedSeq != 0):
		return fmt.Errorf("exit recorded at %d", p.ExitedSeq)
	case p.State.Ended() && p.Exit.Reason == "":
		return fmt.Errorf("ended without a reason")
	case p.Exit.Signal != 0 && p.Exit.ExitCode != 128+p.Exit.Signal:
		return fmt.Errorf("exit code %d beside signal %d", p.Exit.ExitCode, p.Exit.Signal)
	}
	return nil
}

// checkQueues verifies that each queue holds what its comment says.
func checkQueues(r *Registry, counts map[State]int, timed int) error {
	for _, c := range []struct {
		name string
		q    *queue
		want int
	}{
		{"deadlines", &r.deadlines, timed},
		{"drained", &r.drained, counts[StateDrained]},
		{"undrained", &r.undrained, counts[StateExited]},
	} {
		if len(c.q.heap) != c.want {
			return fmt.Errorf("queue of %s holds %d, not %d", c.name, len(c.q.heap), c.want)
		}
		for i, e := range c.q.heap {
			if *c.q.slot(e.p) != i+1 || r.processes[e.p.Handle] != e.p || i > 0 && e.key < c.q.heap[(i-1)/2].key {
				return fmt.Errorf("queue of %s is out of order at %s", c.name, e.p.Handle)
			}
		}
	}
	return nil
}
