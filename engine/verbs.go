package engine

import (
	"sync"
	"time"

	"supervisor/statemachine"
	"supervisor/wire"
)

// Verbs that changed nothing are counted, so that polling cannot push history
// out of the journal: of a run of like ones the first is a record of its own
// within firstWithin, the others are one record each countWindow.
const (
	firstWithin = 250 * time.Millisecond
	countWindow = time.Minute
	maxTallies  = 4096 // kinds of verbs counted at once; at more, all are written

	longestHandle = 64 // of those that a verb's record repeats
)

// tallyKey is what makes two verbs alike.
type tallyKey struct {
	peer, front, op, handle string
	code                    wire.Code
	rule                    string
}

// tally counts like verbs.
type tally struct {
	first    *statemachine.Verb // until it is written
	count    int                // further ones since then
	since    int64              // of those the first, unix ns
	longest  int64              // of those, microseconds
	windowAt time.Time          // when the count is written
}

// coalescer holds the tallies. It is safe for concurrent use.
type coalescer struct {
	mu      sync.Mutex
	tallies map[tallyKey]*tally
	dueAt   time.Time     // zero: nothing is due
	ready   chan struct{} // holds one when due moved to an earlier time
}

func (v *coalescer) init() {
	v.tallies = map[tallyKey]*tally{}
	v.ready = make(chan struct{}, 1)
}

// add counts a verb that has ended just now.
func (v *coalescer) add(c wire.Caller, handle string, err error) {
	if len(handle) > longestHandle {
		handle = "" // it names nothing
	}
	now := time.Now()
	event := verbEvent(c, err, now)
	key := tallyKey{c.Peer, c.Front, c.Op, handle, c.CodeOf(err), wire.RuleOf(err)}
	v.mu.Lock()
	defer v.mu.Unlock()
	t := v.tallies[key]
	if t == nil {
		v.tallies[key] = &tally{first: event.(*statemachine.Verb), windowAt: now.Add(countWindow)}
		v.dueBy(now.Add(firstWithin))
		if len(v.tallies) > maxTallies {
			v.dueBy(now)
		}
		return
	}
	if t.count == 0 {
		t.since, t.longest = now.UnixNano(), 0
	}
	t.count++
	t.longest = max(t.longest, now.Sub(c.Began).Microseconds())
}

// dueBy makes sure that the loop looks at the tallies by then.
func (v *coalescer) dueBy(at time.Time) {
	if !v.dueAt.IsZero() && !at.Before(v.dueAt) {
		return
	}
	v.dueAt = at
	select {
	case v.ready <- struct{}{}:
	default:
	}
}

// next is when something will be due.
func (v *coalescer) next() (time.Time, bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.dueAt, !v.dueAt.IsZero()
}

// due takes the records that are due: all first ones, and the counts whose
// window is over.
func (v *coalescer) due(now time.Time) []verbRecord {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.dueAt.IsZero() || now.Before(v.dueAt) {
		return nil
	}
	return v.take(now, len(v.tallies) > maxTallies)
}

// all takes everything.
func (v *coalescer) all() []verbRecord {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.take(time.Time{}, true)
}

type verbRecord struct {
	handle string
	verb   *statemachine.Verb
}

// take empties the tallies of what is due at now, or of everything, and sets
// the next due time.
func (v *coalescer) take(now time.Time, everything bool) []verbRecord {
	var out []verbRecord
	v.dueAt = time.Time{}
	for key, t := range v.tallies {
		if t.first != nil {
			out = append(out, verbRecord{key.handle, t.first})
			t.first = nil
		}
		if !everything && now.Before(t.windowAt) {
			if v.dueAt.IsZero() || t.windowAt.Before(v.dueAt) {
				v.dueAt = t.windowAt
			}
			continue
		}
		if t.count > 0 {
			out = append(out, verbRecord{key.handle, t.counted(key)})
		}
		delete(v.tallies, key)
	}
	return out
}

func (t *tally) counted(key tallyKey) *statemachine.Verb {
	return &statemachine.Verb{
		Op: key.op, Front: key.front, Peer: key.peer, OK: key.code == "", Code: string(key.code), Rule: key.rule,
		TookUS: t.longest, Count: t.count, First: t.since,
	}
}

// verbEvent is the event of one verb that ended at now.
func verbEvent(c wire.Caller, err error, now time.Time) statemachine.Event {
	return &statemachine.Verb{
		Op: c.Op, Front: c.Front, Peer: c.Peer, OK: err == nil, Code: string(c.CodeOf(err)), Rule: wire.RuleOf(err),
		TookUS: now.Sub(c.Began).Microseconds(), Count: 1,
	}
}

// verbSteps makes steps of counted verbs.
func (e *Engine) verbSteps(records []verbRecord) []step {
	var steps []step
	for _, r := range records {
		steps = append(steps, e.note(r.handle, r.verb))
	}
	return steps
}

// note is a step that records an event which changes no process.
func (e *Engine) note(handle string, ev statemachine.Event) step {
	return step{command: statemachine.Note{Handle: handle, Event: ev}}
}
