package main

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"supervisor/statemachine"
)

// words says what a record's data means. A kind without words of its own is
// shown as its JSON.
func words(rec *statemachine.Record) string {
	switch e := rec.Event.(type) {
	case *statemachine.AgentStarted:
		return agentStarted(e)
	case *statemachine.AgentStopped:
		return e.Reason
	case *statemachine.Verb:
		return verb(e)
	case *statemachine.Requested:
		return spec(&e.Spec)
	case *statemachine.Started:
		return fmt.Sprintf("pid %d", e.PID)
	case *statemachine.StartFailed:
		return e.Error
	case *statemachine.Stdin:
		return bytesOf(e.Bytes)
	case *statemachine.Signalled:
		return signalled(e)
	case *statemachine.Resized:
		return fmt.Sprintf("%dx%d", e.Cols, e.Rows)
	case *statemachine.Exited:
		return strings.TrimSpace(ending(e) + " " + usage(e.Rusage))
	case *statemachine.Drained:
		return fmt.Sprintf("stdout %s, stderr %s", bytesOf(e.StdoutLen), bytesOf(e.StderrLen))
	case *statemachine.Orphaned:
		return fmt.Sprintf("found again, stdout %s, stderr %s", regained(e.Stdout), regained(e.Stderr))
	case *statemachine.Collected:
		return string(e.Why)
	case *statemachine.Snapshot:
		return fmt.Sprintf("through record %d", e.ThroughSeq)
	case *statemachine.Pruned:
		return fmt.Sprintf("through record %d", e.ThroughSeq)
	case *statemachine.StdinClosed, *statemachine.Deadline, *statemachine.Lost:
		return "" // the kind says it all
	}
	if said, ok := upgradeWords(rec.Event); ok {
		return said
	}
	return dataJSON(rec)
}

// dataJSON is a record's data as events --json shows it.
func dataJSON(rec *statemachine.Record) string {
	var shown struct{ Data json.RawMessage }
	if err := json.Unmarshal(rec.AppendJSON(nil, ""), &shown); err != nil {
		return ""
	}
	return string(shown.Data)
}

func agentStarted(e *statemachine.AgentStarted) string {
	s := fmt.Sprintf("version %s pid %d", e.Version, e.PID)
	if e.SetAside != "" {
		s += ", set aside " + e.SetAside
	}
	return s
}

func verb(e *statemachine.Verb) string {
	s := fmt.Sprintf("%s by %s", e.Op, e.Peer)
	if e.Front != "guest" {
		s += " on " + e.Front
	}
	if e.OK {
		s += " ok"
	} else {
		s += " refused: " + e.Code
	}
	s += " " + span(e.TookUS)
	if e.Count > 1 {
		s += fmt.Sprintf(" (%d since %s)", e.Count, local(e.First).Format(clockLayout))
	}
	return s
}

// spec is what to run, and how, as far as that is out of the ordinary.
func spec(s *statemachine.Spec) string {
	w := command(s.Cmd)
	if s.Cwd != "" && s.Cwd != "/" {
		w += " in " + argument(s.Cwd)
	}
	if s.PTY {
		w += fmt.Sprintf(", terminal %dx%d", s.Cols, s.Rows)
	}
	if s.TimeoutMS > 0 {
		w += ", at most " + (time.Duration(s.TimeoutMS) * time.Millisecond).String()
	}
	if s.Session != "" {
		w += ", session " + s.Session
	}
	return w
}

// command is an argv in one line, from which it can be told what the
// arguments were.
func command(argv []string) string {
	shown := make([]string, len(argv))
	for i, a := range argv {
		shown[i] = argument(a)
	}
	return strings.Join(shown, " ")
}

func argument(a string) string {
	if a == "" || strings.ContainsAny(a, " \"'\\,") || printable(a) != a {
		return strconv.Quote(a)
	}
	return a
}

func signalled(e *statemachine.Signalled) string {
	if e.Group {
		return signalName(e.Signal) + " to the group"
	}
	return signalName(e.Signal) + " to the leader"
}

// ending tells an exit code, or the signal, and the reason.
func ending(e *statemachine.Exited) string {
	s := fmt.Sprintf("exit %d", e.ExitCode)
	if e.Signal != 0 {
		s = signalName(e.Signal)
	}
	if e.CoreDumped {
		return fmt.Sprintf("%s (%s, core dumped)", s, e.Reason)
	}
	return fmt.Sprintf("%s (%s)", s, e.Reason)
}

// usage is what a process used, "" where nobody knows.
func usage(r statemachine.Rusage) string {
	if !r.Known() {
		return ""
	}
	return fmt.Sprintf("user %s, sys %s, rss %s", span(r.UserUS), span(r.SysUS), size(r.MaxRSSKiB<<10))
}

func regained(ok bool) string {
	if ok {
		return "regained"
	}
	return "lost"
}

func signalName(n int) string {
	if name := unix.SignalName(syscall.Signal(n)); name != "" {
		return name
	}
	return fmt.Sprintf("signal %d", n)
}

// span is a time in microseconds, to two digits or to the unit.
func span(us int64) string {
	switch {
	case us < 1_000:
		return fmt.Sprintf("%d µs", us)
	case us < 1_000_000:
		return scaled(us, 1_000) + " ms"
	}
	return scaled(us, 1_000_000) + " s"
}

// size is a number of bytes, to two digits or to the unit.
func size(n int64) string {
	switch {
	case n < 1<<10:
		return bytesOf(n)
	case n < 1<<20:
		return scaled(n, 1<<10) + " KiB"
	case n < 1<<30:
		return scaled(n, 1<<20) + " MiB"
	}
	return scaled(n, 1<<30) + " GiB"
}

// scaled is n in the given unit, with a decimal below ten.
func scaled(n, unit int64) string {
	if v := float64(n) / float64(unit); v < 9.95 {
		return strings.TrimSuffix(strconv.FormatFloat(v, 'f', 1, 64), ".0")
	}
	return strconv.FormatInt((n+unit/2)/unit, 10)
}

// bytesOf is an exact number of bytes.
func bytesOf(n int64) string {
	if n == 1 {
		return "1 byte"
	}
	return fmt.Sprintf("%d bytes", n)
}

// local is a wall clock time, unix nanoseconds, where the reader is.
func local(wall int64) time.Time { return time.Unix(0, wall).Local() }
