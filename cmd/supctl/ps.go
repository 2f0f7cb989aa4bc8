package main

import (
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
forgotten yet. STATE is running, or why the process ended with its exit code or
signal; AGE is how long it has run, or how long ago it ended; OUT counts the bytes
of both streams.`,
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

// psColumns are those of ps.
var psColumns = []column{{"HANDLE", false}, {"PID", true}, {"STATE", false}, {"AGE", false}, {"OUT", true}, {"CMD", false}}

// stateColumn is the one that is painted.
const stateColumn = 2

func (a *app) printTable(procs []client.Proc, now time.Time) error {
	t := table{columns: psColumns, painted: stateColumn}
	for _, p := range procs {
		cells := []string{p.Handle, fmt.Sprint(p.PID), state(p), age(p, now), size(p.StdoutLen + p.StderrLen), quoted(p.Cmd)}
		t.rows = append(t.rows, row{cells, paint(p)})
	}
	lines := t.lines(a.terminalWidth(), a.colour())
	_, err := fmt.Fprintln(a.stdout, strings.Join(lines, "\n"))
	return err
}

// age is how long a process has run, or how long ago it ended.
func age(p client.Proc, now time.Time) string {
	if p.Running {
		return ago(time.Unix(p.StartedAt, 0), now)
	}
	return ago(time.Unix(p.ExitedAt, 0), now) + " ago"
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
		return green
	case p.ExitCode != 0:
		return red
	default:
		return ""
	}
}
