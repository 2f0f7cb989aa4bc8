package procs

import (
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Observation is what happened to a process: Spawned, SpawnFailed, Exited or
// Closed. The set is closed.
type Observation interface{ handle() string }

// Instant is one moment on the wall clock (Unix nanoseconds) and on
// CLOCK_MONOTONIC (nanoseconds).
type Instant struct {
	Wall int64
	Mono int64
}

// now reads both clocks. Go's own monotonic reading counts from the start of
// the program, so the kernel's is asked: it means the same after an execve.
func now() Instant {
	var ts unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts)
	return Instant{Wall: time.Now().UnixNano(), Mono: ts.Nano()}
}

// Status is how a process ended.
type Status struct {
	// Known is false when the status cannot be had: the process was not our
	// child and somebody else reaped it. The rest is zero then.
	Known      bool
	Code       int            // what it passed to exit; 0 for a death by signal
	Signal     syscall.Signal // what killed it; 0 for an exit
	CoreDumped bool
}

// statusFromWait decodes the status word of wait(2).
func statusFromWait(word int) Status {
	ws := syscall.WaitStatus(word)
	if ws.Signaled() {
		return Status{Known: true, Signal: ws.Signal(), CoreDumped: ws.CoreDump()}
	}
	return Status{Known: true, Code: ws.ExitStatus()}
}

// Rusage is what a process and its reaped children used. It is zero for a
// process that was not our child.
type Rusage struct {
	UserUS, SysUS int64 // CPU time in microseconds
	MaxRSSKiB     int64
}

// Spawned: the program runs (execve succeeded).
type Spawned struct {
	Handle string
	PID    int
	// StartTicks is field 22 of /proc/PID/stat: with it a pid is an identity.
	StartTicks uint64
	// The inodes of the output pipes, by which Adopt finds them; 0 with a PTY.
	StdoutIno, StderrIno uint64
	At                   Instant
}

// SpawnFailed: nothing runs and nothing is left of the attempt.
type SpawnFailed struct {
	Handle string
	// Err is a *StartError, or ErrClosed.
	Err error
	At  Instant
}

// Exited: the leader was reaped. Descendants may live on.
type Exited struct {
	Handle string
	Status Status
	Rusage Rusage
	At     Instant
}

// Closed: both streams were read to their end, once per process. It may come
// before Exited.
type Closed struct {
	Handle                 string
	StdoutLen, StderrLen   int64  // bytes since the start
	StdoutTail, StderrTail []byte // the last TailBytes, owned by the receiver
	// Of the whole stream, in hex; empty where bytes were lost, or came
	// faster than they could be hashed.
	StdoutSHA256, StderrSHA256 string
	At                         Instant
}

func (o Spawned) handle() string     { return o.Handle }
func (o SpawnFailed) handle() string { return o.Handle }
func (o Exited) handle() string      { return o.Handle }
func (o Closed) handle() string      { return o.Handle }
