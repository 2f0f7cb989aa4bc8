package client

import (
	"context"
	"errors"
	"io"

	"supervisor/wire"
)

// stdinPiece is how much one proc_stdin carries.
const stdinPiece = 64 << 10

// Stdin writes to a process's stdin once. It returns how many bytes were
// accepted, which is less than all of them with ErrWriteDeadline, when the
// process did not read for 5 s.
func (c *Client) Stdin(ctx context.Context, handle string, data []byte) (int, error) {
	return c.stdin(ctx, wire.StdinRequest{Handle: handle, Data: data})
}

// CloseStdin ends a process's stdin. On a terminal it types the end-of-file
// character.
func (c *Client) CloseStdin(ctx context.Context, handle string) error {
	_, err := c.stdin(ctx, wire.StdinRequest{Handle: handle, CloseStdin: true})
	return err
}

func (c *Client) stdin(ctx context.Context, r wire.StdinRequest) (int, error) {
	var reply wire.StdinReply
	err := c.call(ctx, "proc_stdin", &r, &reply, nil)
	return reply.Written, err
}

// StdinPipe returns a writer to a process's stdin that waits, however long,
// for a process that does not read, and for an agent that is away as long as
// the client's patience. After ErrDisconnected the last piece may have been
// written or not. Close closes the stdin.
func (c *Client) StdinPipe(ctx context.Context, handle string) io.WriteCloser {
	return &stdinPipe{ctx, c, handle}
}

type stdinPipe struct {
	ctx    context.Context
	client *Client
	handle string
}

func (p *stdinPipe) Write(data []byte) (written int, err error) {
	for written < len(data) {
		piece := data[written:min(len(data), written+stdinPiece)]
		err := p.client.again(p.ctx, wasNotDone, func() error {
			n, err := p.client.Stdin(p.ctx, p.handle, piece)
			piece, written = piece[n:], written+n
			return err
		})
		if err != nil && !errors.Is(err, ErrWriteDeadline) {
			return written, err
		}
	}
	return written, nil
}

func (p *stdinPipe) Close() error {
	return p.client.again(p.ctx, wasNotDone, func() error { return p.client.CloseStdin(p.ctx, p.handle) })
}

// wasNotDone reports whether an error says that the agent is away and has not
// done what was asked.
func wasNotDone(err error) bool { return errors.Is(err, errUnsent) || errors.Is(err, ErrUnavailable) }
