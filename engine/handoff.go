package engine

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"

	"supervisor/journal"
	"supervisor/procs"
	"supervisor/statemachine"
	"supervisor/upgrade"
)

// handoffSchema is the version of handoff. A field may be added without a new
// one if an image that does not know it loses nothing; anything else is a new
// version, which older images refuse in the preflight.
const handoffSchema = 1

// maxHandoff bounds what is read of a state.
const maxHandoff = 1 << 30

// PreflightLine is what `supervisor preflight STATE` prints when this image
// could go on from the state.
const PreflightLine = "supervisor preflight: ok"

// handoff is the state that one image leaves to the next: JSON in a sealed
// memfd. The registry is in it as the journal derives it, so that the new image
// can compare the two; rings are files and pipes are descriptors, and neither
// is copied. Descriptors keep their numbers.
type handoff struct {
	Schema    int                 `json:"schema"` // the lowest that can read it
	Images    statemachine.Images `json:"images"`
	Gen       int                 `json:"gen"`
	Boot      string              `json:"boot"`
	BornMono  int64               `json:"born_mono"`  // when the agent started, ns
	QuietMono int64               `json:"quiet_mono"` // when nothing more was accepted, ns
	SetAside  string              `json:"set_aside,omitempty"`
	Reaped    int64               `json:"reaped,omitempty"` // orphans, so far
	Registry  []byte              `json:"registry"`         // a snapshot
	LockFD    int                 `json:"lock_fd"`
	JournalFD int                 `json:"journal_fd"`
	Listeners []ListenerFD        `json:"listeners"`
	Processes []procs.Carried     `json:"processes"`
}

// ListenerFD is a listening socket that is handed over.
type ListenerFD struct {
	Addr  string `json:"addr"`
	Front string `json:"front,omitempty"` // "" is the guest protocol, else a2e
	FD    int    `json:"fd"`
}

// state is what this image would leave now. It is called on the loop.
func (e *Engine) state(listeners []ListenerFD) *handoff {
	return &handoff{
		Schema: handoffSchema, Images: e.upgrade.images, Gen: e.gen, Boot: e.boot.String(),
		BornMono: e.born.Mono, QuietMono: e.quietSince.Load(), SetAside: e.setAside, Reaped: e.table.Reaped(),
		Registry: e.registry.EncodeSnapshot(),
		LockFD:   int(e.lock.Fd()), JournalFD: int(e.journal.File().Fd()),
		Listeners: listeners, Processes: e.table.Carried(),
	}
}

func (h *handoff) encode() ([]byte, error) { return json.Marshal(h) }

// fds are all descriptors that must stay open.
func (h *handoff) fds() []int {
	fds := []int{h.LockFD, h.JournalFD}
	for _, l := range h.Listeners {
		fds = append(fds, l.FD)
	}
	for _, p := range h.Processes {
		fds = append(fds, p.FDs()...)
	}
	return fds
}

// readHandoff reads a state and checks all of it that can be checked without
// touching anything.
func readHandoff(from io.Reader) (*handoff, *statemachine.Registry, error) {
	blob, err := io.ReadAll(io.LimitReader(from, maxHandoff+1))
	if err != nil {
		return nil, nil, fmt.Errorf("reading the state: %w", err)
	}
	var h handoff
	if err := json.Unmarshal(blob, &h); err != nil {
		return nil, nil, fmt.Errorf("reading the state: %w", err)
	}
	if h.Schema != handoffSchema {
		return nil, nil, fmt.Errorf("the state is of version %d, this image reads %d", h.Schema, handoffSchema)
	}
	r, err := statemachine.DecodeSnapshot(h.Registry)
	if err != nil {
		return nil, nil, err
	}
	return &h, r, h.check(r)
}

// check compares the parts of a state with each other.
func (h *handoff) check(r *statemachine.Registry) error {
	if _, err := statemachine.ParseBoot(h.Boot); err != nil {
		return err
	}
	for _, c := range h.Processes {
		p := r.Get(c.Handle)
		if !c.Forgotten && (p == nil || p.Started.PID != c.PID || p.Started.StartTicks != c.StartTicks) {
			return fmt.Errorf("process %s is not the registry's", c.Handle)
		}
	}
	return nil
}

// Preflight tells whether this image could go on from a state.
func Preflight(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	_, _, err = readHandoff(f)
	return err
}

// Inheritance is what an earlier image has left to this one.
type Inheritance struct {
	from    *upgrade.Inheritance
	handoff *handoff
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
	h.handoff, h.derived, err = readHandoff(from.State)
	return h, err
}

// Listeners are the sockets that were handed over.
func (h *Inheritance) Listeners() []ListenerFD { return h.handoff.Listeners }

// RollBack gives the state back to the previous image. It returns only an
// error.
func (h *Inheritance) RollBack(image string, cause error) error {
	return h.from.RollBack(image, os.Args, os.Environ(), cause)
}

// Adopt is Open for an image that takes over from another one: the lock, the
// journal and the processes are inherited. On an error nothing was read yet,
// and RollBack is possible.
func (h *Inheritance) Adopt(cfg Config) (*Engine, error) {
	e := newEngine(cfg)
	e.inherited = h
	e.lock = os.NewFile(uintptr(h.handoff.LockFD), "lock")
	if err := e.open(); err != nil {
		return nil, err
	}
	e.recordTakeOver()
	go e.run()
	go e.verifyJournal()
	return e, nil
}

// takeOver is recover for a handover: nothing was missed, so nothing has to be
// found out. The journal's word is compared with the other image's.
func (e *Engine) takeOver() error {
	h := e.inherited.handoff
	if err := e.replay(); err != nil {
		return err
	}
	if e.registry.Partial() || !bytes.Equal(e.registry.EncodeSnapshot(), h.Registry) {
		e.cfg.Log.Warn("the registry that was handed over is not what this image derives from the journal")
	}
	e.gen, e.setAside, e.born.Mono = h.Gen+1, h.SetAside, h.BornMono
	e.table.CountReaped(h.Reaped)
	for _, c := range h.Processes {
		e.table.Inherit(c)
	}
	for _, p := range e.registry.Processes() {
		if e.table.Output(p.Handle, procs.Stdout) == nil {
			e.table.Reopen(p.Handle)
		}
		e.view.set(p.Handle, e.row(p.Handle))
	}
	e.recoverSessions()
	return e.inherited.from.State.Close()
}

// recordTakeOver records that this image is ready, before it answers anybody.
// It is the end of the blackout, less the commit of the record itself.
func (e *Engine) recordTakeOver() {
	h := e.inherited.handoff
	var event statemachine.Event = &statemachine.UpgradeAdopted{
		Images: h.Images, Procs: e.view.len(), BlackoutUS: (e.now().Mono - h.QuietMono) / 1000,
	}
	if why := e.inherited.from.RolledBack; why != "" {
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
	event := &statemachine.UpgradeVerified{Images: e.inherited.handoff.Images, ThroughSeq: head.Seq}
	if err != nil {
		event.Error = err.Error()
		e.logError("verifying the journal", err)
	}
	e.observed.addStep(e.note("", event))
}
