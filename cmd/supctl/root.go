package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"supervisor/client"
	"supervisor/internal/manpage"
)

// app is what every command needs: the world around it and the global flags.
type app struct {
	environ        []string
	stdin          io.Reader
	stdout, stderr io.Writer
	raw            bool // the terminal is in raw mode

	addr string
	json bool
}

func (a *app) root() *cobra.Command {
	root := &cobra.Command{
		Use:   "supctl",
		Short: "Run and watch processes in a guest",
		Long: `supctl starts, watches and ends processes that an agent (supervisor serve) owns.
A process lives on when supctl ends.

The agent's address is --addr, else $SUPERVISOR_ADDR, else the agent's default
unix socket. It is one of unix:PATH, vsock:CID:PORT, tcp:HOST:PORT (loopback)
and hybrid:PATH:PORT (the host side of a VMM's vsock).

Exit codes: 0, 1 for an error, 2 for a command line that cannot be meant; run,
attach, wait and exec exit with the process's own code, 128+N when signal N ended it.`,
		Example: `  supctl run -- make test
  supctl --addr vsock:3:18047 ps -a
  supctl logs -f p_0123456789abcdef`,
		Version:       version,
		Args:          commandMissing,
		RunE:          func(*cobra.Command, []string) error { return nil },
		SilenceErrors: true,
		SilenceUsage:  true,
	}
	root.PersistentFlags().StringVar(&a.addr, "addr", "", "the agent's `ADDRESS` (default $SUPERVISOR_ADDR)")
	root.PersistentFlags().BoolVar(&a.json, "json", false, "print JSON (start, ps, wait, exec, info, journal, upgrade)")
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return usageError{err} })
	cobra.EnableCommandSorting = false // what is used most comes first
	addGroup(root, "Processes", a.startCommand(), a.runCommand(), a.psCommand(), a.topCommand(), a.logsCommand(), a.attachCommand(),
		a.stdinCommand(), a.waitCommand(), a.signalCommand(), a.killCommand(), a.resizeCommand())
	addGroup(root, "The guest", a.execCommand(), a.cpCommand())
	addGroup(root, "The agent", a.infoCommand(), a.journalCommand(), a.upgradeCommand())
	root.AddCommand(a.completionCommand(), manpage.Command(a.stdout))
	root.CompletionOptions.DisableDefaultCmd = true // ours has no powershell
	manpage.Help(root)
	return root
}

func addGroup(root *cobra.Command, title string, commands ...*cobra.Command) {
	root.AddGroup(&cobra.Group{ID: title, Title: title})
	for _, cmd := range commands {
		cmd.GroupID = title
		root.AddCommand(cmd)
	}
}

func commandMissing(_ *cobra.Command, args []string) error {
	if len(args) > 0 {
		return usagef("unknown command %q: see supctl --help", args[0])
	}
	return usagef("a command is missing: see supctl --help")
}

// operands refuses any other number of arguments than there are names.
func operands(names ...string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) == len(names) {
			return nil
		}
		want := strings.Join(names, " ")
		if want == "" {
			want = "no arguments"
		}
		return usagef("%s: want %s, got %d arguments: see supctl %s --help", cmd.Name(), want, len(args), cmd.Name())
	}
}

// commandLine refuses anything but a command after --.
func commandLine(cmd *cobra.Command, args []string) error {
	if cmd.ArgsLenAtDash() != 0 || len(args) == 0 {
		return usagef("%s: the command to run goes after --: see supctl %s --help", cmd.Name(), cmd.Name())
	}
	return nil
}

// action is what a command does with a connected client.
type action func(ctx context.Context, c *client.Client, args []string) error

// connected makes a cobra command of an action.
func (a *app) connected(do action) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		c, err := client.Dial(cmd.Context(), a.address())
		if errors.Is(err, client.ErrBadAddress) {
			return usageError{err}
		}
		if err != nil {
			return a.unreachable(err)
		}
		defer c.Close()
		err = do(cmd.Context(), c, args)
		if isOfHandle(err) {
			return fmt.Errorf("%w: %s", err, args[0])
		}
		return err
	}
}

// isOfHandle reports whether an error is about the process that the first
// argument names.
func isOfHandle(err error) bool {
	for _, kind := range []error{client.ErrUnknownHandle, client.ErrNotRunning, client.ErrStdinClosed, client.ErrNoTerminal} {
		if errors.Is(err, kind) {
			return true
		}
	}
	return false
}

// unreachable says what can be done about an agent that is not where nobody
// said that it is.
func (a *app) unreachable(err error) error {
	if a.addr == "" && a.getenv("SUPERVISOR_ADDR") == "" {
		return fmt.Errorf("%w (start one with supervisor serve, or say with --addr where it is)", err)
	}
	return err
}

// address is where the agent is: see the help of root.
func (a *app) address() string {
	if addr := cmp.Or(a.addr, a.getenv("SUPERVISOR_ADDR")); addr != "" {
		return addr
	}
	dir := "/run"
	if uid := os.Geteuid(); uid != 0 {
		dir = cmp.Or(a.getenv("XDG_RUNTIME_DIR"), fmt.Sprintf("/tmp/supervisor-%d", uid))
	}
	return "unix:" + filepath.Join(dir, "supervisor", "agent.sock")
}

// getenv returns a variable of the environment; the last of its entries wins.
func (a *app) getenv(name string) (value string) {
	for _, entry := range a.environ {
		if v, ok := strings.CutPrefix(entry, name+"="); ok {
			value = v
		}
	}
	return value
}
