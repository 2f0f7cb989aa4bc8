package main

import (
	"context"
	"errors"
	"os"
	"os/signal"

	"golang.org/x/sys/unix"
	"golang.org/x/term"

	"supervisor/client"
)

// terminalIn is the terminal that stdin is, nil if it is none.
func (a *app) terminalIn() *os.File {
	if f, ok := a.stdin.(*os.File); ok && term.IsTerminal(int(f.Fd())) {
		return f
	}
	return nil
}

// inRawMode calls f with the terminal on stdin, if there is one, in raw mode:
// every key is passed on and none is shown. The terminal is as it was when f
// ends, however it ends.
func (a *app) inRawMode(f func() error) error {
	terminal := a.terminalIn()
	if terminal == nil {
		return f()
	}
	before, err := term.MakeRaw(int(terminal.Fd()))
	if err != nil {
		return err
	}
	a.raw = true
	defer func() {
		a.raw = false
		_ = term.Restore(int(terminal.Fd()), before) // fails if it has gone away
	}()
	return f()
}

// sizes tells how large the terminal on stdin is, now and whenever that
// changes; never where there is none.
func (a *app) sizes(ctx context.Context) <-chan client.Size {
	terminal := a.terminalIn()
	if terminal == nil {
		return nil
	}
	changed := make(chan os.Signal, 1)
	signal.Notify(changed, unix.SIGWINCH)
	sizes := make(chan client.Size)
	go func() {
		defer signal.Stop(changed)
		for {
			if cols, rows, err := term.GetSize(int(terminal.Fd())); err == nil && cols > 0 && rows > 0 {
				select {
				case sizes <- client.Size{Cols: cols, Rows: rows}:
				case <-ctx.Done():
				}
			}
			select {
			case <-changed:
			case <-ctx.Done():
				return
			}
		}
	}()
	return sizes
}

// tidily is an action that a signal ends in order, for what must clean up
// first. Its exit code then says which.
func tidily(do action) action {
	return func(ctx context.Context, c *client.Client, args []string) error {
		ctx, cancel := context.WithCancelCause(ctx)
		defer cancel(nil)
		signals := make(chan os.Signal, 1)
		signal.Notify(signals, unix.SIGINT, unix.SIGTERM, unix.SIGHUP, unix.SIGQUIT)
		defer signal.Stop(signals)
		go func() {
			select {
			case s := <-signals:
				cancel(exitCode(128 + int(s.(unix.Signal))))
			case <-ctx.Done():
			}
		}()
		err := do(ctx, c, args)
		var signalled exitCode
		if err != nil && errors.As(context.Cause(ctx), &signalled) {
			return signalled
		}
		return err
	}
}
