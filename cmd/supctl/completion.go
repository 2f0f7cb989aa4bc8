package main

import (
	"context"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"supervisor/client"
)

// completeWithin bounds what a person waits for after a tab.
const completeWithin = time.Second

func (a *app) completionCommand() *cobra.Command {
	shells := []string{"bash", "zsh", "fish"}
	return &cobra.Command{
		Use:   "completion bash|zsh|fish",
		Short: "Print what makes a shell complete commands, flags and handles",
		Long: `Completion prints a script for a shell. With it, a tab completes commands, flags
and the handles of processes, which it asks the agent for.`,
		Example: `  source <(supctl completion bash)
  supctl completion zsh >"${fpath[1]}/_supctl"
  supctl completion fish >~/.config/fish/completions/supctl.fish`,
		ValidArgs: shells,
		Args:      operands("SHELL"),
		RunE: func(cmd *cobra.Command, args []string) error {
			switch root := cmd.Root(); args[0] {
			case "bash":
				return root.GenBashCompletionV2(a.stdout, true)
			case "zsh":
				return root.GenZshCompletion(a.stdout)
			case "fish":
				return root.GenFishCompletion(a.stdout, true)
			}
			return usagef("completion: %q is not one of bash, zsh and fish", args[0])
		},
	}
}

// completion completes the next argument of a command.
type completion = func(cmd *cobra.Command, args []string, typed string) ([]cobra.Completion, cobra.ShellCompDirective)

// anyProcess is every process that the agent still knows.
func anyProcess(client.Proc) bool { return true }

// running are the processes that have not ended.
func running(p client.Proc) bool { return p.Running }

// hasTerminal are those of them that have one.
func hasTerminal(p client.Proc) bool { return p.Running && p.PTY }

// completeHandles completes the first argument with the handles of those
// processes that fit, and what follows with the given words.
func (a *app) completeHandles(fits func(client.Proc) bool, then ...cobra.Completion) completion {
	return func(cmd *cobra.Command, args []string, _ string) (found []cobra.Completion, _ cobra.ShellCompDirective) {
		if len(args) == 0 {
			for _, p := range a.listBriefly(cmd.Context()) {
				if fits(p) {
					found = append(found, cobra.CompletionWithDesc(p.Handle, state(p)+"  "+fit(quoted(p.Cmd), 60)))
				}
			}
		}
		if len(args) == 1 {
			found = then
		}
		return found, cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveKeepOrder
	}
}

// listBriefly lists processes, the newest first, or none if the agent is not
// quick.
func (a *app) listBriefly(ctx context.Context) []client.Proc {
	ctx, cancel := context.WithTimeout(ctx, completeWithin)
	defer cancel()
	c, err := client.Dial(ctx, a.address())
	if err != nil {
		return nil
	}
	defer c.Close()
	procs, _ := c.List(ctx)
	slices.Reverse(procs)
	return procs
}
