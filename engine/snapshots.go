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

// snapshot stores the registry as it is, which lets the journal drop its oldest
// segments, and records both. Without a durable head there is nothing to
// store: the next turn tries again.
func (e *Engine) snapshot() {
	head := e.journal.Head()
	if len(e.pending) > 0 || head.Seq != e.registry.Seq() {
		return
	}
	first := e.journal.FirstSeq()
	err := e.journal.WriteSnapshot(journal.Snapshot{
		Seq: head.Seq, Hash: head.Hash, Version: statemachine.SnapshotVersion, Blob: e.registry.EncodeSnapshot(),
	})
	if err != nil {
		e.logError("snapshot", err)
		return
	}
	e.snapshots = snapshotPolicy{through: head.Seq}
	steps := []step{e.note("", &statemachine.Snapshot{ThroughSeq: head.Seq})}
	if now := e.journal.FirstSeq(); now > first {
		steps = append(steps, e.note("", &statemachine.Pruned{ThroughSeq: now - 1}))
	}
	e.turn(steps)
}
