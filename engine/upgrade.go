package engine

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"

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
	if !e.upgrade.busy.TryLock() {
		e.verbs.add(caller, "", errUpgrading)
		return wire.UpgradeReply{}, errUpgrading
	}
	e.upgrade.images = statemachine.Images{From: e.cfg.Version, SHA256: strings.ToLower(r.SHA256)}
	e.observed.addStep(e.note("", &statemachine.UpgradeRequested{Images: e.upgrade.images, Path: r.Path}))
	resume := e.table.PauseReaping() // the candidate is waited for by others
	err := e.install(r)
	resume()
	c := newCall(caller, "")
	outcome := step{call: c, final: true}
	if err != nil {
		c.err = wire.Errorf(wire.CodeUpgradeRejected, "%s", err)
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

// Upgrades tells of an image that is installed and waits for HandOver.
func (e *Engine) Upgrades() <-chan struct{} { return e.upgrades }

// install checks a candidate and puts it in place. The staged file is consumed
// then; before, it is left alone.
func (e *Engine) install(r wire.UpgradeRequest) error {
	img, err := upgrade.Take(r.Path, r.SHA256, e.cfg.Image)
	if err != nil {
		return err
	}
	defer img.Close()
	if e.upgrade.images.To, err = img.Version(e.tryOut); err != nil {
		return err
	}
	if !r.Force {
		if err := e.preflight(img); err != nil {
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

// preflight lets the candidate read the very state that it would be handed.
func (e *Engine) preflight(img *upgrade.Image) error {
	var blob []byte
	var err error
	asked := e.whileIdle(func() { blob, err = e.state(nil).encode() })
	if err = errors.Join(asked, err); err != nil {
		return err
	}
	f, err := upgrade.State(blob)
	if err != nil {
		return err
	}
	defer f.Close()
	return img.Preflight(e.tryOut, f, PreflightLine)
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
// read. It returns only if that could not be done; then the replaced image is
// back in place, nothing was lost, and the fronts can go on.
func (e *Engine) HandOver(listeners []ListenerFD) error {
	e.gate.close(errUpgrading)
	var err error
	if asked := e.whileIdle(func() { err = e.handOver(listeners) }); asked != nil {
		return asked
	}
	if undone := e.upgrade.undo(); undone != nil {
		err = fmt.Errorf("%w; and the replaced image could not be put back: %w", err, undone)
	}
	e.observed.addStep(e.note("", &statemachine.UpgradeRejected{Images: e.upgrade.images, Error: err.Error()}))
	e.upgrade.busy.Unlock()
	e.gate.open()
	return err
}

// QuiesceForUpgrade is Quiesce with an end: HandOver, if it fails, undoes it.
func (e *Engine) QuiesceForUpgrade() {
	e.quietSince.Store(e.now().Mono)
	e.gate.close(errUpgrading)
	e.table.CutStdin()
}

// handOver runs on the loop.
func (e *Engine) handOver(listeners []ListenerFD) error {
	e.refuseWaiting(errUpgrading)
	e.finishStarts()
	e.table.Park()
	defer e.table.Resume()
	e.turn(append(e.observations(), e.verbSteps(e.verbs.all())...))
	for len(e.followUps) > 0 {
		steps := e.followUps
		e.followUps = nil
		e.turn(steps)
	}
	e.snapshot()
	e.turn([]step{e.note("", &statemachine.UpgradeHandoff{Images: e.upgrade.images, Procs: e.registry.Len()})})
	return e.exec(listeners)
}

// exec is the last thing that an image does.
func (e *Engine) exec(listeners []ListenerFD) error {
	if len(e.pending) > 0 {
		return errors.New("the journal cannot take the records of the handover")
	}
	s := e.state(listeners)
	blob, err := s.encode()
	if err != nil {
		return err
	}
	f, err := upgrade.State(blob)
	if err != nil {
		return err
	}
	defer f.Close()
	return upgrade.Exec(e.cfg.Image, os.Args, os.Environ(), f, s.fds())
}
