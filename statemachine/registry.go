package statemachine

import (
	"cmp"
	"slices"
)

// Registry is what the journal says there is. It is changed by Apply alone
// and owned by one goroutine. The cost of a record does not grow with it.
type Registry struct {
	seq       uint64
	partial   bool
	processes map[string]*Process
	keys      map[string]*Key // of starts, by name
	forgotten []*Key          // those whose record was collected, oldest first
	sessions  map[string]*Session
	idle      []*Session // those without a connection, in the order of leaving
	deadlines queue      // alive with a deadline that has not run out, by its time
	drained   queue      // ended and drained, by the sequence of the exit
	undrained queue      // ended, a stream still open, likewise
}

// NewRegistry returns the registry before the first record.
func NewRegistry() *Registry {
	r := &Registry{processes: map[string]*Process{}, keys: map[string]*Key{}, sessions: map[string]*Session{}}
	r.deadlines.slot = func(p *Process) *int { return &p.deadlineSlot }
	r.drained.slot = func(p *Process) *int { return &p.drainedSlot }
	r.undrained.slot = func(p *Process) *int { return &p.undrainedSlot }
	return r
}

// Process is one record of the registry. Readers outside the package must not
// change it; Apply does, so what is kept across records must be a copy.
type Process struct {
	Handle       string
	State        State
	Spec         Spec
	RequestedSeq uint64 // sequence of proc.requested: the order of starts
	Started      Started
	StartedAt    Instant
	StdinClosed  bool
	Orphaned     bool
	DeadlineHit  bool
	Killed       bool      // by the agent front's proc/kill, whatever it made of it
	Delivered    bool      // its session's client was sent the exit
	Sent         SignalSet // signals that verbs sent
	Exit         Exited
	ExitedAt     Instant
	ExitedSeq    uint64
	Output       Drained

	deadlineSlot  int // places in the registry's queues, 0 for none
	drainedSlot   int
	undrainedSlot int
}

// SignalSet is a set of the signals 1 to 64; no other number is ever in it.
type SignalSet uint64

// Has tells whether the signal is in the set.
func (s SignalSet) Has(signal int) bool { return s&SignalSet(0).With(signal) != 0 }

// With returns the set with the signal added.
func (s SignalSet) With(signal int) SignalSet { return s | 1<<uint(signal-1) }

// deadline is the monotonic time at which the process is to be killed.
func (p *Process) deadline() (mono int64, ok bool) {
	const most = 1 << 62 / 1_000_000 // ms; anything longer is no limit
	ms := p.Spec.TimeoutMS
	return p.StartedAt.Mono + ms*1_000_000, ms > 0 && ms < most
}

// Seq is the sequence of the last record applied.
func (r *Registry) Seq() uint64 { return r.seq }

// Partial tells whether an event of an unknown kind was passed over.
func (r *Registry) Partial() bool { return r.partial }

// Len is the number of records, those of starts under way included.
func (r *Registry) Len() int { return len(r.processes) }

// Get returns a process, or nil.
func (r *Registry) Get(handle string) *Process { return r.processes[handle] }

// Processes returns all processes in the order of their starts.
func (r *Registry) Processes() []*Process {
	all := make([]*Process, 0, len(r.processes))
	for _, p := range r.processes {
		all = append(all, p)
	}
	slices.SortFunc(all, func(a, b *Process) int { return cmp.Compare(a.RequestedSeq, b.RequestedSeq) })
	return all
}
