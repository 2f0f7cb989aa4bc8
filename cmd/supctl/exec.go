package main

import (
	"bytes"
	"context"
	"errors"
	"io"
	"time"

	"github.com/spf13/cobra"

	"supervisor/client"
)

func (a *app) execCommand() *cobra.Command {
	var r client.ExecRequest
	var timeout time.Duration
	cmd := &cobra.Command{
		Use:   "exec [flags] -- CMD [ARG...]",
		Short: "Run a short command to its end and print what it wrote",
		Long: `Exec runs a command that ends with the call, also when supctl does: nothing of it is
kept, and its output, 8 MiB of each stream at most, comes at its end. Its stdin is
supctl's, unless that is a terminal. Exec exits with its code. For anything long use
run.`,
		Example: `  supctl exec -- uname -r
  supctl exec --timeout 5s -- sh -c 'df -h | grep /srv'`,
		Args: commandLine,
		RunE: a.connected(func(ctx context.Context, c *client.Client, argv []string) (err error) {
			r.Cmd, r.TimeoutMS = argv, timeout.Milliseconds()
			if a.terminalIn() == nil {
				if r.Stdin, err = io.ReadAll(a.stdin); err != nil {
					return err
				}
			}
			reply, err := c.Exec(ctx, r)
			if err != nil {
				return err
			}
			return a.printExec(reply)
		}),
	}
	cmd.Flags().StringVar(&r.Cwd, "cwd", "", "the command's working `DIR` (default /)")
	cmd.Flags().StringArrayVar(&r.Env, "env", nil, "a `KEY=VALUE` on top of the agent's environment; repeatable")
	cmd.Flags().DurationVar(&timeout, "timeout", 0, "kill the command after this long, like 90s (default never)")
	return cmd
}

func (a *app) printExec(reply client.ExecReply) error {
	if a.json {
		return a.printJSON(&reply)
	}
	for stream, data := range [][]byte{reply.Stdout, reply.Stderr} {
		if _, err := io.Copy(a.stream(client.Stream(stream)), bytes.NewReader(data)); err != nil {
			return outputError{err}
		}
	}
	if reply.Truncated {
		a.complain(errors.New("output is missing: it was more than exec holds"))
	}
	switch {
	case reply.TimedOut:
		return errors.New("the command was killed after its timeout")
	case reply.ExitCode < 0:
		return errors.New("the command was killed by a signal")
	}
	return exitStatus(client.Exit{ExitCode: reply.ExitCode})
}
