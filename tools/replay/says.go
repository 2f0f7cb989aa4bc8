package main

import (
	"fmt"
	"strings"
	"syscall"
	"time"

	"supervisor/statemachine"
)

// says tells a step in a plain sentence, whose subject is the process.
func (l *life) says(s *step) string {
	if s.agent != "" {
		return s.agent
	}
	switch e := s.event.(type) {
	case *statemachine.Requested:
		return "was asked for: " + spec(&e.Spec)
	case *statemachine.Started:
		return fmt.Sprintf("started as pid %d", e.PID)
	case *statemachine.StartFailed:
		return "could not be started: " + e.Error
	case *statemachine.Verb:
		return fmt.Sprintf("a request was refused: %s (%s)", e.Op, e.Code)
	case *statemachine.Stdin:
		return fmt.Sprintf("took %s of input", bytesOf(e.Bytes))
	case *statemachine.StdinClosed:
		return "had its input closed"
	case *statemachine.Signalled:
		return "was sent " + signalled(e)
	case *statemachine.Resized:
		return fmt.Sprintf("got a terminal of %dx%d", e.Cols, e.Rows)
	case *statemachine.Deadline:
		return "ran out of time" + limit(&l.Spec) + ": SIGKILL was sent to the group"
	}
	return l.saysLate(s.event)
}

// saysLate tells the steps from a process's end on.
func (l *life) saysLate(e statemachine.Event) string {
	switch e := e.(type) {
	case *statemachine.Exited:
		if !e.Rusage.Known() {
			return ended(e)
		}
		return ended(e) + ", having used " + usage(e.Rusage)
	case *statemachine.Lost:
		return "had ended while no agent watched"
	case *statemachine.Drained:
		return fmt.Sprintf("closed its output, after %s on stdout and %s on stderr", bytesOf(e.StdoutLen), bytesOf(e.StderrLen))
	case *statemachine.Orphaned:
		return fmt.Sprintf("was found again, its input at its end, its stdout %s, its stderr %s", regained(e.Stdout), regained(e.Stderr))
	case *statemachine.Collected:
		return "was forgotten" + whyForgotten(e.Why)
	}
	rec := statemachine.Record{Event: e}
	return fmt.Sprintf("has a record of kind %s, which this version does not know: %s", e.Kind(), dataJSON(&rec))
}

// limit is a process's own deadline.
func limit(s *statemachine.Spec) string {
	if s.TimeoutMS == 0 {
		return ""
	}
	return " (" + (time.Duration(s.TimeoutMS) * time.Millisecond).String() + ")"
}

func whyForgotten(w statemachine.CollectWhy) string {
	switch w {
	case statemachine.WhyRetention:
		return ": it had been kept for its time"
	case statemachine.WhyRoom:
		return ": another start needed the room"
	}
	return ": " + string(w)
}

// ended tells what the kernel said of an end.
func ended(e *statemachine.Exited) string {
	switch {
	case e.ExitCode == -1:
		return "ended, and its status could not be had"
	case e.Signal == 0:
		return fmt.Sprintf("exited with code %d", e.ExitCode)
	case e.CoreDumped:
		return "died of " + signalName(e.Signal) + ", and left a core dump"
	}
	return "died of " + signalName(e.Signal)
}

// asker names who made a request.
func asker(v *statemachine.Verb) string {
	if v == nil {
		return ""
	}
	return fmt.Sprintf("%s (%s front, %s)", v.Peer, v.Front, v.Op)
}

// summary is a process's story in one sentence.
func (l *life) summary() string {
	switch {
	case l.failed != nil:
		return "could not be started: " + l.failed.Error
	case l.State == statemachine.StateRequested:
		return "was asked for; whether it started is not known yet"
	case l.State.Alive():
		return "ran at the last record"
	case l.State.Ended():
		return ended(&l.Exit) + l.cause()
	}
	return "is known by name only"
}

