package main

import (
	"context"

	"github.com/spf13/cobra"

	"supervisor/client"
)

func (a *app) waitCommand() *cobra.Command {
	return &cobra.Command{
		Use:               "wait HANDLE",
		Short:             "Wait for a process's end and exit with its code",
		Example:           `  supctl wait p_0123456789abcdef; echo $?`,
		Args:              operands("HANDLE"),
		ValidArgsFunction: a.completeHandles(anyProcess),
		RunE: a.connected(func(ctx context.Context, c *client.Client, args []string) error {
			exit, err := c.Wait(ctx, args[0])
			if err == nil && a.json {
				err = a.printJSON(&client.WaitReply{Exit: exit})
			}
			if err != nil {
				return err
			}
			return exitStatus(exit)
		}),
	}
}
