package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"supervisor/client"
)

func (a *app) infoCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "info",
		Short: "Print who the agent is and what it can do",
		Example: `  supctl info
  supctl info --json | jq -r .agent_version`,
		Args: operands(),
		RunE: a.connected(func(ctx context.Context, c *client.Client, _ []string) error {
			info, err := c.Info(ctx)
			if err != nil {
				return err
			}
			if a.json {
				return a.printJSON(&info)
			}
			return a.printInfo(info)
		}),
	}
}

func (a *app) printInfo(info client.InfoReply) error {
	_, err := fmt.Fprintf(a.stdout, `version    %s
image      %s
pid        %d
up         %v
processes  %d
journal    %s
caps       %s
features   %s
reaped     %d
`,
		info.AgentVersion, info.ImageSHA256, info.PID, time.Duration(info.UptimeSec)*time.Second, info.ProcCount,
		info.Journal, strings.Join(info.Caps, " "), strings.Join(info.Features, " "), info.Reaped)
	return err
}
