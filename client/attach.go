package client

import (
	"bytes"
	"context"
	"errors"
	"io"
	"iter"
	"sync"
	"time"
)

// Terminal is a person's end of a process's terminal.
type Terminal struct {
	// Input is what is typed. An error of it ends the attachment and is its
	// result; at its end, io.EOF, output goes on.
	Input io.Reader
	// Sizes tells how large the person's terminal is, now and whenever that
	// changes. It may be nil.
	Sizes <-chan Size
}

// Size is that of a terminal.
type Size struct{ Cols, Rows int }

// lastKeys is how long the last keys may take when a person leaves.
const lastKeys = time.Second

// typedAhead is how much may be typed while the process takes none of it.
const typedAhead = 1 << 20

// Attach connects a person with a process's terminal. It yields what the ring
// holds and then what comes, as Follow does, until the process's output ends,
// t.Input fails, or ctx ends; the process lives on in any case. Keys may be
// lost with a connection that breaks, but none is typed twice.
//
// A read of t.Input that is under way at the end goes on: it cannot be ended.
func (c *Client) Attach(ctx context.Context, handle string, t Terminal) iter.Seq2[Chunk, error] {
	return func(yield func(Chunk, error) bool) {
		ctx, cancel := context.WithCancelCause(ctx)
		defer cancel(nil)
		keys, typed := newKeyboard(), make(chan struct{})
		go func() {
			defer close(typed)
			cancelWith(cancel, c.typeKeys(ctx, handle, keys))
		}()
		go func() {
			err := keys.read(t.Input)
			select { // what was typed before goes first
			case <-typed:
			case <-time.After(lastKeys):
			}
			cancelWith(cancel, err)
		}()
		go func() { cancelWith(cancel, c.followSizes(ctx, handle, t.Sizes)) }()
		came := [2]bool{} // something of a stream
		for k, err := range c.Follow(ctx, handle, Position{}) {
			if err != nil && ctx.Err() != nil {
				err = context.Cause(ctx)
			}
			if err == nil && !came[k.Stream] { // what left before is no loss of ours
				k.Dropped, came[k.Stream] = 0, true
			}
			if !yield(k, err) {
				return
			}
		}
	}
}

// cancelWith ends an attachment for a reason, if there is one.
func cancelWith(cancel context.CancelCauseFunc, err error) {
	if err != nil {
		cancel(err)
	}
}

// over reports whether err says that the process reads no more: what it still
// writes is worth waiting for.
func over(err error) bool {
	return errors.Is(err, ErrNotRunning) || errors.Is(err, ErrStdinClosed) || errors.Is(err, ErrUnknownHandle)
}

// typeKeys passes keys on to the process.
func (c *Client) typeKeys(ctx context.Context, handle string, keys *keyboard) error {
	pipe := c.StdinPipe(ctx, handle)
	for {
		typed := keys.next(ctx)
		if len(typed) == 0 {
			return nil
		}
		_, err := pipe.Write(typed)
		switch {
		case err == nil, errors.Is(err, ErrDisconnected): // those keys may be lost
		case over(err) || ctx.Err() != nil:
			return nil
		default:
			return err
		}
	}
}

// followSizes keeps the process's terminal as large as the person's.
func (c *Client) followSizes(ctx context.Context, handle string, sizes <-chan Size) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case s := <-sizes:
			err := c.patiently(ctx, 0, func(ctx context.Context) error { return c.Resize(ctx, handle, s.Cols, s.Rows) })
			if over(err) || ctx.Err() != nil {
				return nil
			}
			if err != nil {
				return err
			}
		}
	}
}

// keyboard holds what was typed and not passed on yet, so that a process that
// does not read keeps nobody from detaching.
type keyboard struct {
	mu     sync.Mutex
	typed  bytes.Buffer
	ended  bool
	change chan struct{} // filled when typed or ended changed
}

func newKeyboard() *keyboard { return &keyboard{change: make(chan struct{}, 1)} }

// read gathers what is typed until the end of the input. What is typed far
// ahead of the process is lost, as on any terminal.
func (k *keyboard) read(input io.Reader) error {
	buf := make([]byte, 32<<10)
	for {
		n, err := input.Read(buf)
		k.mu.Lock()
		if k.typed.Len()+n <= typedAhead {
			k.typed.Write(buf[:n])
		}
		k.ended = err != nil
		k.mu.Unlock()
		select {
		case k.change <- struct{}{}:
		default:
		}
		switch err {
		case nil:
		case io.EOF:
			return nil
		default:
			return err
		}
	}
}

// next waits for keys; none is the end of them, or of ctx.
func (k *keyboard) next(ctx context.Context) []byte {
	for {
		k.mu.Lock()
		keys, ended := bytes.Clone(k.typed.Bytes()), k.ended
		k.typed.Reset()
		k.mu.Unlock()
		if len(keys) > 0 || ended {
			return keys
		}
		select {
		case <-ctx.Done():
			return nil
		case <-k.change:
		}
	}
}
