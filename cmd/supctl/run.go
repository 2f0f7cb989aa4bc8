package main

import (
	"cmp"
	"context"
	"errors"
	"io"
	"iter"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"supervisor/client"
)

// linger is how long run goes on after the exit while a descendant holds the
// streams open.
const linger = 2 * time.Second

// forwarded are the signals that are meant for the process when supctl gets
// them.
var forwarded = []os.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT, syscall.SIGUSR1, syscall.SIGUSR2}

func (a *app) runCommand() *cobra.Command {
	var flags specFlags
	var terminal bool
	cmd := &cobra.Command{
		Use:   "run [flags] -- CMD [ARG...]",
		Short: "Start a process and stay with it until its end",
		Long: `Run starts a process, writes its output as it comes, passes stdin and signals to
it and exits with its code, or 128+N when signal N ended it.

When a descendant still holds the output 2 s after the process ended, run ends.`,
		Example: `  supctl run -- make test
  supctl run -t -- bash
  tar c src | supctl run --cwd /tmp -- tar x`,
		Args: commandLine,
		RunE: a.connected(func(ctx context.Context, c *client.Client, argv []string) error {
			signals := make(chan os.Signal, 16)
			notify(signals)
			defer signal.Stop(signals)
			request := flags.spec(argv)
			if terminal {
				a.askForTerminal(&request)
			}
			reply, err := c.Start(ctx, request)
			if err != nil {
				return err
			}
			f := &foreground{a, c, reply.Handle}
			ctx, cancel := context.WithCancel(ctx)
			defer cancel()
			go f.forward(ctx, signals)
			if request.PTY {
				return f.attach(ctx)
			}
			return f.run(ctx)
		}),
	}
	flags.add(cmd.Flags())
	cmd.Flags().BoolVarP(&terminal, "terminal", "t", false, "give the process a terminal, if stdin is one; ctrl-p ctrl-q leaves it")
	return cmd
}

// notify asks for the signals to forward. What our parent has ignored, as
// nohup does, stays ignored. A broken pipe becomes an error of the write.
func notify(signals chan<- os.Signal) {
	for _, s := range forwarded {
		if !signal.Ignored(s) {
			signal.Notify(signals, s)
		}
	}
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
}

// foreground is a process that supctl stays with.
type foreground struct {
	*app
	client *client.Client
	handle string
}

func (f *foreground) run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go f.feed(ctx) // a read of a terminal cannot be ended: it ends with us
	exit, err := f.follow(ctx, func(ctx context.Context) iter.Seq2[client.Chunk, error] {
		return f.client.Follow(ctx, f.handle, client.Position{})
	})
	if err != nil {
		return f.brokenPipe(ctx, err)
	}
	return exitStatus(exit)
}

// forward passes signals on until ctx ends.
func (f *foreground) forward(ctx context.Context, signals <-chan os.Signal) {
	for {
		select {
		case <-ctx.Done():
			return
		case s := <-signals:
			err := f.client.Signal(ctx, f.handle, int(s.(syscall.Signal)), true)
			f.complainUnlessOver(ctx, err)
		}
	}
}

// feed copies stdin to the process and closes it at its end.
func (f *foreground) feed(ctx context.Context) {
	pipe := f.client.StdinPipe(ctx, f.handle)
	_, err := io.Copy(pipe, f.stdin)
	f.complainUnlessOver(ctx, err)
	f.complainUnlessOver(ctx, pipe.Close())
}

// complainUnlessOver reports an error, but not that the process has ended or
// reads no more: that is its own affair.
func (f *foreground) complainUnlessOver(ctx context.Context, err error) {
	if err == nil || ctx.Err() != nil || errors.Is(err, client.ErrNotRunning) || errors.Is(err, client.ErrStdinClosed) {
		return
	}
	f.complain(err)
}

// follow writes the output, which is the process's from its start, and returns
// how the process ended.
func (f *foreground) follow(ctx context.Context, output func(context.Context) iter.Seq2[client.Chunk, error]) (exit client.Exit, err error) {
	ctx, cancel := context.WithCancel(ctx)
	following, stop := context.WithCancel(ctx)
	var waiting error
	exited := make(chan struct{})
	go func() {
		defer close(exited)
		exit, waiting = f.client.Wait(ctx, f.handle)
		time.AfterFunc(linger, stop)
	}()
	at, err := f.copyOut(output(following), client.Position{})
	if following.Err() != nil && ctx.Err() == nil {
		_, err = f.copyOut(f.client.Held(ctx, f.handle, at), at)
	}
	if err != nil {
		cancel()
	}
	<-exited
	cancel()
	return exit, cmp.Or(err, waiting)
}

// brokenPipe ends the process as the reader of our output has ended: in a
// local pipeline it would get the same signal.
func (f *foreground) brokenPipe(ctx context.Context, err error) error {
	var broken outputError
	if !errors.As(err, &broken) || !errors.Is(broken, syscall.EPIPE) {
		return err
	}
	f.complainUnlessOver(ctx, f.client.Signal(ctx, f.handle, int(syscall.SIGPIPE), true))
	return exitCode(128 + int(syscall.SIGPIPE))
}
