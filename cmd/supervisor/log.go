package main

import (
	"fmt"
	"io"
	"log/slog"
	"os"
	"sync/atomic"
	"time"

	"golang.org/x/term"
)

// flushWithin is what a stderr that blocks gets for the last words.
const flushWithin = 200 * time.Millisecond

// tell writes what does not go through the log. A stderr that blocks gets a
// moment for it.
func tell(stderr io.Writer, format string, args ...any) {
	told := make(chan struct{})
	go func() {
		defer close(told)
		_, _ = fmt.Fprintf(stderr, format, args...) // there is nobody to tell
	}()
	select {
	case <-told:
	case <-time.After(flushWithin):
	}
}

// newLog makes the agent's log: text on a terminal, JSON elsewhere. Writing
// happens on a goroutine of its own, so that a stderr that blocks blocks
// nobody: lines that do not fit in the queue are dropped and counted. flush
// waits a little for what is queued.
func newLog(stderr io.Writer, level slog.Level) (log *slog.Logger, flush func()) {
	w := &logWriter{lines: make(chan []byte, 1024), done: make(chan struct{})}
	go w.run(stderr)
	opts := &slog.HandlerOptions{Level: level}
	var h slog.Handler = slog.NewJSONHandler(w, opts)
	if f, ok := stderr.(*os.File); ok && term.IsTerminal(int(f.Fd())) {
		h = slog.NewTextHandler(w, opts)
	}
	return slog.New(h), w.flush
}

// logWriter queues lines. Its Write never waits and never fails.
type logWriter struct {
	lines   chan []byte
	dropped atomic.Int64
	done    chan struct{}
}

func (w *logWriter) Write(line []byte) (int, error) {
	select {
	case w.lines <- append([]byte(nil), line...):
	default:
		w.dropped.Add(1)
	}
	return len(line), nil
}

// run writes until flush. Errors of stderr have nowhere to go.
func (w *logWriter) run(stderr io.Writer) {
	defer close(w.done)
	for line := range w.lines {
		if line == nil {
			return
		}
		if n := w.dropped.Swap(0); n > 0 {
			_, _ = fmt.Fprintf(stderr, "{\"level\":\"WARN\",\"msg\":\"log lines dropped\",\"count\":%d}\n", n)
		}
		_, _ = stderr.Write(line)
	}
}

// flush ends the writer and gives it a moment for what is queued.
func (w *logWriter) flush() {
	timeout := time.After(flushWithin)
	select {
	case w.lines <- nil:
	case <-timeout:
		return
	}
	select {
	case <-w.done:
	case <-timeout:
	}
}
