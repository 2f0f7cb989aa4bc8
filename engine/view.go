package engine

import (
	"cmp"
	"slices"
	"strings"
	"sync"

	"supervisor/journal"
	"supervisor/statemachine"
	"supervisor/wire"
)

// view is what readers see: one immutable row a process, replaced after each
// commit that changed it.
type view struct {
	mu   sync.RWMutex
	rows map[string]*row

	procIDs  map[string]string       // handles by the agent front's names
	sessions map[string]*liveSession // of the agent front, by public name
}

// row is a process as of the last commit about it.
type row struct {
	order    uint64 // of starts
	proc     wire.Proc
	output   statemachine.Drained // what the journal knows of the streams
	replaced chan struct{}        // closed when this row is no longer the newest
	agent    agentRow
	life     *life
}

func (v *view) init() {
	v.rows, v.procIDs, v.sessions = map[string]*row{}, map[string]string{}, map[string]*liveSession{}
}

// get returns the newest row, or nil.
func (v *view) get(handle string) *row {
	v.mu.RLock()
	defer v.mu.RUnlock()
	return v.rows[handle]
}

// set replaces a row; nil removes it.
func (v *view) set(handle string, next *row) {
	v.mu.Lock()
	old := v.rows[handle]
	if next == nil {
		delete(v.rows, handle)
	} else {
		v.rows[handle] = next
	}
	v.setAgent(old, next)
	v.mu.Unlock()
	if old != nil {
		close(old.replaced)
	}
}

// len is the number of rows.
func (v *view) len() int {
	v.mu.RLock()
	defer v.mu.RUnlock()
	return len(v.rows)
}

// all returns the rows in the order of their starts.
func (v *view) all() []*row {
	v.mu.RLock()
	rows := make([]*row, 0, len(v.rows))
	for _, r := range v.rows {
		rows = append(rows, r)
	}
	v.mu.RUnlock()
	slices.SortFunc(rows, func(a, b *row) int { return cmp.Compare(a.order, b.order) })
	return rows
}

// publish shows readers what a turn changed. A start that is not known to have
// succeeded has no row yet.
func (e *Engine) publish(out *outcome, commitErr error) {
	if commitErr != nil {
		for handle := range out.touched {
			e.unjournaled[handle] = true
		}
	} else {
		for handle := range e.unjournaled {
			out.touched[handle] = true
		}
		clear(e.unjournaled)
	}
	for handle := range out.touched {
		e.view.set(handle, e.row(handle))
	}
	e.view.publishSessions(out.records)
	if i := slices.IndexFunc(out.records, wakesReaders); i >= 0 {
		e.news.add(out.records[i].Seq, e.registry.Seq())
		e.committed(e.journal.Head())
	}
}

// committed wakes those who wait for a record, once they can read it. It is
// called from the loop and from the journal.
func (e *Engine) committed(head journal.Head) {
	if e.news.take(head.Seq) {
		e.loud.wake()
	}
}

// news is the range of records that readers wait for and cannot read yet.
type news struct {
	mu        sync.Mutex
	low, high uint64 // low is 0 while there is none
}

func (n *news) add(from, through uint64) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.low == 0 {
		n.low = from
	}
	n.high = through
}

// take tells whether the records up to head have any of them, and forgets these.
func (n *news) take(head uint64) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.low == 0 || head < n.low {
		return false
	}
	n.low = head + 1
	if n.high <= head {
		n.low = 0
	}
	return true
}

// row builds the row of a process, nil where it has none.
func (e *Engine) row(handle string) *row {
	p := e.registry.Get(handle)
	if p == nil || p.State == statemachine.StateRequested {
		return nil
	}
	return &row{
		order: p.RequestedSeq, proc: procRow(p, e.unjournaled[handle]), output: p.Output,
		replaced: make(chan struct{}), agent: agentRowOf(p),
	}
}

// procRow is a process as proc_list shows it, less the stream lengths, which
// grow without a record.
func procRow(p *statemachine.Process, unjournaled bool) wire.Proc {
	r := wire.Proc{
		Handle: p.Handle, PID: p.Started.PID, Cmd: p.Spec.Cmd, PTY: p.Spec.PTY, Session: p.Spec.Session,
		StartedAt: p.StartedAt.Wall / 1e9, Running: p.State.Alive(),
		Drained: p.State == statemachine.StateClosed || p.State == statemachine.StateDrained,
	}
	if p.State.Ended() {
		r.ExitCode, r.Signal, r.TimedOut = p.Exit.ExitCode, p.Exit.Signal, p.Exit.TimedOut
		r.ExitedAt, r.Reason = p.ExitedAt.Wall/1e9, string(p.Exit.Reason)
		if usage := wire.Rusage(p.Exit.Rusage); p.Exit.Rusage.Known() {
			r.Rusage = &usage
		}
		r.Unjournaled = unjournaled
	}
	return r
}

// wakesReaders tells whether a journal_read that waits should be woken for a
// record. Those of the journal's own verbs must not: a reader would wake
// itself for ever.
func wakesReaders(r *statemachine.Record) bool {
	v, ok := r.Event.(*statemachine.Verb)
	return !ok || !strings.HasPrefix(v.Op, "journal_")
}

// broadcast wakes all that wait at once.
type broadcast struct {
	mu sync.Mutex
	ch chan struct{}
}

func (b *broadcast) init() { b.ch = make(chan struct{}) }

// next is closed at the next wake.
func (b *broadcast) next() <-chan struct{} {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.ch
}

func (b *broadcast) wake() {
	b.mu.Lock()
	defer b.mu.Unlock()
	close(b.ch)
	b.ch = make(chan struct{})
}
