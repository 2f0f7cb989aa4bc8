package statemachine

import "errors"

// What a request can be rejected with.
var (
	ErrUnknownHandle = errors.New("unknown handle")
	ErrNotRunning    = errors.New("process not running")
	ErrRegistryFull  = errors.New("registry full")
	ErrNotAPTY       = errors.New("process has no terminal")
	ErrStdinClosed   = errors.New("stdin is closed")
	ErrHandleInUse   = errors.New("handle in use")
	ErrKeyInUse      = errors.New("idempotency key was used with other arguments")
)

// Limits are what the machine's owner allows.
type Limits struct {
	MaxProcs     int   // records in the registry
	RetainNS     int64 // how long an ended record is kept
	MaxSessions  int   // in the registry
	SessionProcs int   // each session's quota
	SessionTTLNS int64 // how long a session without a connection is kept
}

// Decision is what follows from a command: records to append, in order, then
// effects to perform once these are durable. Err is the rejection of a
// request, and then there is nothing to append or perform.
type Decision struct {
	Events  []HandleEvent
	Effects []Effect
	Err     error
	Same    *Key // of an earlier start that a start is the same as: nothing follows
}

// HandleEvent is an event about a process, or about none with Handle "".
type HandleEvent struct {
	Handle string
	Event  Event
}

// Effect is something to do to the world.
type Effect interface{ effect() }

// Spawn starts the process that was asked for under Handle.
type Spawn struct{ Handle string }

// Send sends a signal.
type Send struct {
	Handle string
	Signal int
	Group  bool
}

// WriteStdin lets the bytes that came with the request go to the stdin.
type WriteStdin struct{ Handle string }

// SetSize gives a terminal its new size.
type SetSize struct {
	Handle string
	Cols   int
	Rows   int
}

// Forget lets go of what is held for a record that was collected.
type Forget struct{ Handle string }

func (Spawn) effect()      {}
func (Send) effect()       {}
func (WriteStdin) effect() {}
func (SetSize) effect()    {}
func (Forget) effect()     {}

const (
	sigint  = 2
	sigkill = 9
)

// Decide says what follows from a command. It changes nothing, it is total,
// and its answer depends on its arguments alone.
func (r *Registry) Decide(l Limits, now Instant, c Command) Decision {
	switch c := c.(type) {
	case Start:
		return r.decideStart(l, now, c)
	case Signal:
		return r.decideSignal(c)
	case Kill:
		return r.decideKill(c)
	case Write:
		return r.decideWrite(c)
	case Resize:
		return r.decideResize(c)
	case Tick:
		return r.decideTick(l, now)
	case Ended:
		return r.decideEnded(c)
	case Missing:
		return r.decideMissing(c)
	case Written:
		return r.decideWritten(c)
	case Spawned:
		return r.decideSpawned(c)
	case SpawnFailed:
		return r.fact(c.Handle, &StartFailed{Error: c.Error})
	case Sized:
		return r.fact(c.Handle, &Resized{Cols: c.Cols, Rows: c.Rows})
	case StreamsEnded:
		return r.fact(c.Handle, &c.Drained)
	case Found:
		return r.decideFound(c)
	case Note:
		return Decision{Events: []HandleEvent{{c.Handle, c.Event}}}
	}
	return r.decideSession(l, c)
}

func reject(err error) Decision { return Decision{Err: err} }

// state is that of a handle, known or not.
func (r *Registry) state(handle string) State {
	if p := r.processes[handle]; p != nil {
		return p.State
	}
	return StateAbsent
}

// fact records an observation. One about a process that was forgotten
// meanwhile, or that is told twice, has nothing to follow from and is dropped.
func (r *Registry) fact(handle string, events ...Event) Decision {
	var d Decision
	for _, e := range events {
		if next(r.state(handle), e.Kind()) != never {
			d.Events = append(d.Events, HandleEvent{handle, e})
		}
	}
	return d
}

func (r *Registry) decideStart(l Limits, now Instant, c Start) Decision {
	if c.Handle == "" || r.processes[c.Handle] != nil { // "" is that of no process
		return reject(ErrHandleInUse)
	}
	if k, err := r.find(l, now, c.Spec); err != nil || k != nil {
		return Decision{Err: err, Same: k}
	}
	if err := r.admit(l, c.Spec); err != nil {
		return reject(err)
	}
	var d Decision
	if len(r.processes) >= l.MaxProcs {
		victim := r.firstEnded()
		if victim == nil {
			return reject(ErrRegistryFull)
		}
		d = collect(victim.Handle, WhyRoom)
	}
	d.Events = append(d.Events, HandleEvent{c.Handle, &Requested{Spec: c.Spec}})
	d.Effects = append(d.Effects, Spawn{c.Handle})
	return d
}

