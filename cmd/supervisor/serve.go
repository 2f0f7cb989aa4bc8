package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"log/slog"
	"os"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"time"

	"supervisor/engine"
	"supervisor/wire"
)

// closeWithin bounds the verbs that are finished before a stop or a handover,
// and the journal's last commit.
const closeWithin = 5 * time.Second

// agent is what serve puts together.
type agent struct {
	opts      options
	log       *slog.Logger
	signals   *signals
	engine    *engine.Engine
	listeners []*wire.Listener // of the guest protocol
	a2e       []*wire.Listener // of the agent front

	stdio *wire.Stdio // of the agent front; nil: it is not spoken there
}

// serve runs the agent until a signal or ctx ends it, or another image takes
// over. With an inheritance it takes over itself, or goes back. The reason is
// the signal's name.
func serve(ctx context.Context, o options, inherited *engine.Inheritance, stderr io.Writer) (reason string, err error) {
	caught := catchSignals(ctx)
	log, flush := newLog(stderr, o.logLevel)
	defer flush()
	a := &agent{opts: o, log: log, signals: caught}
	if err := a.open(inherited); err != nil {
		if inherited != nil {
			log.Error("cannot take over: going back", "error", err)
		}
		flush()
		return "", inherited.RollBack(a.opts.engine.Image, err)
	}
	for {
		reason, err := a.run()
		if reason != "" || err != nil {
			return reason, a.close(reason, err)
		}
	}
}

// open makes the engine and the listeners, or takes them over.
func (a *agent) open(inherited *engine.Inheritance) error {
	var err error
	if a.opts.engine.Image, err = installedImage(); err != nil {
		return err
	}
	a.opts.engine.Log, a.opts.engine.ReapOrphans = a.log, true
	if inherited != nil {
		return a.takeOver(inherited)
	}
	if a.opts.engine.ImageSHA256, err = imageDigest(); err != nil {
		return err
	}
	if a.engine, err = engine.Open(a.opts.engine); err != nil {
		return err
	}
	if a.a2e, err = listen(a.opts.a2e.listen, a.opts, a.log); err == nil {
		a.listeners, err = listen(a.opts.listen, a.opts, a.log)
	}
	if err != nil {
		return closeEngine(a.engine, "cannot listen", err)
	}
	return nil
}

// servers makes one for each front.
func (a *agent) servers() ([]*wire.Server, error) {
	guest := wire.NewServer(&wire.Guest{Backend: a.engine, Log: a.log}, a.listeners, a.opts.maxConns, a.log)
	agents, err := a.agentFront()
	return []*wire.Server{guest, agents}, err
}

// takeOver is open for what another image has handed over. A panic is an error
// like others: there is a way back.
func (a *agent) takeOver(inherited *engine.Inheritance) (err error) {
	defer func() {
		if reason := recover(); reason != nil {
			a.log.Error("panic", "reason", reason, "stack", string(debug.Stack()))
			err = fmt.Errorf("panic: %v", reason)
		}
	}()
	a.opts.engine.Image = string(inherited.Image)
	if a.opts.engine.ImageSHA256 = inherited.ImageSHA256(); a.opts.engine.ImageSHA256 == "" {
		if a.opts.engine.ImageSHA256, err = imageDigest(); err != nil {
			return err
		}
	}
	sockets, err := inherited.Sockets()
	if err != nil {
		return err
	}
	if a.listeners, err = inherit(byFront(sockets, ""), a.opts.access); err != nil {
		return err
	}
	if a.a2e, err = inherit(byFront(sockets, frontA2E), a.opts.access); err != nil {
		return err
	}
	a.engine, err = inherited.Adopt(a.opts.engine)
	return err
}

// run serves until a signal, whose name it returns. It returns neither reason
// nor error if a handover failed and serving should go on.
func (a *agent) run() (reason string, err error) {
	servers, err := a.servers()
	if err != nil {
		return "", err
	}
	var served sync.WaitGroup
	for _, s := range servers {
		served.Go(func() { s.Serve(context.Background()) })
	}
	a.log.Info("ready", "version", version, "pid", os.Getpid(), "listen", addresses(a.listeners), "a2e", addresses(a.a2e))
	a.tellManager(notifyReady)
	select {
	case s := <-a.signals.caught:
		reason = signalName(s)
	case <-a.signals.ctx.Done():
		reason = a.signals.ctx.Err().Error()
	case <-a.stdioEnded():
		reason = "stdio ended"
	case <-a.engine.Upgrades():
		a.log.Info("handing over")
		a.engine.QuiesceForUpgrade()
	}
	if reason != "" {
		a.tellManager(notifyStopping)
		a.log.Info("stopping", "reason", reason)
		a.engine.Quiesce()
	}
	a.shutDown(servers)
	served.Wait()
	a.finishStdio(reason == "")
	if reason == "" {
		reason, err = a.handOver()
		a.log.Error("cannot hand over", "error", err)
	}
	return reason, nil
}

