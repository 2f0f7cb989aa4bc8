package engine

import (
	"os"

	"supervisor/journal"
	"supervisor/procs"
	"supervisor/statemachine"
)

// recover derives the registry from the journal and compares it with the
// machine: what still runs is adopted, what ended is recorded as the kernel
// still tells it, or as lost.
func (e *Engine) recover() error {
	if err := e.replay(); err != nil {
		return err
	}
	started := &statemachine.AgentStarted{
		Version: e.cfg.Version, PID: os.Getpid(), ImageSHA256: e.cfg.ImageSHA256, SetAside: e.setAside,
	}
	e.turn([]step{e.note("", started)})
	var found []step
	var handles []string
	for _, p := range e.registry.Processes() {
		found = append(found, e.reconcile(p)...)
		handles = append(handles, p.Handle)
	}
	e.turn(found)
	for _, handle := range handles {
		e.view.set(handle, e.row(handle))
	}
	e.recoverSessions()
	e.sweep()
	return e.table.Keep(handles)
}

// replayChunk bounds the memory of a replay.
const (
	replayChunk      = 4096
	replayChunkBytes = 8 << 20
)

// replay folds the journal: the newest snapshot that can be read, and the
// records after it.
func (e *Engine) replay() error {
	e.registry = statemachine.NewRegistry()
	if s, ok, err := e.journal.Snapshot(); err != nil {
		return err
	} else if ok {
		if e.registry, err = e.restore(s); err != nil {
			return err
		}
	}
	e.snapshots.through = e.registry.Seq()
	var d statemachine.Decoder
	for e.registry.Seq() < e.journal.Head().Seq {
		records, err := e.journal.Read(e.registry.Seq(), replayChunk, replayChunkBytes)
		if err != nil {
			return err
		}
		if err := fold(e.registry, &d, records); err != nil {
			return err
		}
	}
	return e.registry.Check()
}

// restore reads a snapshot. One of another reducer is only a cache that does
// not fit, unless the records before it are gone.
func (e *Engine) restore(s journal.Snapshot) (*statemachine.Registry, error) {
	r, err := statemachine.DecodeSnapshot(s.Blob)
	if err == nil || e.journal.FirstSeq() > 1 {
		return r, err
	}
	e.cfg.Log.Warn("replaying all records", "snapshot", err)
	return statemachine.NewRegistry(), nil
}

// fold applies stored records.
func fold(r *statemachine.Registry, d *statemachine.Decoder, records []journal.Record) error {
	for _, stored := range records {
		rec, err := d.Decode(stored.Seq, stored.Payload)
		if err == nil {
			err = r.Apply(&rec)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// reconcile compares one record with the machine.
func (e *Engine) reconcile(p *statemachine.Process) []step {
	switch {
	case p.State == statemachine.StateRequested:
		return e.findBorn(p)
	case p.State == statemachine.StateDrained:
		e.logError("a ring cannot be read", e.table.Reopen(p.Handle))
		return nil
	case p.StartedAt.Boot != e.boot:
		return e.lose(p)
	}
	return e.adopt(p, adoptee(p))
}

// findBorn is for a start whose outcome is not recorded: the agent may have died
// between the fork and the record of it.
func (e *Engine) findBorn(p *statemachine.Process) []step {
	born, found := e.table.Born(p.Handle)
	if !found {
		return []step{{command: statemachine.Missing{Handle: p.Handle}}}
	}
	spawned := statemachine.Spawned{Handle: p.Handle, Started: statemachine.Started{
		PID: born.PID, StartTicks: born.StartTicks, StdoutIno: born.StdoutIno, StderrIno: born.StderrIno,
	}}
	return append([]step{{command: spawned}}, e.adopt(p, born)...)
}

// adoptee is what the journal says of a process of this boot.
func adoptee(p *statemachine.Process) procs.Adoptee {
	return procs.Adoptee{
		Handle: p.Handle, PID: p.Started.PID, StartTicks: p.Started.StartTicks,
		StdoutIno: p.Started.StdoutIno, StderrIno: p.Started.StderrIno, PTY: p.Spec.PTY,
	}
}

// adopt takes over what is left of a process. The table itself observes what
// comes later: the end of its streams, its exit.
func (e *Engine) adopt(p *statemachine.Process, its procs.Adoptee) []step {
	a := e.table.Adopt(its)
	switch {
	case a.Found:
		return []step{{command: statemachine.Found{Handle: p.Handle, Orphaned: statemachine.Orphaned{
			Stdout: a.Pipes[procs.Stdout], Stderr: a.Pipes[procs.Stderr],
		}}}}
	case p.State == statemachine.StateExited:
		return nil
	case a.Status.Known:
		return []step{{command: ended(procs.Exited{Handle: p.Handle, Status: a.Status})}}
	}
	return []step{{command: statemachine.Missing{Handle: p.Handle}}}
}

// lose records the end of a process of another boot, and of its streams as
// far as the rings still tell.
func (e *Engine) lose(p *statemachine.Process) []step {
	e.logError("a ring cannot be read", e.table.Reopen(p.Handle))
	over := statemachine.StreamsEnded{Handle: p.Handle}
	over.StdoutLen = e.table.Output(p.Handle, procs.Stdout).End()
	over.StderrLen = e.table.Output(p.Handle, procs.Stderr).End()
	return []step{{command: statemachine.Missing{Handle: p.Handle}}, {command: over}}
}
