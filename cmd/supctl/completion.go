package main

import (
	"cmp"
	"context"
	"slices"
	"strings"
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

// completeCopy completes the paths of cp: those here are the shell's affair.
func (a *app) completeCopy(cmd *cobra.Command, args []string, typed string) ([]cobra.Completion, cobra.ShellCompDirective) {
	switch dir, inGuest := strings.CutPrefix(typed, guestSide); {
	case len(args) > 1:
		return nil, cobra.ShellCompDirectiveNoFileComp
	case inGuest:
		return a.guestFiles(cmd.Context(), dir[:strings.LastIndexByte(dir, '/')+1]), cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveNoSpace
	case typed != "" && strings.HasPrefix(guestSide, typed):
		return []cobra.Completion{guestSide}, cobra.ShellCompDirectiveNoSpace
	}
	return nil, cobra.ShellCompDirectiveDefault
}

// guestFiles lists what is in a folder of the guest; folders end with a slash.
func (a *app) guestFiles(ctx context.Context, dir string) (found []cobra.Completion) {
	a.askBriefly(ctx, func(ctx context.Context, c *client.Client) {
		listed, _ := c.Exec(ctx, client.ExecRequest{Cmd: []string{"ls", "-1Ap", "--", cmp.Or(dir, "/")}})
		for name := range strings.Lines(string(listed.Stdout)) {
			found = append(found, guestSide+dir+strings.TrimSuffix(name, "\n"))
		}
	})
	return found
}

// listBriefly lists processes, the newest first.
func (a *app) listBriefly(ctx context.Context) (procs []client.Proc) {
	a.askBriefly(ctx, func(ctx context.Context, c *client.Client) { procs, _ = c.List(ctx) })
	slices.Reverse(procs)
	return procs
}

// askBriefly asks an agent, if there is one and it is quick. What goes wrong is
// nothing to complete.
func (a *app) askBriefly(ctx context.Context, ask func(context.Context, *client.Client)) {
	ctx, cancel := context.WithTimeout(ctx, completeWithin)
	defer cancel()
	if c, err := client.Dial(ctx, a.address()); err == nil {
		defer c.Close()
		ask(ctx, c)
	}
}
