package engine

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"os"
	"time"

	"supervisor/procs"
	"supervisor/statemachine"
	"supervisor/wire"
)

var _ wire.Backend = (*Engine)(nil)

// newCall is a request about a handle.
func newCall(c wire.Caller, handle string) *call {
	return &call{caller: c, handle: handle, done: make(chan struct{})}
}

// do submits a request, unless the gate is shut or it is too large to succeed,
// and waits for its outcome.
func (e *Engine) do(ctx context.Context, c *call, cmd statemachine.Command) error {
	err := e.gate.why()
	if start, ok := cmd.(statemachine.Start); ok && err == nil {
		err = checkSize(start.Spec)
	}
	if err != nil {
		e.verbs.add(c.caller, c.handle, err)
		return err
	}
	return e.submit(ctx, step{command: cmd, call: c})
}

// submit gives a step to the loop and waits until its call is settled. When
// ctx ends first the request still runs its course.
func (e *Engine) submit(ctx context.Context, s step) error {
	select {
	case e.inbox <- s:
	case <-ctx.Done():
		return ctx.Err()
	case <-e.stopped:
		return errShuttingDown
	}
	select {
	case <-s.call.done:
		return s.call.err
	case <-ctx.Done():
		return ctx.Err()
	case <-e.stopped:
		return errShuttingDown
	}
}

// Start implements wire.Backend.
func (e *Engine) Start(ctx context.Context, caller wire.Caller, r wire.StartRequest) (wire.StartReply, error) {
	c := newCall(caller, newHandle())
	spec := e.processSpec(r)
	c.spawn = func() { e.table.Start(c.handle, spec) }
	err := e.do(ctx, c, statemachine.Start{Handle: c.handle, Spec: e.journalSpec(r)})
	if err != nil {
		return wire.StartReply{}, err
	}
	return wire.StartReply{Handle: c.handle, PID: c.pid}, nil
}

// newHandle names a process. The kernel's randomness makes it new even among
// clones of one snapshot.
func newHandle() string {
	var b [8]byte
	rand.Read(b[:]) // never fails, see crypto/rand
	return "p_" + hex.EncodeToString(b[:])
}

// Signal implements wire.Backend.
func (e *Engine) Signal(ctx context.Context, caller wire.Caller, r wire.SignalRequest) (wire.Ack, error) {
	c := newCall(caller, r.Handle)
	c.anyway = true
	err := e.do(ctx, c, statemachine.Signal(r))
	return ack(c, err)
}

// Kill implements wire.Backend.
func (e *Engine) Kill(ctx context.Context, caller wire.Caller, r wire.HandleRequest) (wire.Ack, error) {
	c := newCall(caller, r.Handle)
	c.anyway = true
	err := e.do(ctx, c, statemachine.Kill{Handle: r.Handle, Leftovers: e.table.Leftovers(r.Handle)})
	return ack(c, err)
}

// Resize implements wire.Backend.
func (e *Engine) Resize(ctx context.Context, caller wire.Caller, r wire.ResizeRequest) (wire.Ack, error) {
	c := newCall(caller, r.Handle)
	err := e.do(ctx, c, statemachine.Resize(r))
	return ack(c, err)
}

func ack(c *call, err error) (wire.Ack, error) {
	if err != nil {
		return wire.Ack{}, err
	}
	return wire.Ack{Unjournaled: c.unjournaled}, nil
}

// Stdin implements wire.Backend.
func (e *Engine) Stdin(ctx context.Context, caller wire.Caller, r wire.StdinRequest) (wire.StdinReply, error) {
	c := newCall(caller, r.Handle)
	c.write = func() {
		e.table.Stdin(r.Handle, r.Data, r.CloseStdin, func(written int, err error) { e.wrote(c, r, written, err) })
	}
	err := e.do(ctx, c, statemachine.Write{Handle: r.Handle})
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return wire.StdinReply{}, err // the loop still owns the call
	}
	return wire.StdinReply{Written: c.written}, err
}

// wrote tells the loop what became of a write.
func (e *Engine) wrote(c *call, r wire.StdinRequest, written int, err error) {
	c.written, c.err = written, writeError(err)
	e.observed.addStep(step{
		command: statemachine.Written{
			Handle: r.Handle, Bytes: int64(written),
			Closed: r.CloseStdin && err == nil && !e.isPTY(r.Handle) || errors.Is(err, procs.ErrStdinClosed),
		},
		call: c, final: true,
	})
}

func (e *Engine) isPTY(handle string) bool {
	r := e.view.get(handle)
	return r != nil && r.proc.PTY
}

func writeError(err error) error {
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return wire.Errorf(wire.CodeWriteDeadline, "the process did not take its input within 5 s")
	}
	return processError(err)
}

// Note implements wire.Backend.
func (e *Engine) Note(c wire.Caller, handle string, err error) { e.verbs.add(c, handle, err) }

// Info implements wire.Backend.
func (e *Engine) Info() wire.InfoReply {
	return wire.InfoReply{
		AgentVersion: e.cfg.Version,
		ImageSHA256:  e.cfg.ImageSHA256,
		Caps:         []string{"proc", "resize", "follow", "journal", "ids", "idempotency", "upgrade"},
		Features:     e.table.Features(),
		PID:          os.Getpid(),
		UptimeSec:    (e.now().Mono - e.born.Mono) / int64(time.Second),
		ProcCount:    e.view.len(),
		Journal:      e.journalState(),
		Reaped:       e.table.Reaped(),
	}
}

// List implements wire.Backend.
func (e *Engine) List() wire.ListReply {
	rows := e.view.all()
	reply := wire.ListReply{Procs: make([]wire.Proc, len(rows))}
	for i, r := range rows {
		p := r.proc
		p.StdoutLen = e.stream(r, procs.Stdout).End()
		p.StderrLen = e.stream(r, procs.Stderr).End()
		reply.Procs[i] = p
	}
	return reply
}

func unknownHandle() error { return rejection(statemachine.ErrUnknownHandle) }

// Wait implements wire.Backend.
func (e *Engine) Wait(ctx context.Context, r wire.WaitRequest) (wire.WaitReply, error) {
	timeout := r.TimeoutMS
	if timeout == 0 || timeout > wire.MaxWaitMS {
		timeout = wire.MaxWaitMS
	}
	timer := time.NewTimer(time.Duration(timeout) * time.Millisecond)
	defer timer.Stop()
	row := e.view.get(r.Handle)
	for ; row != nil; row = e.view.get(r.Handle) {
		if !row.proc.Running {
			return wire.WaitReply{Exit: exitOf(row)}, nil
		}
		select {
		case <-row.replaced:
		case <-timer.C:
			return wire.WaitReply{Exit: wire.Exit{Running: true, TimedOut: true}}, nil
		case <-ctx.Done():
			return wire.WaitReply{}, ctx.Err()
		case <-e.gate.closed():
			if err := e.gate.why(); err != nil {
				return wire.WaitReply{}, err
			}
		}
	}
	return wire.WaitReply{}, unknownHandle()
}

// exitOf is how a process ended, or that it runs.
func exitOf(r *row) wire.Exit {
	return wire.Exit{
		Running: r.proc.Running, ExitCode: r.proc.ExitCode, Signal: r.proc.Signal,
		TimedOut: r.proc.TimedOut, Reason: r.proc.Reason, Unjournaled: r.proc.Unjournaled,
	}
}