// shutDown ends the fronts. What it cuts off is a peer that does not read.
func (a *agent) shutDown(servers []*wire.Server) {
	ctx, cancel := context.WithTimeout(context.Background(), closeWithin)
	defer cancel()
	if a.stdio != nil {
		a.stdio.Pause()
	}
	var quiet sync.WaitGroup
	for _, s := range servers {
		quiet.Go(func() { _ = s.Shutdown(ctx) })
	}
	quiet.Wait()
}

// finishStdio lets the last of the agent front's stdout go out, but does not
// wait for long for a peer that does not read.
func (a *agent) finishStdio(upgrading bool) {
	if a.stdio == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	a.stdio.Finish(ctx, upgrading)
}

// tellManager tells the service manager, without whom the agent gets along.
func (a *agent) tellManager(state string) {
	if err := notify(state); err != nil {
		a.log.Warn("the service manager cannot be told", "state", state, "error", err)
	}
}

// handOver returns only if it fails. The reason is a signal that came meanwhile.
func (a *agent) handOver() (reason string, err error) {
	var fds []engine.ListenerFD
	for front, listeners := range map[string][]*wire.Listener{"": a.listeners, frontA2E: a.a2e} {
		for _, l := range listeners {
			fd, err := l.FD()
			if err != nil {
				return "", err
			}
			fds = append(fds, engine.ListenerFD{Addr: engine.Text(l.Addr().String()), Front: front, FD: fd})
		}
	}
	err = a.engine.HandOver(fds, func() error {
		if reason = a.signals.release(); reason != "" {
			return fmt.Errorf("the agent was sent %s", reason)
		}
		return nil
	})
	a.signals.catch()
	return reason, err
}

// stopGrace is what processes have between SIGTERM and SIGKILL, and stopWithin
// what all of them have together.
const (
	stopGrace  = 5 * time.Second
	stopWithin = 8 * time.Second
)

// close ends what serve has put together.
func (a *agent) close(reason string, cause error) error {
	if a.opts.killOnExit {
		ctx, cancel := context.WithTimeout(context.Background(), stopWithin)
		defer cancel()
		if isInit() {
			termStrays(a.engine.Running())
		}
		a.engine.StopProcesses(ctx, stopGrace)
	}
	for _, l := range slices.Concat(a.listeners, a.a2e) {
		_ = l.Close() // its descriptor goes with the process anyway
	}
	return closeEngine(a.engine, reason, cause)
}

// inherit makes listeners of the sockets that were handed over.
func inherit(sockets []engine.ListenerFD, access wire.Access) ([]*wire.Listener, error) {
	var out []*wire.Listener
	for _, l := range sockets {
		addr, err := wire.ParseAddr(string(l.Addr))
		if err != nil {
			return nil, err
		}
		listener, err := wire.Inherit(l.FD, addr, access)
		if err != nil {
			return nil, err
		}
		out = append(out, listener)
	}
	return out, nil
}

// closeEngine ends the engine and keeps the error that is the cause.
func closeEngine(e *engine.Engine, reason string, cause error) error {
	ctx, cancel := context.WithTimeout(context.Background(), closeWithin)
	defer cancel()
	if err := e.Close(ctx, reason); err != nil && cause == nil {
		return err
	}
	return cause
}

// listen opens addresses. A default one that this machine does not have is a
// warning.
func listen(addrs []wire.Addr, o options, log *slog.Logger) ([]*wire.Listener, error) {
	var out []*wire.Listener
	for _, a := range addrs {
		l, err := wire.Listen(a, o.access)
		if err != nil && o.mayFail[a] {
			log.Warn("not listening on a default address", "error", err)
			continue
		}
		if err != nil {
			for _, l := range out {
				l.Close()
			}
			return nil, err
		}
		out = append(out, l)
	}
	return out, nil
}

func addresses(listeners []*wire.Listener) []string {
	var out []string
	for _, l := range listeners {
		out = append(out, l.Addr().String())
	}
	return out
}

// installedImage is the path of the running image, where a later one will be
// put. The kernel marks the name when the file was replaced meanwhile.
func installedImage() (string, error) {
	path, err := os.Readlink("/proc/self/exe")
	if err != nil {
		return "", fmt.Errorf("finding the running image: %w", err)
	}
	return strings.TrimSuffix(path, " (deleted)"), nil
}

// imageDigest is the SHA-256 of the running image.
func imageDigest() (string, error) {
	f, err := os.Open("/proc/self/exe")
	if err != nil {
		return "", fmt.Errorf("reading the running image: %w", err)
	}
	defer f.Close()
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return "", fmt.Errorf("reading the running image: %w", err)
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}
