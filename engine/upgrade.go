package engine

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"

	"supervisor/procs"
	"supervisor/statemachine"
	"supervisor/upgrade"
	"supervisor/wire"
)

// upgrading is the one upgrade that may be under way: from its request until
// the other image has taken over or was rejected.
type upgrading struct {
	busy   sync.Mutex // held from the request on
	images statemachine.Images
	undo   func() error // puts the replaced image back
}

// Upgrade implements wire.Backend. What is checked, and in which order, is
// written in package upgrade; until the last check has passed nothing is
// touched. When it returns the image is installed and Upgrades tells so: the
// handover is for whoever owns the fronts, once the reply is out.
func (e *Engine) Upgrade(ctx context.Context, caller wire.Caller, r wire.UpgradeRequest) (wire.UpgradeReply, error) {
	if err := e.mayUpgrade(); err != nil {
		e.verbs.add(caller, "", err)
		return wire.UpgradeReply{}, err
	}
	e.upgrade.images = statemachine.Images{From: e.cfg.Version, SHA256: strings.ToLower(r.SHA256)}
	err := e.install(r)
	c := newCall(caller, "")
	outcome := step{call: c, final: true}
	if err != nil {
		c.err = upgradeError(err)
		outcome.command = statemachine.Note{Event: &statemachine.UpgradeRejected{Images: e.upgrade.images, Error: err.Error()}}
	}
	// Whoever asked may be gone by now: what was begun goes on.
	if told := e.submit(context.WithoutCancel(ctx), outcome); told != nil {
		if err == nil { // the agent stops
			e.logError("putting the replaced image back", e.upgrade.undo())
		}
		e.upgrade.busy.Unlock()
		return wire.UpgradeReply{}, told
	}
	e.upgrades <- struct{}{}
	return wire.UpgradeReply{AgentVersion: e.upgrade.images.To}, nil
}

// mayUpgrade reserves the one upgrade that may be under way, unless nothing
// could come of it.
func (e *Engine) mayUpgrade() error {
	if err := e.gate.why(); err != nil {
		return err
	}
	if e.health.Load() != journalOK {
		return wire.Errorf(wire.CodeJournalFailed, "the journal could not record the handover: its state is %s", e.journalState())
	}
	if !e.upgrade.busy.TryLock() {
		return errUpgrading
	}
	return nil
}

// upgradeError is what a candidate that is not installed answers.
func upgradeError(err error) error {
	if errors.Is(err, errShuttingDown) {
		return err
	}
	return wire.Errorf(wire.CodeUpgradeRejected, "%s", err)
}

// Upgrades tells of an image that is installed and waits for HandOver.
func (e *Engine) Upgrades() <-chan struct{} { return e.upgrades }

// install checks a candidate and puts it in place. The staged file is consumed
// then; before, it is left alone.
func (e *Engine) install(r wire.UpgradeRequest) error {
	if err := e.record(&statemachine.UpgradeRequested{Images: e.upgrade.images, Path: r.Path}); err != nil {
		return err
	}
	img, err := upgrade.Take(r.Path, r.SHA256, e.cfg.Image)
	if err != nil {
		return err
	}
	defer img.Close()
	if e.upgrade.images.To, err = img.Version(e.tryOut); err != nil {
		return err
	}
	state, err := e.rehearse()
	if err != nil {
		return err
	}
	defer state.Close()
	if !r.Force {
		if err := img.Preflight(e.tryOut, state, PreflightLine); err != nil {
			return err
		}
	}
	if e.upgrade.undo, err = img.Install(e.cfg.Image); err != nil {
		return err
	}
	if err := os.Remove(r.Path); err != nil {
		e.cfg.Log.Warn("the staged image stays where it is", "error", err)
	}
	return nil
}

// sweep removes what an upgrade has left in which an agent died.
func (e *Engine) sweep() {
	if err := upgrade.Sweep(e.cfg.Image); err != nil {
		e.cfg.Log.Warn("looking for what a broken upgrade has left", "error", err)
	}
}

// record makes an event durable.
func (e *Engine) record(event statemachine.Event) error {
	var err error
	asked := e.whileIdle(func() {
		e.turn([]step{e.note("", event)})
		err = e.awaitCommit()
	})
	return errors.Join(asked, err)
}

// rehearse makes the very state that would be handed over now. The snapshot is
// taken here and not in the handover, while nobody is served.
func (e *Engine) rehearse() (*os.File, error) {
	var state *os.File
	var err error
	asked := e.whileIdle(func() {
		if err = e.awaitCommit(); err == nil {
			e.snapshot()
			state, _, err = e.stateFile(nil)
		}
	})
	return state, errors.Join(asked, err)
}