// alive finds a process that can be asked for something.
func (r *Registry) alive(handle string) (*Process, error) {
	p := r.processes[handle]
	switch {
	case p == nil || p.State == StateRequested:
		return nil, ErrUnknownHandle
	case !p.State.Alive():
		return nil, ErrNotRunning
	}
	return p, nil
}

func (r *Registry) decideSignal(c Signal) Decision {
	if _, err := r.alive(c.Handle); err != nil {
		return reject(err)
	}
	return send(c.Handle, c.Signal, c.Group)
}

func (r *Registry) decideKill(c Kill) Decision {
	_, err := r.alive(c.Handle)
	if err == ErrNotRunning && c.Leftovers {
		err = nil
	}
	if err != nil {
		return reject(err)
	}
	return send(c.Handle, sigkill, true)
}

func send(handle string, signal int, group bool) Decision {
	return Decision{
		Events:  []HandleEvent{{handle, &Signalled{Signal: signal, Group: group}}},
		Effects: []Effect{Send{handle, signal, group}},
	}
}

func (r *Registry) decideWrite(c Write) Decision {
	p, err := r.alive(c.Handle)
	switch {
	case err != nil:
		return reject(err)
	case p.StdinClosed:
		return reject(ErrStdinClosed)
	}
	return Decision{Effects: []Effect{WriteStdin(c)}}
}

func (r *Registry) decideWritten(c Written) Decision {
	var events []Event
	if c.Bytes > 0 {
		events = append(events, &Stdin{Bytes: c.Bytes})
	}
	if p := r.processes[c.Handle]; c.Closed && p != nil && !p.StdinClosed {
		events = append(events, &StdinClosed{})
	}
	return r.fact(c.Handle, events...)
}

func (r *Registry) decideResize(c Resize) Decision {
	p, err := r.alive(c.Handle)
	switch {
	case err != nil:
		return reject(err)
	case !p.Spec.PTY:
		return reject(ErrNotAPTY)
	}
	return Decision{Effects: []Effect{SetSize(c)}}
}

// decideTick fires the deadlines that ran out and collects what was retained
// long enough.
func (r *Registry) decideTick(l Limits, now Instant) Decision {
	var d Decision
	for _, p := range r.deadlines.upTo(now.Mono) {
		d.Events = append(d.Events, HandleEvent{p.Handle, &Deadline{}})
		d.Effects = append(d.Effects, Send{p.Handle, sigkill, true})
	}
	for _, p := range r.expired(l, now) {
		c := collect(p.Handle, WhyRetention)
		d.Events = append(d.Events, c.Events...)
		d.Effects = append(d.Effects, c.Effects...)
	}
	return d.then(r.closeIdle(l, now))
}

func (r *Registry) decideEnded(c Ended) Decision {
	p := r.processes[c.Handle]
	if p == nil {
		return Decision{}
	}
	e := &Exited{ExitCode: -1, TimedOut: p.DeadlineHit, Reason: ReasonLost, Rusage: c.Rusage}
	if c.Known {
		e.ExitCode, e.Signal, e.CoreDumped = c.Code, c.Signal, c.CoreDumped
		if c.Signal != 0 {
			e.ExitCode = 128 + c.Signal
		}
		e.Reason = p.reason(c)
		e.TimedOut = e.Reason == ReasonTimeout
	}
	return r.fact(c.Handle, e)
}

// reason tells why a process whose status is known ended as it did.
func (p *Process) reason(c Ended) Reason {
	switch {
	case c.Signal == 0:
		return ReasonExited
	case p.DeadlineHit && c.Signal == sigkill:
		return ReasonTimeout
	case p.Sent.Has(c.Signal):
		return ReasonKilled
	case c.OOM && c.Signal == sigkill:
		return ReasonOOM
	}
	return ReasonSignal
}

// decideFound also kills a process whose deadline was recorded by an agent that
// died before it could act.
func (r *Registry) decideFound(c Found) Decision {
	d := r.fact(c.Handle, &c.Orphaned)
	if p := r.processes[c.Handle]; p != nil && p.State.Alive() && p.DeadlineHit {
		d.Effects = append(d.Effects, Send{c.Handle, sigkill, true})
	}
	return d
}

func (r *Registry) decideMissing(c Missing) Decision {
	if r.state(c.Handle) == StateRequested {
		return r.fact(c.Handle, &StartFailed{Error: "the agent ended before the start was known"})
	}
	return r.fact(c.Handle, &Lost{})
}
