package engine

import (
	"errors"
	"syscall"

	"supervisor/procs"
	"supervisor/statemachine"
	"supervisor/wire"
)

// perform carries out an effect. It hands over and never waits: what takes
// time comes back as an observation. When the records before it could not be
// made durable, only what ends processes or lets go of memory is still done.
func (e *Engine) perform(f effectOf, commitErr error) {
	switch effect := f.effect.(type) {
	case statemachine.Spawn:
		e.performSpawn(f.call, commitErr)
	case statemachine.Send:
		e.performSend(f.call, effect)
	case statemachine.WriteStdin:
		if commitErr != nil {
			f.call.settle(journalError(commitErr))
			return
		}
		f.call.write()
	case statemachine.SetSize:
		e.performSetSize(f.call, effect)
	case statemachine.Forget:
		e.table.Forget(effect.Handle)
	case statemachine.ForgetSession:
		e.forgetSession(effect.Name)
	}
}

// performSpawn starts a process, or, without its durable intent, does not.
func (e *Engine) performSpawn(c *call, commitErr error) {
	if commitErr == nil {
		c.spawn()
		return
	}
	delete(e.starting, c.handle)
	c.err = journalError(commitErr)
	e.followUp(step{
		command: statemachine.SpawnFailed{Handle: c.handle, Error: c.err.Error()},
		call:    c, final: true,
	})
}

// performSend sends a signal, and lets the next turn journal how that went for
// the verb that asked.
func (e *Engine) performSend(c *call, s statemachine.Send) {
	err := e.table.Signal(s.Handle, syscall.Signal(s.Signal), s.Group)
	if c == nil {
		if err != nil && !errors.Is(err, procs.ErrNotRunning) {
			e.cfg.Log.Warn("signal not sent", "handle", s.Handle, "signal", s.Signal, "error", err)
		}
		return
	}
	c.err = processError(err)
	e.followUp(step{call: c, final: true})
}

func (e *Engine) performSetSize(c *call, s statemachine.SetSize) {
	err := e.table.Resize(s.Handle, uint16(s.Cols), uint16(s.Rows))
	if c.err = processError(err); err != nil {
		e.followUp(step{call: c, final: true})
		return
	}
	e.followUp(step{command: statemachine.Sized(s), call: c, final: true})
}

// followUp queues a step for the next turn.
func (e *Engine) followUp(s step) { e.followUps = append(e.followUps, s) }

// rejection turns the state machine's word into the protocol's.
func rejection(err error) error {
	code, rule := wire.CodeInternal, ""
	switch {
	case errors.Is(err, statemachine.ErrUnknownHandle):
		code = wire.CodeUnknownHandle
	case errors.Is(err, statemachine.ErrNotRunning):
		code = wire.CodeNotRunning
	case errors.Is(err, statemachine.ErrRegistryFull):
		code = wire.CodeRegistryFull
	case errors.Is(err, statemachine.ErrNotAPTY):
		code = wire.CodeNotAPTY
	case errors.Is(err, statemachine.ErrStdinClosed):
		code = wire.CodeStdinClosed
	case errors.Is(err, statemachine.ErrKeyInUse):
		code = wire.CodeBadRequest
	case errors.Is(err, statemachine.ErrUnknownSession):
		code = wire.CodeUnknownSession
	case errors.Is(err, statemachine.ErrSessionFull):
		code, rule = wire.CodeProcLimit, "quota"
	}
	return &wire.Error{Code: code, Message: err.Error(), Rule: rule}
}

// processError turns an error of the processes' table into the protocol's.
func processError(err error) error {
	var failed *procs.StartError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &failed):
		return wire.Errorf(wire.CodeSpawnFailed, "%s", failed)
	case errors.Is(err, procs.ErrNotRunning):
		return rejection(statemachine.ErrNotRunning)
	case errors.Is(err, procs.ErrNotAPTY):
		return rejection(statemachine.ErrNotAPTY)
	case errors.Is(err, procs.ErrStdinClosed):
		return rejection(statemachine.ErrStdinClosed)
	case errors.Is(err, procs.ErrParked):
		return errUpgrading
	}
	return wire.Errorf(wire.CodeInternal, "%s", err)
}

// journalError says that nothing was done for want of a journal.
func journalError(err error) error {
	return wire.Errorf(wire.CodeJournalFailed, "the journal cannot record it: %s", err)
}
