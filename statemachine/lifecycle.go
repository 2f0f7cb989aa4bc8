package statemachine

import "fmt"

// State is where a process is in its life; the diagram is in the package doc.
type State int

// The states. StateAbsent is both a handle never heard of and one forgotten.
const (
	unset State = iota // of a table cell that nobody filled in
	never              // the event cannot happen in this state
	StateAbsent
	StateRequested
	StateRunning
	StateClosed
	StateExited
	StateDrained
)

var stateNames = map[State]string{
	StateAbsent:    "absent",
	StateRequested: "requested",
	StateRunning:   "running",
	StateClosed:    "closed",
	StateExited:    "exited",
	StateDrained:   "drained",
}

// String names the state.
func (s State) String() string { return stateNames[s] }

// Alive tells whether the process exists and was not reaped.
func (s State) Alive() bool { return s == StateRunning || s == StateClosed }

// Ended tells whether the process was reaped or lost.
func (s State) Ended() bool { return s == StateExited || s == StateDrained }

// row is a line of the lifecycle: what an event makes of each state.
type row struct {
	absent, requested, running, closed, exited, drained State
}

// lifecycle is the life of a process: for every event about one and every
// state, the state that follows, or never. Input that was accepted, a new
// size and a signal may be recorded after the exit that they raced with.
var lifecycle = map[Kind]row{
	//                 absent          requested     running       closed        exited        drained
	KindRequested:   {StateRequested, never, never, never, never, never},
	KindStarted:     {never, StateRunning, never, never, never, never},
	KindStartFailed: {never, StateAbsent, never, never, never, never},
	KindStdin:       {never, never, StateRunning, StateClosed, StateExited, StateDrained},
	KindStdinClosed: {never, never, StateRunning, StateClosed, StateExited, StateDrained},
	KindSignalled:   {never, never, StateRunning, StateClosed, StateExited, StateDrained},
	KindResized:     {never, never, StateRunning, StateClosed, StateExited, StateDrained},
	KindDeadline:    {never, never, StateRunning, StateClosed, never, never},
	KindExited:      {never, never, StateExited, StateDrained, never, never},
	KindDrained:     {never, never, StateClosed, never, StateDrained, never},
	KindOrphaned:    {never, never, StateRunning, StateClosed, StateExited, never},
	KindLost:        {never, never, StateExited, StateDrained, never, never},
	KindDelivered:   {never, never, never, never, StateExited, StateDrained},
	KindCollected:   {never, never, never, never, StateAbsent, StateAbsent},
}

// next looks up the state that follows; never also for a kind that is not
// about a process.
func next(s State, k Kind) State {
	r, ok := lifecycle[k]
	if !ok {
		return never
	}
	switch s {
	case StateAbsent:
		return r.absent
	case StateRequested:
		return r.requested
	case StateRunning:
		return r.running
	case StateClosed:
		return r.closed
	case StateExited:
		return r.exited
	case StateDrained:
		return r.drained
	}
	return never
}

// TransitionError is a record that cannot follow what came before it.
type TransitionError struct {
	Seq    uint64
	Handle string
	State  State
	Kind   Kind
}

// Error names the record and why it cannot be.
func (e *TransitionError) Error() string {
	return fmt.Sprintf("record %d: %s of %s cannot follow in state %s", e.Seq, e.Kind, e.Handle, e.State)
}
