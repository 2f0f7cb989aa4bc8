package engine

import (
	"errors"

	"supervisor/journal"
	"supervisor/statemachine"
	"supervisor/wire"
)

// journalHealth is what agent_info says of the journal.
type journalHealth = int32

const (
	journalOK journalHealth = iota
	journalFull
	journalFailed
)

func (e *Engine) setHealth(h journalHealth) {
	if old := e.health.Swap(h); old != h {
		e.cfg.Log.Warn("journal", "was", healthNames[old], "is", healthNames[h])
	}
}

// healthAfter tells what an error of the journal means for it.
func healthAfter(err error) journalHealth {
	if errors.Is(err, journal.ErrFull) {
		return journalFull
	}
	return journalFailed
}

var healthNames = [...]string{journalOK: "ok", journalFull: "full", journalFailed: "failed"}

// journalState is the word for agent_info.
func (e *Engine) journalState() string {
	h := e.health.Load()
	if h == journalOK && e.setAside != "" {
		return "set-aside"
	}
	return healthNames[h]
}

// pendingPerProcess bounds the records that wait for a journal that can take
// them, times max-procs.
const pendingPerProcess = 8

// expendable tells whether an event is not recorded, since too many wait. What
// happens to processes always is, and bounded by them; what peers can ask for
// without end is not.
func (e *Engine) expendable(ev statemachine.HandleEvent) bool {
	if len(e.pending) < pendingPerProcess*e.limits.MaxProcs || e.health.Load() == journalOK {
		return false
	}
	switch event := ev.Event.(type) {
	case *statemachine.Verb, *statemachine.Stdin, *statemachine.Resized:
		return true
	case *statemachine.Signalled: // the first of each kind tells why a process died
		p := e.registry.Get(ev.Handle)
		return p != nil && p.Sent.Has(event.Signal)
	}
	return false
}

// withoutJournal refuses what must not be done while nothing can be recorded.
// Signals, and what observes, go on: processes can still be ended.
func (e *Engine) withoutJournal(c statemachine.Command) error {
	if len(e.pending) == 0 || e.health.Load() == journalOK {
		return nil
	}
	switch c.(type) {
	case statemachine.Start, statemachine.Write, statemachine.Resize, statemachine.OpenSession:
		return wire.Errorf(wire.CodeJournalFailed, "the journal cannot record anything: its state is %s", e.journalState())
	}
	return nil
}
