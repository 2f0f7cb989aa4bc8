package main

import (
	"context"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"supervisor/client"
)

func (a *app) signalCommand() *cobra.Command {
	var leader bool
	cmd := &cobra.Command{
		Use:   "signal [--leader] HANDLE SIGNAL",
		Short: "Send a signal to a process group",
		Example: `  supctl signal p_0123456789abcdef TERM
  supctl signal --leader p_0123456789abcdef 10`,
		Args:              operands("HANDLE", "SIGNAL"),
		ValidArgsFunction: a.completeHandles(running, "TERM", "INT", "HUP", "KILL", "QUIT", "USR1", "USR2", "STOP", "CONT"),
	}
	send := func(signal int) action {
		return func(ctx context.Context, c *client.Client, args []string) error {
			return c.Signal(ctx, args[0], signal, !leader)
		}
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		signal, err := parseSignal(args[1])
		if err != nil {
			return err
		}
		return a.connected(send(signal))(cmd, args)
	}
	cmd.Flags().BoolVar(&leader, "leader", false, "signal the process alone, not its group")
	return cmd
}

// parseSignal reads TERM, SIGTERM, term or 15.
func parseSignal(s string) (int, error) {
	if n, err := strconv.Atoi(s); err == nil && n >= 1 && n <= 64 {
		return n, nil
	}
	if n := unix.SignalNum("SIG" + strings.TrimPrefix(strings.ToUpper(s), "SIG")); n != 0 {
		return int(n), nil
	}
	return 0, usagef("signal: %q is neither a signal's name nor a number from 1 to 64", s)
}
