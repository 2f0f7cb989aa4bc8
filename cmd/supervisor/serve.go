package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"time"

	"golang.org/x/sys/unix"

	"supervisor/engine"
	"supervisor/wire"
)

// closeWithin bounds an orderly stop: replies that peers take, then the
// journal's last commit.
const closeWithin = 5 * time.Second

// serve runs the agent until a signal or ctx ends it.
func serve(ctx context.Context, o options, stderr io.Writer) error {
	log, flush := newLog(stderr, o.logLevel)
	defer flush()
	stop := catchSignals(ctx)
	digest, err := imageDigest()
	if err != nil {
		return err
	}
	o.engine.Log, o.engine.ImageSHA256, o.engine.ReapOrphans = log, digest, true
	e, err := engine.Open(o.engine)
	if err != nil {
		return err
	}
	listeners, err := listen(o, log)
	if err != nil {
		return closeEngine(e, "cannot listen", err)
	}
	server := wire.NewServer(&wire.Guest{Backend: e, Log: log}, listeners, o.maxConns, log)
	served := make(chan struct{})
	go func() {
		defer close(served)
		server.Serve(context.Background())
	}()
	log.Info("ready", "version", version, "pid", os.Getpid(), "listen", addresses(listeners))
	reason := <-stop
	log.Info("stopping", "reason", reason)
	return shutDown(server, served, listeners, e, reason)
}

// shutDown closes the fronts, then the engine: what was read is answered.
func shutDown(server *wire.Server, served chan struct{}, listeners []*wire.Listener, e *engine.Engine, reason string) error {
	ctx, cancel := context.WithTimeout(context.Background(), closeWithin)
	defer cancel()
	e.Quiesce()
	// What is cut off here is a peer that does not read.
	_ = server.Shutdown(ctx)
	<-served
	for _, l := range listeners {
		_ = l.Close() // its descriptor goes with the process anyway
	}
	return closeEngine(e, reason, nil)
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

// catchSignals takes over what ends an agent, and what must not: a hang-up of
// the terminal that it was started from, a log whose reader is gone.
func catchSignals(ctx context.Context) <-chan string {
	signals := make(chan os.Signal, 16)
	signal.Notify(signals, unix.SIGTERM, unix.SIGINT, unix.SIGHUP, unix.SIGPIPE)
	stop := make(chan string, 1)
	go func() {
		for {
			select {
			case s := <-signals:
				if s == unix.SIGTERM || s == unix.SIGINT {
					stop <- unix.SignalName(s.(unix.Signal))
					return
				}
			case <-ctx.Done():
				stop <- ctx.Err().Error()
				return
			}
		}
	}()
	return stop
}

// listen opens every address. A default one that this machine does not have is
// a warning.
func listen(o options, log *slog.Logger) ([]*wire.Listener, error) {
	var out []*wire.Listener
	for _, a := range o.listen {
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