// commitWithin bounds how long a journal that commits later is waited for.
const commitWithin = time.Second

// awaitCommit waits until the journal has what it was given, which is at once
// unless it commits later (SyncMode). It is called on the loop.
func (e *Engine) awaitCommit() error {
	for deadline := time.Now().Add(commitWithin); ; time.Sleep(time.Millisecond) {
		switch {
		case len(e.pending) > 0, time.Now().After(deadline):
			return errors.New("the journal cannot record the handover")
		case e.journal.Head().Seq == e.registry.Seq():
			return nil
		}
	}
}

// tryOut runs a candidate, with nothing but a PATH in its environment.
func (e *Engine) tryOut(ctx context.Context, argv []string, stdout, stderr io.Writer) error {
	spec := procs.Spec{Argv: argv, Cwd: "/", Env: []string{"PATH=" + os.Getenv("PATH")}}
	status, err := e.table.Run(ctx, spec, nil, [2]io.Writer{stdout, stderr})
	switch {
	case err != nil:
		return err
	case status.Signal != 0:
		return fmt.Errorf("it died of signal %d", status.Signal)
	case status.Code != 0:
		return fmt.Errorf("it exited with %d", status.Code)
	}
	return nil
}

// whileIdle runs f on the loop's goroutine, between two turns.
func (e *Engine) whileIdle(f func()) error {
	done := make(chan struct{})
	select {
	case e.between <- func() { f(); close(done) }:
		<-done
		return nil
	case <-e.stopped:
		return errShuttingDown
	}
}

// HandOver replaces this image by the installed one, with every process and
// the listeners as they are. The fronts must be quiet: nothing is accepted or
// read. What may stop it at the last moment is called right before the execve.
// HandOver returns only if that could not be done; then the replaced image is
// back in place, nothing was lost, and the fronts can go on.
func (e *Engine) HandOver(listeners []ListenerFD, mayStop func() error) error {
	e.gate.close(errUpgrading)
	var err error
	if asked := e.whileIdle(func() { err = e.handOver(listeners, mayStop) }); asked != nil {
		return asked
	}
	if undone := e.upgrade.undo(); undone != nil {
		err = fmt.Errorf("%w; and the replaced image could not be put back: %w", err, undone)
	}
	e.observed.addStep(e.note("", &statemachine.UpgradeRejected{Images: e.upgrade.images, Error: err.Error()}))
	e.upgrade.busy.Unlock()
	e.table.ReleaseStdin()
	e.gate.open()
	return err
}

// QuiesceForUpgrade is Quiesce with an end: HandOver, if it fails, undoes it.
func (e *Engine) QuiesceForUpgrade() {
	e.quietSince.Store(e.now().Mono)
	e.gate.close(errUpgrading)
	e.table.HoldStdin()
}

// handOver runs on the loop.
func (e *Engine) handOver(listeners []ListenerFD, mayStop func() error) error {
	e.refuseWaiting(errUpgrading)
	if e.finishStarts(); len(e.starting) > 0 {
		return errors.New("a start is still under way")
	}
	e.table.Park()
	defer e.table.Resume()
	e.turn(append(e.observations(), e.verbSteps(e.verbs.all())...))
	for len(e.followUps) > 0 {
		steps := e.followUps
		e.followUps = nil
		e.turn(steps)
	}
	e.turn([]step{e.note("", &statemachine.UpgradeHandoff{Images: e.upgrade.images, Procs: e.registry.Len()})})
	return e.exec(listeners, mayStop)
}

// exec is the last thing that an image does.
func (e *Engine) exec(listeners []ListenerFD, mayStop func() error) error {
	f, fds, err := e.stateFile(listeners)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := mayStop(); err != nil {
		return err
	}
	return upgrade.Exec(e.cfg.Image, os.Args, os.Environ(), f, fds)
}

// stateFile is the state as it is handed over, and the descriptors that it
// names. It is called on the loop.
func (e *Engine) stateFile(listeners []ListenerFD) (f *os.File, fds []int, err error) {
	if err := e.awaitCommit(); err != nil {
		return nil, nil, err
	}
	h, err := e.state(listeners)
	if err != nil {
		return nil, nil, err
	}
	blob, err := h.encode()
	if err != nil {
		return nil, nil, err
	}
	f, err = upgrade.State(blob)
	return f, h.fds(), err
}
