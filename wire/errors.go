package wire

import (
	"errors"
	"fmt"
)

// Code is the stable, machine-readable half of an error. Clients may branch on
// it; the message beside it is for people and may change.
type Code string

// The codes of the guest protocol.
const (
	CodeBadRequest      Code = "bad_request"
	CodeUnknownHandle   Code = "unknown_handle"
	CodeNotRunning      Code = "not_running"
	CodeRegistryFull    Code = "registry_full"
	CodeSpawnFailed     Code = "spawn_failed"
	CodeNotAPTY         Code = "not_a_pty"
	CodeStdinClosed     Code = "stdin_closed"
	CodeWriteDeadline   Code = "write_deadline"
	CodeUpgradeRejected Code = "upgrade_rejected"
	CodeUpgrading       Code = "upgrading"
	CodeJournalFailed   Code = "journal_failed"
	CodeShuttingDown    Code = "shutting_down"
	CodeInternal        Code = "internal"

	// Those of the agent front alone.
	CodeUnknownProc    Code = "unknown_proc"
	CodeProcDead       Code = "proc_dead"
	CodeProcLimit      Code = "proc_limit"
	CodeNotAllowed     Code = "not_allowed"
	CodeUnknownSession Code = "unknown_session"

	// CodeUnknownOp stands in journal records only: on the wire an unknown op
	// keeps the exact answer of older agents, which carries no code.
	CodeUnknownOp Code = "unknown_op"
)

// Error is what a verb answers when it fails: a stable code and a sentence.
type Error struct {
	Code    Code
	Message string
	Rule    string // what refused it, where that was a rule; for the journal alone
}

// Error returns the sentence alone: it goes out as the "error" field.
func (e *Error) Error() string { return e.Message }

// Errorf makes an Error.
func Errorf(code Code, format string, args ...any) *Error {
	return &Error{Code: code, Message: fmt.Sprintf(format, args...)}
}

// by names the rule that refused.
func (e *Error) by(rule string) *Error {
	e.Rule = rule
	return e
}

// CodeOf returns the code of an error: "" for nil, internal for an error that
// carries none.
func CodeOf(err error) Code {
	var e *Error
	switch {
	case err == nil:
		return ""
	case errors.As(err, &e):
		return e.Code
	default:
		return CodeInternal
	}
}

// RuleOf returns the rule that an error names, or "".
func RuleOf(err error) string {
	var e *Error
	if errors.As(err, &e) {
		return e.Rule
	}
	return ""
}

// CodeOf returns the code of an error as the caller's front says it.
func (c Caller) CodeOf(err error) Code {
	code := CodeOf(err)
	if c.Front != frontA2E {
		return code
	}
	switch code {
	case CodeUnknownHandle:
		return CodeUnknownProc
	case CodeNotRunning:
		return CodeProcDead
	}
	return code
}
