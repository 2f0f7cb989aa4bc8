package client

import (
	"errors"
	"fmt"

	"supervisor/wire"
)

// What an error can be, for errors.Is. What the agent answered is reached with
// errors.As and a *wire.Error.
var (
	ErrTooOld        = errors.New("the agent is too old")
	ErrUnknownHandle = errors.New("unknown handle")
	ErrNotRunning    = errors.New("process not running")
	ErrStdinClosed   = errors.New("stdin is closed")
	ErrWriteDeadline = errors.New("the process does not read its stdin")
	ErrNoTerminal    = errors.New("the process has no terminal")
	ErrSpawnFailed   = errors.New("the process cannot be started")
	ErrRegistryFull  = errors.New("no room for another process")
	// ErrJournalFailed is an agent that cannot record what it is asked to do,
	// and so does not do it.
	ErrJournalFailed   = errors.New("the journal cannot be written")
	ErrUpgradeRejected = errors.New("upgrade rejected")

	// ErrUnavailable is an agent that is on its way out: stopping, or handing
	// over to another image.
	ErrUnavailable = errors.New("the agent is stopping")

	// ErrBadAddress is an address that cannot be meant.
	ErrBadAddress = errors.New("bad address")
	// ErrDisconnected is an agent that cannot be reached, or a connection that
	// broke before the reply: what was asked may have been done or not.
	ErrDisconnected = errors.New("no connection to the agent")
	// ErrClosed is a call after Close.
	ErrClosed = errors.New("client is closed")
)

// kindError is an error with its own text that also is one of the sentinels.
type kindError struct {
	error
	kind error
}

func (e *kindError) Unwrap() error        { return e.error }
func (e *kindError) Is(target error) bool { return target == e.kind }

// errUnsent is an ErrDisconnected of a request that was not sent.
var errUnsent = errors.New("not sent")

func disconnected(cause error) error { return &kindError{cause, ErrDisconnected} }

// kinds are the codes that callers tell apart.
var kinds = map[wire.Code]error{
	wire.CodeUnknownHandle:   ErrUnknownHandle,
	wire.CodeNotRunning:      ErrNotRunning,
	wire.CodeStdinClosed:     ErrStdinClosed,
	wire.CodeWriteDeadline:   ErrWriteDeadline,
	wire.CodeNotAPTY:         ErrNoTerminal,
	wire.CodeSpawnFailed:     ErrSpawnFailed,
	wire.CodeRegistryFull:    ErrRegistryFull,
	wire.CodeJournalFailed:   ErrJournalFailed,
	wire.CodeUpgradeRejected: ErrUpgradeRejected,
	wire.CodeUpgrading:       ErrUnavailable,
	wire.CodeShuttingDown:    ErrUnavailable,
}

// notRunning is the one error text that the protocol fixes beside unknown op:
// agents of before the codes say it too.
const notRunning = "process not running"

// classify makes an agent's refusal one of the sentinels, if there is one.
func classify(err error) error {
	var refusal *wire.Error
	if !errors.As(err, &refusal) {
		return err
	}
	if refusal.Code == wire.CodeUnknownOp {
		return fmt.Errorf("%w (%w)", ErrTooOld, refusal)
	}
	if refusal.Code == wire.CodeInternal && refusal.Message == notRunning {
		return &kindError{refusal, ErrNotRunning}
	}
	if kind, ok := kinds[refusal.Code]; ok {
		return &kindError{refusal, kind}
	}
	return err
}
