package client

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"time"

	"supervisor/wire"
)

const (
	// waitAtOnce is what one proc_wait asks for: shorter than the protocol
	// allows, so that an agent that is frozen is noticed.
	waitAtOnce = time.Minute

	// replySlack is how much later than it was asked for a reply may come
	// before its agent is taken for gone.
	replySlack = 20 * time.Second

	firstPause = 10 * time.Millisecond
	lastPause  = time.Second
)

// Wait waits for the end of a process, however long it takes. The result's
// TimedOut is the process's own deadline.
func (c *Client) Wait(ctx context.Context, handle string) (Exit, error) {
	pause := backoff{}
	for {
		exit, known, err := c.waitOnce(ctx, handle)
		if err == nil && !known {
			exit, err = c.exitByList(ctx, handle)
		}
		if err != nil || !exit.Running {
			return exit, err
		}
		if !known {
			if err := pause.sleep(ctx); err != nil {
				return exit, err
			}
		}
	}
}

// waitOnce returns a running Exit when the time is over. Agents of before
// running was always sent leave it open whether the process runs: then known
// is false.
func (c *Client) waitOnce(ctx context.Context, handle string) (exit Exit, known bool, err error) {
	wait := waitAtOnce
	if end, ok := ctx.Deadline(); ok {
		wait = max(time.Millisecond, min(wait, time.Until(end)))
	}
	request := wire.WaitRequest{Handle: handle, TimeoutMS: wait.Milliseconds()}
	err = c.patiently(ctx, wait, func(ctx context.Context) error {
		var reply WaitReply
		err := c.call(ctx, "proc_wait", &request, &reply, func(line []byte) { known = says(line, "running") })
		exit = reply.Exit
		return err
	})
	return exit, known, err
}

// exitByList finds out whether a process has ended from what every agent says:
// when it did.
func (c *Client) exitByList(ctx context.Context, handle string) (Exit, error) {
	var procs []Proc
	err := c.patiently(ctx, 0, func(ctx context.Context) (err error) {
		procs, err = c.List(ctx)
		return err
	})
	if err != nil {
		return Exit{}, err
	}
	i := slices.IndexFunc(procs, func(p Proc) bool { return p.Handle == handle })
	if i < 0 {
		return Exit{}, ErrUnknownHandle
	}
	p := procs[i]
	return Exit{Running: p.ExitedAt == 0, ExitCode: p.ExitCode, Signal: p.Signal, TimedOut: p.TimedOut, Reason: p.Reason}, nil
}

// patiently calls f, which may be done any number of times, until it succeeds
// or fails for another reason than an agent that is away. An answer is due
// after wait. It gives up when ctx ends or the client's patience does.
func (c *Client) patiently(ctx context.Context, wait time.Duration, f func(ctx context.Context) error) error {
	return c.again(ctx, isAway, func() error {
		attempt, cancel := context.WithTimeout(ctx, wait+c.slack)
		defer cancel()
		err := f(attempt)
		if errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil {
			c.reset(err)
		}
		return err
	})
}

// isAway reports whether an error says that the agent is away.
func isAway(err error) bool {
	return errors.Is(err, context.DeadlineExceeded) || errors.Is(err, ErrDisconnected) || errors.Is(err, ErrUnavailable)
}

// again calls f until it succeeds or fails for another reason than those that
// passing holds of, or until ctx or the client's patience ends.
func (c *Client) again(ctx context.Context, passing func(error) bool, f func() error) error {
	var since time.Time
	var pause backoff
	for {
		err := f()
		if err == nil || ctx.Err() != nil || !passing(err) {
			return err
		}
		if since.IsZero() {
			since = time.Now()
		}
		if time.Since(since) >= c.patience {
			return err
		}
		if err := pause.sleep(ctx); err != nil {
			return err
		}
	}
}

// backoff is a pause that doubles. Its zero value is the first one.
type backoff struct{ next time.Duration }

// sleep pauses, between half of the time and all of it.
func (b *backoff) sleep(ctx context.Context) error {
	b.next = min(max(2*b.next, firstPause), lastPause)
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(b.next/2 + rand.N(b.next/2)):
		return nil
	}
}
