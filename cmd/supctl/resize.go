package main

import (
	"context"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"supervisor/client"
)

func (a *app) resizeCommand() *cobra.Command {
	return &cobra.Command{
		Use:               "resize HANDLE COLSxROWS",
		Short:             "Set the size of a process's terminal",
		Example:           `  supctl resize p_0123456789abcdef 120x40`,
		Args:              operands("HANDLE", "COLSxROWS"),
		ValidArgsFunction: a.completeHandles(hasTerminal),
		RunE: func(cmd *cobra.Command, args []string) error {
			cols, rows, err := parseSize(args[1])
			if err != nil {
				return err
			}
			return a.connected(func(ctx context.Context, c *client.Client, args []string) error {
				return c.Resize(ctx, args[0], cols, rows)
			})(cmd, args)
		},
	}
}

func parseSize(s string) (cols, rows int, err error) {
	left, right, _ := strings.Cut(s, "x")
	c, errCols := strconv.ParseUint(left, 10, 16)
	r, errRows := strconv.ParseUint(right, 10, 16)
	if errCols != nil || errRows != nil || c == 0 || r == 0 {
		return 0, 0, usagef("resize: %q is not COLSxROWS, like 120x40", s)
	}
	return int(c), int(r), nil
}
