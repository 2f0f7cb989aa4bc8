package main

import (
	"context"
	"os"
	"os/signal"

	"golang.org/x/sys/unix"
)

// signals are what ends an agent. What must not, a hang-up of the terminal that
// it was started from, a log whose reader is gone, is caught and dropped.
type signals struct {
	caught chan os.Signal
	ctx    context.Context // ends an agent too
}

func catchSignals(ctx context.Context) *signals {
	signal.Notify(make(chan os.Signal, 1), unix.SIGHUP, unix.SIGPIPE)
	s := &signals{make(chan os.Signal, 1), ctx}
	s.catch()
	return s
}

func (s *signals) catch() { signal.Notify(s.caught, unix.SIGTERM, unix.SIGINT) }

// release lets a later one end the process at once, and returns the name of one
// that was caught. A caught one would be lost with an image that is replaced.
func (s *signals) release() (name string) {
	signal.Stop(s.caught) // returns when what has come is in the channel
	select {
	case caught := <-s.caught:
		return signalName(caught)
	default:
		return ""
	}
}

// signalName is the reason for which an agent stops.
func signalName(s os.Signal) string { return unix.SignalName(s.(unix.Signal)) }
