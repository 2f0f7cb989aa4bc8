package engine

import (
	"context"
	"errors"
	"io"
	"math"
	"syscall"
	"time"

	"supervisor/procs"
	"supervisor/wire"
)

// The older verbs never enter the registry: what they run ends with them, and
// the journal has the verb alone.

// attend does what a verb asks for, which ends with ctx at the latest, and
// journals the verb before it returns.
func (e *Engine) attend(ctx context.Context, caller wire.Caller, do func(context.Context) error) error {
	if err := e.mayAttend(); err != nil {
		e.verbs.add(caller, "", err)
		return err
	}
	c := newCall(caller, "")
	c.attended = true
	e.attended.Add(1) // until it is settled
	ctx, done := e.gate.within(ctx)
	defer done()
	c.err = do(ctx)
	e.observed.addStep(step{call: c, final: true})
	select {
	case <-c.done:
	case <-e.stopped: // the loop, which owns the call, has ended
	}
	return c.err
}

// mayAttend refuses what could not be journaled.
func (e *Engine) mayAttend() error {
	if err := e.gate.why(); err != nil {
		return err
	}
	if e.health.Load() != journalOK {
		return wire.Errorf(wire.CodeJournalFailed, "the journal cannot record anything: its state is %s", e.journalState())
	}
	return nil
}

// errTimedOut ends an exec whose time is up.
var errTimedOut = errors.New("timed out")

// Exec implements wire.Older.
func (e *Engine) Exec(ctx context.Context, caller wire.Caller, r wire.ExecRequest) (reply wire.ExecReply, err error) {
	err = e.attend(ctx, caller, func(ctx context.Context) error {
		if 0 < r.TimeoutMS && r.TimeoutMS <= math.MaxInt64/int64(time.Millisecond) {
			var cancel context.CancelFunc
			ctx, cancel = context.WithTimeoutCause(ctx, time.Duration(r.TimeoutMS)*time.Millisecond, errTimedOut)
			defer cancel()
		}
		out := [2]collector{{room: r.Room}, {room: r.Room}}
		spec := e.programSpec(r.Cmd, r.Cwd, r.Env)
		status, err := e.table.Run(ctx, spec, r.Stdin, [2]io.Writer{&out[procs.Stdout], &out[procs.Stderr]})
		if err != nil {
			return spawnError(err)
		}
		reply = wire.ExecReply{
			Stdout: out[procs.Stdout].kept, Stderr: out[procs.Stderr].kept, ExitCode: status.Code,
			Truncated: out[procs.Stdout].truncated || out[procs.Stderr].truncated,
		}
		return cutShort(ctx, status, &reply)
	})
	return reply, err
}

// cutShort completes the reply for a program that did not end by itself. The
// error is why nobody gets the reply.
func cutShort(ctx context.Context, status procs.Status, reply *wire.ExecReply) error {
	if status.Signal == 0 && status.Known {
		return nil
	}
	reply.ExitCode = -1
	if status.Signal != syscall.SIGKILL {
		return nil
	}
	switch cause := context.Cause(ctx); cause {
	case errTimedOut:
		reply.TimedOut = true
		return nil
	default:
		return cause
	}
}

// programSpec is what an older verb runs.
func (e *Engine) programSpec(cmd []string, cwd string, env []string) procs.Spec {
	return e.processSpec(wire.StartRequest{Cmd: cmd, Cwd: cwd, Env: env})
}

// collector keeps the beginning of what a program writes, as far as there is
// room for it.
type collector struct {
	room      func(bytes int64) bool
	kept      []byte
	truncated bool
}

// firstRoom is what a collector begins with; then it doubles.
const firstRoom = 4 << 10

// Write keeps what it can. It never fails.
func (c *collector) Write(p []byte) (int, error) {
	for rest := p; len(rest) > 0 && !c.truncated; {
		if len(c.kept) == cap(c.kept) && !c.grow() {
			c.truncated = true
			break
		}
		n := min(len(rest), cap(c.kept)-len(c.kept))
		c.kept = append(c.kept, rest[:n]...)
		rest = rest[n:]
	}
	return len(p), nil
}

func (c *collector) grow() bool {
	size := min(max(firstRoom, 2*cap(c.kept)), wire.MaxExecOutput)
	more := int64(size - cap(c.kept))
	if more <= 0 || c.room != nil && !c.room(more) {
		return false
	}
	c.kept = append(make([]byte, 0, size), c.kept...)
	return true
}

// terminal is the process of a pty verb. Its end of the wire closes it.
type terminal struct {
	*procs.Child
	done func()
}

// Terminal implements wire.Older.
func (e *Engine) Terminal(ctx context.Context, caller wire.Caller, r wire.TerminalRequest) (io.ReadWriteCloser, error) {
	var t terminal
	err := e.attend(ctx, caller, func(context.Context) (err error) {
		spec := e.programSpec(r.Cmd, r.Cwd, r.Env)
		spec.PTY = true
		if t.Child, err = e.table.Attend(spec); err != nil {
			return spawnError(err)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	ctx, t.done = e.gate.within(ctx)
	context.AfterFunc(ctx, t.Kill)
	return t, nil
}

// Close ends the process.
func (t terminal) Close() error {
	t.done()
	return t.Child.Close()
}
