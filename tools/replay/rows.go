package main

import (
	"bytes"
	"fmt"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"supervisor/statemachine"
)

// stateJSON is what state --json prints.
type stateJSON struct {
	Seq      uint64         `json:"seq"`
	Time     *time.Time     `json:"time"` // null before the first record
	Partial  bool           `json:"partial"`
	Procs    []procJSON     `json:"procs"`
	Starting []startingJSON `json:"starting"`
}

// procJSON is a process that was started.
type procJSON struct {
	Handle    string     `json:"handle"`
	PID       int        `json:"pid"`
	Cmd       []string   `json:"cmd"`
	Cwd       string     `json:"cwd"`
	State     string     `json:"state"`
	Running   bool       `json:"running"`
	ExitCode  int        `json:"exit_code"`
	Signal    int        `json:"signal,omitempty"`
	TimedOut  bool       `json:"timed_out"`
	Reason    string     `json:"reason,omitempty"`
	StartedAt time.Time  `json:"started_at"`
	ExitedAt  *time.Time `json:"exited_at,omitempty"`
	PTY       bool       `json:"pty"`
	Drained   bool       `json:"drained"`
	StdoutLen int64      `json:"stdout_len"`
	StderrLen int64      `json:"stderr_len"`
	Orphaned  bool       `json:"orphaned,omitempty"`
	Session   string     `json:"session,omitempty"`
	Rusage    *usageJSON `json:"rusage,omitempty"`
	Requested uint64     `json:"requested_seq"` // of the record that asked for it: the order of starts
}

type usageJSON struct {
	UserUS    int64 `json:"user_us"`
	SysUS     int64 `json:"sys_us"`
	MaxRSSKiB int64 `json:"max_rss_kib"`
}

// startingJSON is a start whose outcome is not known.
type startingJSON struct {
	Handle    string   `json:"handle"`
	Cmd       []string `json:"cmd"`
	Cwd       string   `json:"cwd"`
	PTY       bool     `json:"pty"`
	Session   string   `json:"session,omitempty"`
	Requested uint64   `json:"requested_seq"`
}

// stateOf is the registry as it was at a moment, as state --json prints it.
func stateOf(r *statemachine.Registry, stamp statemachine.Stamp) *stateJSON {
	shown := &stateJSON{Seq: r.Seq(), Partial: r.Partial(), Procs: []procJSON{}, Starting: []startingJSON{}}
	if stamp != (statemachine.Stamp{}) {
		shown.Time = utc(stamp.Wall)
	}
	for _, p := range r.Processes() {
		if p.State == statemachine.StateRequested {
			shown.Starting = append(shown.Starting, startingJSON{p.Handle, p.Spec.Cmd, p.Spec.Cwd, p.Spec.PTY, p.Spec.Session, p.RequestedSeq})
		} else {
			shown.Procs = append(shown.Procs, procRow(p))
		}
	}
	return shown
}

func procRow(p *statemachine.Process) procJSON {
	row := procJSON{
		Handle: p.Handle, PID: p.Started.PID, Cmd: p.Spec.Cmd, Cwd: p.Spec.Cwd, PTY: p.Spec.PTY, Session: p.Spec.Session,
		State: p.State.String(), Running: p.State.Alive(), Orphaned: p.Orphaned,
		Drained:   drained(p),
		StdoutLen: p.Output.StdoutLen, StderrLen: p.Output.StderrLen,
		StartedAt: *utc(p.StartedAt.Wall), Requested: p.RequestedSeq,
	}
	if p.State.Ended() {
		row.ExitCode, row.Signal, row.TimedOut, row.Reason = p.Exit.ExitCode, p.Exit.Signal, p.Exit.TimedOut, string(p.Exit.Reason)
		row.ExitedAt = utc(p.ExitedAt.Wall)
		if p.Exit.Rusage.Known() {
			row.Rusage = (*usageJSON)(&p.Exit.Rusage)
		}
	}
	return row
}

// drained tells whether both streams were read to their end.
func drained(p *statemachine.Process) bool {
	return p.State == statemachine.StateClosed || p.State == statemachine.StateDrained
}

func utc(wall int64) *time.Time {
	t := time.Unix(0, wall).UTC()
	return &t
}

// printTable prints the registry for people.
func (s *stateCommand) printTable(r *statemachine.Registry, stamp statemachine.Stamp, head uint64) error {
	fmt.Fprintf(s.out, "after record %d of %d", r.Seq(), head)
	if stamp != (statemachine.Stamp{}) {
		fmt.Fprintf(s.out, ", %s", local(stamp.Wall).Format(timeLayout))
	}
	fmt.Fprintln(s.out)
	if r.Len() == 0 {
		_, err := fmt.Fprintln(s.out, "no processes")
		return err
	}
	return s.print(r.Processes(), stamp.Instant)
}

func (s *stateCommand) print(all []*statemachine.Process, now statemachine.Instant) error {
	var table bytes.Buffer
	columns := tabwriter.NewWriter(&table, 0, 0, 2, ' ', 0)
	fmt.Fprintln(columns, "HANDLE\tPID\tSTATE\tSTARTED\tRAN\tCOMMAND")
	keep := 0
	for _, p := range all {
		handle := printable(p.Handle)
		keep = max(keep, len(handle))
		fmt.Fprintf(columns, "%s\t%s\t%s\n", handle, strings.Join(cells(p, now), "\t"), spec(&p.Spec))
	}
	columns.Flush()
	for line := range strings.Lines(table.String()) {
		if _, err := fmt.Fprintln(s.out, fit(strings.TrimRight(line, " \n"), keep, s.width)); err != nil {
			return err
		}
	}
	return nil
}

// cells are a process's pid, state, start and running time as of now.
func cells(p *statemachine.Process, now statemachine.Instant) []string {
	if p.State == statemachine.StateRequested {
		return []string{"-", p.State.String(), "-", "-"}
	}
	state, until := p.State.String(), now
	if p.State.Ended() {
		state, until = ending(&p.Exit), p.ExitedAt
		if !drained(p) {
			state += ", not drained"
		}
	}
	return []string{strconv.Itoa(p.Started.PID), state, clock(p.StartedAt.Wall, now.Wall), elapsed(p.StartedAt, until)}
}

// clock is the time of a moment, or its date if that is not today's.
func clock(wall, now int64) string {
	at, today := local(wall), local(now).Format(time.DateOnly)
	if date := at.Format(time.DateOnly); date != today {
		return date
	}
	return at.Format(time.TimeOnly)
}

// elapsed is the time between two instants: by the monotonic clock within a
// boot, by the wall clock over a reboot.
func elapsed(from, to statemachine.Instant) string {
	ns := to.Mono - from.Mono
	if from.Boot != to.Boot {
		ns = to.Wall - from.Wall
	}
	if ns < int64(time.Minute) {
		return span(ns / 1000)
	}
	return time.Duration(ns).Round(time.Second).String()
}
