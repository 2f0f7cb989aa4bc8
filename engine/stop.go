package engine

import (
	"context"
	"time"

	"golang.org/x/sys/unix"

	"supervisor/statemachine"
)

// StopProcesses ends all processes: SIGTERM to their groups, and after grace
// SIGKILL to what is left. It returns when they have ended, or when ctx has.
// It is for an agent that is quiesced and not closed yet.
func (e *Engine) StopProcesses(ctx context.Context, grace time.Duration) {
	for _, r := range e.view.all() {
		if r.proc.Running {
			e.observed.addStep(step{command: statemachine.Signal{Handle: r.proc.Handle, Signal: int(unix.SIGTERM), Group: true}})
		}
	}
	patient, cancel := context.WithTimeout(ctx, grace)
	defer cancel()
	e.awaitEnds(patient)
	for _, r := range e.view.all() {
		left := e.table.Leftovers(r.proc.Handle)
		e.observed.addStep(step{command: statemachine.Kill{Handle: r.proc.Handle, Leftovers: left}})
	}
	e.awaitEnds(ctx)
}

// awaitEnds waits until no process runs.
func (e *Engine) awaitEnds(ctx context.Context) {
	for _, r := range e.view.all() {
		for r != nil && r.proc.Running && ctx.Err() == nil {
			select {
			case <-r.replaced:
				r = e.view.get(r.proc.Handle)
			case <-ctx.Done():
			}
		}
	}
}

// Running lists the leaders of the processes that run: each is a session.
func (e *Engine) Running() (pids []int) {
	for _, r := range e.view.all() {
		if r.proc.Running {
			pids = append(pids, r.proc.PID)
		}
	}
	return pids
}
