package main

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"supervisor/client"
)

// specFlags are the flags that say how a process is to run.
type specFlags struct {
	request client.StartRequest
	timeout time.Duration
}

func (s *specFlags) add(flags *pflag.FlagSet) {
	flags.StringVar(&s.request.Cwd, "cwd", "", "the process's working `DIR` (default /)")
	flags.StringArrayVar(&s.request.Env, "env", nil, "a `KEY=VALUE` on top of the agent's environment; repeatable")
	flags.DurationVar(&s.timeout, "timeout", 0, "kill the process group after this long, like 90s (default never)")
}

// spec is the request to start argv.
func (s *specFlags) spec(argv []string) client.StartRequest {
	r := s.request
	r.Cmd, r.TimeoutMS = argv, s.timeout.Milliseconds()
	return r
}

func (a *app) startCommand() *cobra.Command {
	var flags specFlags
	cmd := &cobra.Command{
		Use:   "start [flags] -- CMD [ARG...]",
		Short: "Start a process and print its handle",
		Example: `  supctl start -- python3 -m http.server 8000
  supctl start --idem backup-2026-01-31 -- /usr/local/bin/backup
  supctl start --cwd /srv --env DEBUG=1 --timeout 1h -- sh -c 'make && ./serve'`,
		Args: commandLine,
		RunE: a.connected(func(ctx context.Context, c *client.Client, argv []string) error {
			reply, err := c.Start(ctx, flags.spec(argv))
			if err != nil {
				return err
			}
			if a.json {
				return a.printJSON(&reply)
			}
			_, err = fmt.Fprintln(a.stdout, reply.Handle)
			return err
		}),
	}
	flags.add(cmd.Flags())
	cmd.Flags().BoolVar(&flags.request.PTY, "pty", false, "give the process a terminal")
	cmd.Flags().StringVar(&flags.request.Idem, "idem", "", "start at most once per `KEY`: again with the same command, it prints the first one's handle")
	return cmd
}
