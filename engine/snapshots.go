package engine

import (
	"supervisor/journal"
	"supervisor/statemachine"
)

// snapshotPolicy counts towards the next snapshot.
type snapshotPolicy struct {
	through uint64 // the last one
	grown   int64  // bytes of the records since
}

// snapshotEvery is the number of records after which a snapshot is due, if
// not a quarter of the journal's limit comes first.
const snapshotEvery = 65536

// snapshotIfDue keeps replays short and the journal bounded.
func (e *Engine) snapshotIfDue() {
	if e.registry.Seq()-e.snapshots.through >= snapshotEvery || e.snapshots.grown >= e.cfg.JournalMaxBytes/4 {
		e.snapshot()
	}
}

// tailShare is the part of the journal's limit that tails may take in a
// snapshot: one in so many.
const tailShare = 4

// snapshot stores the registry as it is, which lets the journal drop its oldest
// segments, and records both. What cannot be recorded is not stored: a later turn
// tries again. It waits for what a mode other than Always has not committed yet.
func (e *Engine) snapshot() {
	if len(e.pending) > 0 {
		return
	}
	e.turn([]step{e.note("", &statemachine.Snapshot{
		ThroughSeq: e.registry.Seq() + 1, TailBudget: e.cfg.JournalMaxBytes / tailShare,
	})})
	if len(e.pending) > 0 {
		return
	}
	e.snapshots = snapshotPolicy{through: e.registry.Seq()} // also if it fails: not again with every turn
	first := e.journal.FirstSeq()
	err := e.journal.WriteSnapshot(journal.Snapshot{
		Seq: e.registry.Seq(), Version: statemachine.SnapshotVersion, Blob: e.registry.EncodeSnapshot(),
	})
	if err != nil {
		e.logError("snapshot", err)
		return
	}
	if now := e.journal.FirstSeq(); now > first {
		e.turn([]step{e.note("", &statemachine.Pruned{ThroughSeq: now - 1})})
	}
}
