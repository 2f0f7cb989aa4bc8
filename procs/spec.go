package procs

import (
	"errors"
	"log/slog"
	"runtime/debug"
	"time"
)

// Errors of the methods of Table and of the done functions of Stdin. An
// expired stdin deadline is os.ErrDeadlineExceeded.
var (
	// ErrNotRunning: no such process, not spawned yet, or reaped already.
	ErrNotRunning = errors.New("process not running")
	// ErrStdinClosed: stdin was closed by us or by the process, or never was a pipe.
	ErrStdinClosed = errors.New("stdin is closed")
	// ErrNotAPTY: the process has no terminal.
	ErrNotAPTY = errors.New("process has no terminal")
	// ErrClosed: the Table was closed before the process was spawned.
	ErrClosed = errors.New("process table is closed")
)

// Options configure a Table.
type Options struct {
	// Dir is where rings live: <Dir>/<handle>/{stdout,stderr}.<first offset
	// in 16 hex digits>. It is created when missing.
	Dir string
	// RingBytes is the number of bytes kept of each stream; 0 means 262144.
	RingBytes int64
	// TailBytes is how much of the end of each stream Closed carries.
	TailBytes int
	// Observe is told what happens: Spawned or SpawnFailed first, for each
	// process in order. It must not block and must not call the Table.
	Observe func(Observation)
	// Spawns is the number of spawns in flight; 0 means 4. More of them only
	// lengthen the tail of the latency. The rest is queued in order.
	Spawns int
	// StdinDeadline bounds one stdin write from the moment it is the first
	// in line; 0 means 5 s.
	StdinDeadline time.Duration
	// Crashed is called where a goroutine of the Table panics, and must not
	// return; nil lets the process die of it.
	Crashed func(reason any, stack []byte)
	// Log gets what nobody can be told otherwise; nil discards.
	Log *slog.Logger
}

func (o Options) withDefaults() Options {
	if o.RingBytes <= 0 {
		o.RingBytes = 256 << 10
	}
	if o.Spawns <= 0 {
		o.Spawns = 4
	}
	if o.StdinDeadline <= 0 {
		o.StdinDeadline = 5 * time.Second
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	return o
}

// Recover is deferred: it passes a panic on to crashed, if there is one.
func Recover(crashed func(reason any, stack []byte)) {
	if crashed == nil {
		return
	}
	if reason := recover(); reason != nil {
		crashed(reason, debug.Stack())
		panic(reason)
	}
}

// Spec says what to run. Strings must not contain NUL.
type Spec struct {
	// Argv[0] without a slash is looked up on the PATH of Env, with one it is
	// relative to Cwd.
	Argv []string
	Path string   // what to execute instead, absolute; empty: what Argv[0] finds
	Cwd  string   // empty: the agent's own
	Env  []string // the complete environment, final
	PTY  bool     // a terminal for all three descriptors; all output is on Stdout
	// Cols and Rows are the terminal's first size; 0 leaves it unset.
	Cols, Rows uint16
	StdinNull  bool // stdin is /dev/null, not a pipe; ignored with PTY

	attended bool // no later agent takes it over
}

// Stream names one of the two output streams.
type Stream int

// The two streams. They index arrays.
const (
	Stdout Stream = iota
	Stderr
)

var streamNames = [...]string{Stdout: "stdout", Stderr: "stderr"}

func (s Stream) String() string { return streamNames[s] }
