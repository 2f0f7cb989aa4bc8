package main

import (
	"context"

	"github.com/spf13/cobra"

	"supervisor/client"
)

func (a *app) killCommand() *cobra.Command {
	return &cobra.Command{
		Use:               "kill HANDLE",
		Short:             "Kill a process group",
		Long:              `Kill sends SIGKILL to a process's group. Its output and exit code stay.`,
		Example:           `  supctl kill p_0123456789abcdef`,
		Args:              operands("HANDLE"),
		ValidArgsFunction: a.completeHandles(running),
		RunE: a.connected(func(ctx context.Context, c *client.Client, args []string) error {
			return c.Kill(ctx, args[0])
		}),
	}
}
