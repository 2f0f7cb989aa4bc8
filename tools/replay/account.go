package main

import (
	"fmt"
	"time"

	"supervisor/statemachine"
)

// account is a process's story as why --json prints it, and as the page of the
// timeline holds it. Fields are only added.
type account struct {
	Handle    string         `json:"handle"`
	Outcome   outcome        `json:"outcome"`
	Summary   string         `json:"summary"` // a sentence without its subject, the process
	Ran       string         `json:"ran,omitempty"`
	Spec      *specJSON      `json:"spec,omitempty"`     // absent where it was pruned
	AskedBy   *askerJSON     `json:"asked_by,omitempty"` // absent where it is not known
	Process   *procJSON      `json:"process,omitempty"`  // as state shows it; absent if it never started
	Error     string         `json:"error,omitempty"`    // of a start that failed
	Core      bool           `json:"core_dumped,omitempty"`
	Forgotten string         `json:"forgotten,omitempty"` // why the registry forgot it
	Steps     []stepJSON     `json:"steps"`
	Reads     map[string]int `json:"reads,omitempty"` // requests that only asked, by verb
	Output    *outputJSON    `json:"output,omitempty"`
	Unknown   []string       `json:"unknown"` // what is not known, and why
}

// outcome is what became of a process.
type outcome string

// The outcomes.
const (
	outcomeStarting outcome = "starting"
	outcomeFailed   outcome = "failed" // the start did
	outcomeRunning  outcome = "running"
	outcomeEnded    outcome = "ended"
	outcomeUnknown  outcome = "unknown"
)

type specJSON struct {
	Cmd       []string `json:"cmd"`
	Cwd       string   `json:"cwd"`
	EnvNames  []string `json:"env_names,omitempty"`
	PTY       bool     `json:"pty,omitempty"`
	TimeoutMS int64    `json:"timeout_ms,omitempty"`
	Session   string   `json:"session,omitempty"`
}

type askerJSON struct {
	Front string `json:"front"`
	Peer  string `json:"peer"`
	Op    string `json:"op"`
}

// stepJSON is a record, or several alike in a row, of which it is the first.
type stepJSON struct {
	Seq   uint64     `json:"seq"`
	Time  time.Time  `json:"time"`
	Kind  string     `json:"kind"`
	Says  string     `json:"says"`
	Count int        `json:"count,omitempty"`
	Until *time.Time `json:"until,omitempty"`
	By    *askerJSON `json:"by,omitempty"`
}

type outputJSON struct {
	Stdout streamJSON `json:"stdout"`
	Stderr streamJSON `json:"stderr"`
}

type streamJSON struct {
	Len    int64  `json:"len"`
	SHA256 string `json:"sha256,omitempty"`
	Tail   []byte `json:"tail"`
}

// account tells a life.
func (c *chronicle) account(l *life) *account {
	a := &account{
		Handle: l.Handle, Outcome: l.outcome(), Summary: l.summary(), AskedBy: askerOf(l.asked),
		Steps: []stepJSON{}, Reads: l.reads, Unknown: append([]string{}, l.unknowns(c)...),
	}
	if s := &l.Spec; len(s.Cmd) > 0 {
		a.Spec = &specJSON{s.Cmd, s.Cwd, s.EnvNames, s.PTY, s.TimeoutMS, s.Session}
	}
	if l.hasStarted() {
		row := procRow(&l.Process)
		a.Process, a.Core, a.Ran = &row, l.Exit.CoreDumped, l.ran(c)
	}
	if l.failed != nil {
		a.Error = l.failed.Error
	}
	if l.gone != nil {
		a.Forgotten = string(l.gone.Why)
	}
	for i := range l.steps {
		a.Steps = append(a.Steps, l.stepJSON(&l.steps[i]))
	}
	if o := &l.Output; drained(&l.Process) {
		a.Output = &outputJSON{
			Stdout: streamJSON{o.StdoutLen, o.StdoutSHA256, o.StdoutTail},
			Stderr: streamJSON{o.StderrLen, o.StderrSHA256, o.StderrTail},
		}
	}
	return a
}

func (l *life) outcome() outcome {
	switch {
	case l.failed != nil:
		return outcomeFailed
	case l.State == statemachine.StateRequested:
		return outcomeStarting
	case l.State.Alive():
		return outcomeRunning
	case l.State.Ended():
		return outcomeEnded
	}
	return outcomeUnknown
}

// ran is how long a process ran, as far as is known, "" where its start is not.
func (l *life) ran(c *chronicle) string {
	switch {
	case l.StartedAt == (statemachine.Instant{}):
		return ""
	case l.State.Alive():
		return elapsed(l.StartedAt, c.now.Instant) + " up to the last record"
	case l.unseen():
		return "at most " + elapsed(l.StartedAt, l.ExitedAt)
	}
	return elapsed(l.StartedAt, l.ExitedAt)
}

func (l *life) stepJSON(s *step) stepJSON {
	out := stepJSON{Seq: s.seq, Time: *utc(s.wall), Kind: string(s.event.Kind()), Says: l.says(s), By: askerOf(s.by)}
	if s.count > 1 {
		out.Count, out.Until = s.count, utc(s.wall+s.last-s.at)
	}
	return out
}

func askerOf(v *statemachine.Verb) *askerJSON {
	if v == nil {
		return nil
	}
	return &askerJSON{v.Front, v.Peer, v.Op}
}

// text is a step for people.
func (s *stepJSON) text() string {
	text := s.Says
	if s.By != nil {
		text += fmt.Sprintf(", by %s (%s front, %s)", s.By.Peer, s.By.Front, s.By.Op)
	}
	if s.Count > 1 {
		text += fmt.Sprintf(", %d times", s.Count)
		if s.Until.Sub(s.Time) >= time.Millisecond {
			text += " until " + s.Until.Local().Format(clockLayout)
		}
	}
	return text
}
