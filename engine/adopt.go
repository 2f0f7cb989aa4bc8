package engine

import (
	"errors"
	"fmt"
	"os"

	"supervisor/journal"
	"supervisor/procs"
	"supervisor/statemachine"
	"supervisor/upgrade"
)

// Inheritance is what an earlier image has left to this one.
type Inheritance struct {
	*handoff
	from    *upgrade.Inheritance
	derived *statemachine.Registry
}

// Inherit returns what an earlier image has left, nil if there was none. It
// must be called before anything else. An error comes with an Inheritance that
// can still be rolled back.
func Inherit() (*Inheritance, error) {
	from, err := upgrade.Inherit()
	if from == nil {
		return nil, err
	}
	h := &Inheritance{from: from}
	if h.handoff, h.derived, err = readHandoff(from.State()); err == nil {
		from.Keep = h.fds()
	}
	return h, err
}

// Sockets are the listeners that were handed over, in descriptors for the
// caller to keep.
func (h *Inheritance) Sockets() ([]ListenerFD, error) {
	var out []ListenerFD
	for _, l := range h.Listeners {
		fd, err := h.from.Duplicate(l.FD)
		if err != nil {
			return nil, err
		}
		out = append(out, ListenerFD{Addr: l.Addr, Front: l.Front, FD: fd})
	}
	return out, nil
}

// ImageSHA256 is the digest of this image, which the earlier one has installed;
// "" if that one is back itself.
func (h *Inheritance) ImageSHA256() string {
	if h.from.RolledBack != "" {
		return ""
	}
	return h.Images.SHA256
}

// RollBack gives everything back to the previous image. It returns only an
// error; of no Inheritance the cause.
func (h *Inheritance) RollBack(image string, cause error) error {
	if h == nil {
		return cause
	}
	return h.from.RollBack(image, os.Args, os.Environ(), cause)
}

// Adopt is Open for an image that takes over from another one: the lock, the
// journal and the processes are inherited. After an error RollBack is possible:
// nothing was written, read, reaped or closed. Afterwards it is not.
func (h *Inheritance) Adopt(cfg Config) (*Engine, error) {
	e := newEngine(cfg)
	e.inherited = h
	var err error
	if e.lock, err = h.file(h.LockFD, "lock"); err != nil {
		return nil, err
	}
	if err := e.open(); err != nil {
		return nil, err
	}
	h.from.Accept()
	e.table.Resume()
	e.recordTakeOver()
	go e.run()
	go e.verifyJournal()
	return e, nil
}

// file is an inherited file, in a descriptor of its own.
func (h *Inheritance) file(fd int, name string) (*os.File, error) {
	another, err := h.from.Duplicate(fd)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return os.NewFile(uintptr(another), name), nil
}

// takeOver is recover for a handover: nothing was missed, so nothing has to be
// found out. The registry was derived from the records in the state; they are
// the journal's if both end in the same hash.
func (e *Engine) takeOver() error {
	h := e.inherited
	if head := e.journal.Head(); head.Seq != h.derived.Seq() || head.Hash.String() != h.Head {
		return errors.New("the journal is not the one that was handed over")
	}
	if h.Reducer != statemachine.ReducerVersion {
		e.cfg.Log.Warn("another reducer derived the registry that was handed over", "its", h.Reducer, "own", statemachine.ReducerVersion)
	}
	e.registry = h.derived
	e.snapshots.through = e.registry.Seq() - uint64(len(h.Records))
	e.gen, e.setAside, e.born.Mono = h.Gen+1, string(h.SetAside), h.BornMono
	e.table.CountReaped(h.Reaped)
	e.table.Park()
	for _, c := range h.Processes {
		if err := e.table.Inherit(c); err != nil {
			return err
		}
	}
	for _, p := range e.registry.Processes() {
		if e.table.Output(p.Handle, procs.Stdout) == nil {
			if err := e.table.Reopen(p.Handle); err != nil {
				return err
			}
		}
		e.view.set(p.Handle, e.row(p.Handle))
	}
	e.recoverSessions()
	return nil
}

// recordTakeOver records that this image is ready, before it answers anybody.
// It is the end of the blackout, less the commit of the record itself.
func (e *Engine) recordTakeOver() {
	h := e.inherited
	var event statemachine.Event = &statemachine.UpgradeAdopted{
		Images: h.Images, Procs: e.view.len(), BlackoutUS: (e.now().Mono - h.QuietMono) / 1000,
	}
	if why := h.from.RolledBack; why != "" {
		back := statemachine.Images{From: h.Images.To, To: e.cfg.Version, SHA256: e.cfg.ImageSHA256}
		event = &statemachine.UpgradeRolledBack{Images: back, Error: why}
	}
	e.turn([]step{e.note("", event)})
}

// verifyJournal checks the whole journal after a handover, beside the loop.
func (e *Engine) verifyJournal() {
	head := e.journal.Head()
	err := e.journal.Verify(nil)
	if errors.Is(err, journal.ErrClosed) {
		return
	}
	event := &statemachine.UpgradeVerified{Images: e.inherited.Images, ThroughSeq: head.Seq}
	if err != nil {
		event.Error = err.Error()
		e.logError("verifying the journal", err)
	}
	e.observed.addStep(e.note("", event))
}
