package engine

import (
	"sync"
	"syscall"

	"supervisor/procs"
	"supervisor/statemachine"
)

// observations is what the processes' table told and no turn has taken yet.
// It is bounded by what can happen to max-procs processes, so telling never
// waits.
type observations struct {
	mu    sync.Mutex
	queue []procs.Observation
	steps []step        // outcomes of requests, told by whoever carried them out
	ready chan struct{} // holds one when there is something
}

func (o *observations) init() { o.ready = make(chan struct{}, 1) }

// add tells of a process. It may be called from any goroutine.
func (o *observations) add(what procs.Observation) {
	o.mu.Lock()
	o.queue = append(o.queue, what)
	o.mu.Unlock()
	o.signal()
}

// addStep tells how a request went.
func (o *observations) addStep(s step) {
	o.mu.Lock()
	o.steps = append(o.steps, s)
	o.mu.Unlock()
	o.signal()
}

func (o *observations) signal() {
	select {
	case o.ready <- struct{}{}:
	default:
	}
}

func (o *observations) take() ([]procs.Observation, []step) {
	o.mu.Lock()
	defer o.mu.Unlock()
	queue, steps := o.queue, o.steps
	o.queue, o.steps = nil, nil
	return queue, steps
}

// observations takes what was told and makes steps of it, in the order of
// telling.
func (e *Engine) observations() []step {
	seen, steps := e.observed.take()
	for _, o := range seen {
		steps = append(steps, e.observation(o))
	}
	return steps
}

func (e *Engine) observation(o procs.Observation) step {
	switch o := o.(type) {
	case procs.Spawned:
		c := e.takeStart(o.Handle)
		c.pid = o.PID
		return step{at: e.at(o.At), call: c, final: true, command: statemachine.Spawned{
			Handle: o.Handle,
			Started: statemachine.Started{
				PID: o.PID, StartTicks: o.StartTicks, StdoutIno: o.StdoutIno, StderrIno: o.StderrIno,
			},
		}}
	case procs.SpawnFailed:
		c := e.takeStart(o.Handle)
		c.err = spawnError(o.Err)
		return step{at: e.at(o.At), call: c, final: true,
			command: statemachine.SpawnFailed{Handle: o.Handle, Error: c.err.Error()}}
	case procs.Exited:
		c := ended(o)
		c.OOM = e.tookByKernel(o)
		return step{at: e.at(o.At), command: c}
	case procs.Closed:
		return step{at: e.at(o.At), command: streamsEnded(o)}
	}
	panic("an observation of no known kind")
}

// takeStart finds the call that waits for a start. There is one for every
// start that was performed, until its outcome is told, which is once.
func (e *Engine) takeStart(handle string) *call {
	c := e.starting[handle]
	delete(e.starting, handle)
	return c
}

// tookByKernel tells whether an exit was the kernel's doing.
func (e *Engine) tookByKernel(o procs.Exited) bool {
	p := e.registry.Get(o.Handle)
	return o.Status.Signal == syscall.SIGKILL && p != nil && e.oom.took(p.Started.PID)
}

func ended(o procs.Exited) statemachine.Ended {
	c := statemachine.Ended{
		Handle: o.Handle, Known: o.Status.Known, CoreDumped: o.Status.CoreDumped,
		Code: o.Status.Code, Signal: int(o.Status.Signal),
		Rusage: statemachine.Rusage(o.Rusage),
	}
	if c.Signal != 0 {
		c.Code = 128 + c.Signal // "Exit status encoding" of the guest protocol
	}
	return c
}

func streamsEnded(o procs.Closed) statemachine.StreamsEnded {
	return statemachine.StreamsEnded{Handle: o.Handle, Drained: statemachine.Drained{
		StdoutLen: o.StdoutLen, StderrLen: o.StderrLen,
		StdoutTail: o.StdoutTail, StderrTail: o.StderrTail,
		StdoutSHA256: o.StdoutSHA256, StderrSHA256: o.StderrSHA256,
	}}
}
