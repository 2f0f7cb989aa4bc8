package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"slices"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"supervisor/client"
)

func (a *app) attachCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "attach HANDLE",
		Short: "Connect this terminal with a process's",
		Long: `Attach connects the terminal that it runs on with that of a process: first it shows
what the agent still holds of the output, then all that comes. Keys go to the
process, and its terminal becomes as large as this one.

Ctrl-p ctrl-q leaves, and the process runs on. When the process ends, attach
exits with its code.`,
		Example: `  h=$(supctl start --pty -- bash)
  supctl attach $h`,
		Args:              operands("HANDLE"),
		ValidArgsFunction: a.completeHandles(hasTerminal),
		RunE: a.connected(tidily(func(ctx context.Context, c *client.Client, args []string) error {
			if err := needsTerminal(ctx, c, args[0]); err != nil {
				return err
			}
			f := &foreground{a, c, args[0]}
			return f.attach(ctx)
		})),
	}
}

// needsTerminal refuses a process that has none.
func needsTerminal(ctx context.Context, c *client.Client, handle string) error {
	procs, err := c.List(ctx)
	if err != nil {
		return err
	}
	i := slices.IndexFunc(procs, func(p client.Proc) bool { return p.Handle == handle })
	switch {
	case i < 0:
		return client.ErrUnknownHandle
	case !procs[i].PTY:
		return fmt.Errorf("%s has no terminal: use logs -f and stdin", handle)
	}
	return nil
}

// askForTerminal makes a start ask for a terminal like the one on stdin, if
// that is one.
func (a *app) askForTerminal(r *client.StartRequest) {
	if terminal := a.terminalIn(); terminal != nil {
		r.PTY = true
		r.Cols, r.Rows, _ = term.GetSize(int(terminal.Fd())) // unknown is the default
	}
}

// attach connects the terminal with the process's until the process ends or
// the person leaves.
func (f *foreground) attach(ctx context.Context) error {
	var exit client.Exit
	err := f.inRawMode(func() (err error) {
		exit, err = f.follow(ctx, func(ctx context.Context) iter.Seq2[client.Chunk, error] {
			keys := &leavable{keys: f.stdin}
			return f.client.Attach(ctx, f.handle, client.Terminal{Input: keys, Sizes: f.sizes(ctx)})
		})
		return err
	})
	if errors.Is(err, errLeft) {
		f.remark("\nleft " + f.handle + ", which runs on")
		return nil
	}
	if err != nil {
		return err
	}
	return exitStatus(exit)
}

// errLeft is the wish of a person to leave a terminal.
var errLeft = errors.New("left")

// The keys that say so, one after the other.
const (
	ctrlP = 'p' & 0x1f
	ctrlQ = 'q' & 0x1f
)

// leavable passes keys on until ctrl-p ctrl-q, which is errLeft. A ctrl-p is
// passed on with the key after it.
type leavable struct {
	keys io.Reader
	held bool // a ctrl-p
	err  error
}

func (l *leavable) Read(p []byte) (int, error) {
	if len(p) < 2 {
		return 0, io.ErrShortBuffer
	}
	for l.err == nil {
		n, err := l.keys.Read(p[1:]) // with room before it for a ctrl-p
		l.err = err
		if n = l.filter(p, p[1:1+n]); n > 0 {
			return n, nil
		}
	}
	return 0, l.err
}

// filter writes the keys that are to be passed on to p, over the ones that
// were read: there is never more of the former.
func (l *leavable) filter(p, read []byte) (n int) {
	for _, key := range read {
		if l.held && key == ctrlQ {
			l.err = errLeft
			return n
		}
		if l.held {
			p[n] = ctrlP
			n++
		}
		if l.held = key == ctrlP; !l.held {
			p[n] = key
			n++
		}
	}
	return n
}
