package main

import (
	"context"
	"io"

	"github.com/spf13/cobra"

	"supervisor/client"
)

func (a *app) stdinCommand() *cobra.Command {
	var end bool
	cmd := &cobra.Command{
		Use:   "stdin [--close] HANDLE",
		Short: "Copy stdin to a process's stdin",
		Long: `Stdin copies its own stdin to a process's. It waits for a process that does not
read. The process's stdin stays open, unless --close is given.`,
		Example: `  echo hello | supctl stdin p_0123456789abcdef
  supctl stdin --close p_0123456789abcdef </dev/null`,
		Args:              operands("HANDLE"),
		ValidArgsFunction: a.completeHandles(running),
		RunE: a.connected(func(ctx context.Context, c *client.Client, args []string) error {
			pipe := c.StdinPipe(ctx, args[0])
			_, err := io.Copy(pipe, a.stdin)
			if err == nil && end {
				err = pipe.Close()
			}
			return err
		}),
	}
	cmd.Flags().BoolVar(&end, "close", false, "close the process's stdin at the end")
	return cmd
}
