package main

import (
	"bufio"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"supervisor/client"
)

func (a *app) psCommand() *cobra.Command {
	var all bool
	cmd := &cobra.Command{
		Use:   "ps [-a]",
		Short: "List processes",
		Long: `Ps lists the processes that run, with -a also those that have ended and are not
forgotten yet. AGE is the time since the start, or since the end; OUT counts the
bytes of both streams.`,
		Example: `  supctl ps
  supctl ps -a --json | jq -r '.[] | select(.exit_code != 0) | .handle'`,
		Args: operands(),
		RunE: a.connected(func(ctx context.Context, c *client.Client, _ []string) error {
			procs, err := c.List(ctx)
			if err != nil {
				return err
			}
			if !all {
				procs = slices.DeleteFunc(procs, func(p client.Proc) bool { return !p.Running })
			}
			if a.json {
				return a.printRows(procs)
			}
			return a.printTable(procs, time.Now())
		}),
	}
	cmd.Flags().BoolVarP(&all, "all", "a", false, "also those that have ended")
	return cmd
}

func (a *app) printRows(procs []client.Proc) error {
	out, comma := []byte("["), ""
	for i := range procs {
		out = client.AppendJSON(append(out, comma...), &procs[i])
		comma = ",\n "
	}
	_, err := a.stdout.Write(append(out, "]\n"...))
	return err
}

// The columns of the table. The last one takes the room that is left.
const (
	columnHandle = iota
	columnPID
	columnState
	columnAge
	columnOut
	columnCmd
	columns
)

type row [columns]string

// gutter is what separates columns.
const gutter = "  "

func (a *app) printTable(procs []client.Proc, now time.Time) error {
	rows := []row{{"HANDLE", "PID", "STATE", "AGE", "OUT", "CMD"}}
	paints := []string{""}
	for _, p := range procs {
		since := p.StartedAt
		if !p.Running {
			since = p.ExitedAt
		}
		rows = append(rows, row{
			p.Handle, fmt.Sprint(p.PID), state(p), ago(time.Unix(since, 0), now),
			size(p.StdoutLen + p.StderrLen), quoted(p.Cmd),
		})
		paints = append(paints, paint(p))
	}
	widths := layout(rows, a.terminalWidth())
	w := bufio.NewWriter(a.stdout)
	for i, r := range rows {
		if !a.colour() {
			paints[i] = ""
		}
		fmt.Fprintln(w, r.line(widths, paints[i]))
	}
	return w.Flush()
}

// layout is the width of each column. In a terminal, whose width is not 0, no
// line is wider than that: columns that do not fit are left out, the last
// first, and have width -1. The handle is always whole.
func layout(rows []row, terminal int) (widths [columns]int) {
	used := -len(gutter)
	for c := range widths {
		for _, r := range rows {
			widths[c] = max(widths[c], width(r[c]))
		}
		room := terminal - used - len(gutter)
		switch {
		case terminal == 0 || c == columnHandle:
		case c == columnCmd && room >= len("CMD"):
			widths[c] = room
		case room < widths[c]:
			widths[c], room = -1, 0
			terminal = min(terminal, used) // nothing fits behind a gap
			continue
		}
		used += widths[c] + len(gutter)
	}
	return widths
}

// line is a row in its columns, its state painted.
func (r row) line(widths [columns]int, paint string) string {
	var b strings.Builder
	for c, width := range widths {
		if width < 0 {
			continue
		}
		if c > 0 {
			b.WriteString(gutter)
		}
		b.WriteString(r.cell(c, width, paint))
	}
	return strings.TrimRight(b.String(), " ")
}

// cell pads; numbers to the left.
func (r row) cell(c, width int, paint string) string {
	switch c {
	case columnPID, columnAge, columnOut:
		return fmt.Sprintf("%*s", width, r[c])
	case columnCmd:
		return fit(r[c], width)
	case columnState:
		padded := fmt.Sprintf("%-*s", width, r[c])
		if paint != "" {
			padded = paint + padded + "\x1b[0m"
		}
		return padded
	default:
		return fmt.Sprintf("%-*s", width, r[c])
	}
}

// state is running, or the reason of the end with the exit code or the signal.
func state(p client.Proc) string {
	reason := reason(p)
	switch {
	case p.Running || reason == "lost":
		return reason
	case p.Signal != 0:
		return reason + " " + signalName(p.Signal)
	default:
		return fmt.Sprintf("%s %d", reason, p.ExitCode)
	}
}

// reason is the agent's word, or for older agents what their rows imply.
func reason(p client.Proc) string {
	switch {
	case p.Running:
		return "running"
	case p.Reason != "":
		return p.Reason
	case p.TimedOut:
		return "timeout"
	case p.Signal != 0:
		return "signal"
	case p.ExitCode < 0:
		return "lost"
	default:
		return "exited"
	}
}

// paint is green for what runs, red for what failed.
func paint(p client.Proc) string {
	switch {
	case p.Running:
		return "\x1b[32m"
	case p.ExitCode != 0:
		return "\x1b[31m"
	default:
		return ""
	}
}
