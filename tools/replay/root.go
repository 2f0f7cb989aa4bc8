package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"supervisor/internal/manpage"
)

// root is the command line.
func (p *program) root() *cobra.Command {
	root := &cobra.Command{
		Use:   "replay",
		Short: "Read the journal of a supervisor",
		Long: `Read the journal of a supervisor.

JOURNAL is a file (journal.db in the state directory) or the address of a live
agent: unix:PATH, vsock:CID:PORT, tcp:HOST:PORT or hybrid:PATH:PORT. A file is
never changed. While an agent runs, it holds its file: use the address then.

TIME is RFC 3339 (2026-11-30T21:47:03Z), a local time (2026-11-30 21:47:03.5),
or a duration ago (10m, 1h30m).`,
		Version:           version,
		SilenceErrors:     true,
		SilenceUsage:      true,
		CompletionOptions: cobra.CompletionOptions{HiddenDefaultCmd: true},
	}
	root.AddCommand(p.events(), p.state(), p.diff(), p.why(), p.logs(), p.cast(), p.timeline(), p.stats(), p.verify(),
		manpage.Command(p.out))
	manpage.Help(root)
	return root
}

// command is a command whose arguments, the first of them a JOURNAL, are in
// its usage line.
func (p *program) command(usage, short string, run func(src source, args []string) error) *cobra.Command {
	return &cobra.Command{
		Use:   usage,
		Short: short,
		Args:  exactly(usage),
		RunE: func(_ *cobra.Command, args []string) error {
			p.began = true
			src, err := open(args[0])
			if err != nil {
				return err
			}
			defer src.close()
			return run(src, args[1:])
		},
	}
}

// exactly wants the arguments that a usage line names.
func exactly(usage string) cobra.PositionalArgs {
	return func(_ *cobra.Command, args []string) error {
		if want := len(strings.Fields(usage)) - 1; len(args) != want {
			return fmt.Errorf("usage: replay %s (see --help)", usage)
		}
		return nil
	}
}