// cause is why an ended process ended, as far as anyone knows.
func (l *life) cause() string {
	switch l.Exit.Reason {
	case statemachine.ReasonExited:
		return ", by itself"
	case statemachine.ReasonSignal:
		if l.hungUp() {
			return ": its terminal went with the agent"
		}
		return ", which no request had sent"
	case statemachine.ReasonTimeout:
		return ": its time" + limit(&l.Spec) + " had run out"
	case statemachine.ReasonOOM:
		return ": the kernel killed it, out of memory"
	case statemachine.ReasonLost:
		return ", while no agent watched"
	case statemachine.ReasonKilled:
		if s := l.sender(); s != nil && s.by != nil {
			return ", sent by " + asker(s.by)
		}
		return ", which a request had sent"
	}
	return ": " + string(l.Exit.Reason)
}

// unknowns are what the journal cannot tell of a process, and why.
func (l *life) unknowns(c *chronicle) []string {
	var all []string
	tell := func(when bool, format string, args ...any) {
		if when {
			all = append(all, fmt.Sprintf(format, args...))
		}
	}
	ended := l.State.Ended()
	reason := l.Exit.Reason
	tell(l.cut, "who asked for it, and its records before %d: records 1 to %d were pruned", c.first, c.first-1)
	tell(!l.cut && l.asked == nil, "who asked for it: no answer to the request is on record")
	tell(ended && reason == statemachine.ReasonLost, "its exit code: no agent was there to be told by the kernel")
	tell(l.unseen(), "when it ended: at the latest when the next agent looked")
	tell(ended && !l.Exit.Rusage.Known(), "what it used: the kernel tells only its parent")
	tell(ended && reason == statemachine.ReasonSignal && !l.hungUp(), "who sent %s: it came from the kernel or from another process", signalName(l.Exit.Signal))
	tell(l.State.Alive(), "how it will end: the journal ends at record %d%s", c.last, c.agentAtEnd())
	tell(l.hasStarted() && !drained(&l.Process), "its output: it is kept only from the end of both streams on")
	tell(drained(&l.Process) && l.Output.StdoutLen > int64(len(l.Output.StdoutTail)),
		"the first %s of stdout: only the end is kept", bytesOf(l.Output.StdoutLen-int64(len(l.Output.StdoutTail))))
	tell(drained(&l.Process) && l.Output.StderrLen > int64(len(l.Output.StderrTail)),
		"the first %s of stderr: only the end is kept", bytesOf(l.Output.StderrLen-int64(len(l.Output.StderrTail))))
	tell(l.omitted > 0, "%d steps in the middle: they are left out here, see replay events", l.omitted)
	tell(l.partial, "what records of kinds unknown to this version mean")
	return all
}

// hasStarted tells whether there was a process.
func (l *life) hasStarted() bool { return l.State.Alive() || l.State.Ended() }

// agentAtEnd is what the journal's end says of the agent.
func (c *chronicle) agentAtEnd() string {
	if n := len(c.agents); n > 0 && c.agents[n-1].end == agentStopped {
		return ", the stop of the agent"
	}
	return ""
}

// unseen tells whether a process ended while no agent watched: the next one
// did not find it any more.
func (l *life) unseen() bool {
	for i := len(l.steps) - 1; i >= 0; i-- {
		switch s := &l.steps[i]; s.event.(type) {
		case *statemachine.Orphaned:
			return false
		case *statemachine.AgentStarted:
			return l.State.Ended() && s.seq < l.ExitedSeq
		}
	}
	return l.State.Ended() && l.Exit.Reason == statemachine.ReasonLost
}

// hungUp tells whether a process died of the end of its terminal, which an
// agent's end is.
func (l *life) hungUp() bool {
	return l.Spec.PTY && l.Exit.Signal == int(syscall.SIGHUP) && l.unseen()
}

// indent starts each line of a text with a prefix, and escapes what a terminal
// could obey.
func indent(text, prefix string) string {
	var b strings.Builder
	for line := range strings.Lines(text) {
		b.WriteString(prefix + printable(strings.TrimRight(line, "\r\n")) + "\n")
	}
	return b.String()
}
