package client

import (
	"context"
	"errors"
	"io"

	"supervisor/wire"
)

// filePiece is how much of a file one request carries.
const filePiece = 1 << 20

// Exec runs a command to its end and returns what it wrote, 8 MiB of each
// stream at most. Its exit code is -1 for a death by signal or timeout. The
// command ends with the call.
func (c *Client) Exec(ctx context.Context, r ExecRequest) (ExecReply, error) {
	var reply ExecReply
	err := c.call(ctx, "exec", &r, &reply, nil)
	return reply, err
}

// StatFile describes a file of the guest.
func (c *Client) StatFile(ctx context.Context, path string) (StatFileReply, error) {
	var reply StatFileReply
	err := c.call(ctx, "stat_file", &wire.PathRequest{Path: path}, &reply, nil)
	return reply, err
}

// WriteFile writes a file of the guest, in place and piece by piece: after an
// error some of it may be written. Mode is its permission bits; 0 is 0644 for a
// new file and no change of an old one.
func (c *Client) WriteFile(ctx context.Context, path string, mode int, from io.Reader) error {
	buf := make([]byte, filePiece)
	for begun := false; ; begun = true {
		n, err := io.ReadFull(from, buf)
		ended := err == io.EOF || errors.Is(err, io.ErrUnexpectedEOF)
		if err != nil && !ended {
			return err
		}
		if n > 0 || !begun {
			r := wire.WriteFileRequest{Path: path, Data: buf[:n], Mode: mode, Append: begun}
			if err := c.call(ctx, "write_file", &r, nil, nil); err != nil {
				return err
			}
		}
		if ended {
			return nil
		}
	}
}

// ReadFile copies a file of the guest to a writer.
func (c *Client) ReadFile(ctx context.Context, path string, to io.Writer) error {
	r := wire.ReadFileRequest{Path: path, Limit: filePiece}
	for {
		var reply wire.ReadFileReply
		err := c.patiently(ctx, 0, func(ctx context.Context) error {
			reply.Data.Bytes, reply.EOF = reply.Data.Bytes[:0], false
			return c.call(ctx, "read_file", &r, &reply, nil)
		})
		if err != nil {
			return err
		}
		if _, err := to.Write(reply.Data.Bytes); err != nil {
			return err
		}
		r.Offset += int64(len(reply.Data.Bytes))
		if reply.EOF || len(reply.Data.Bytes) == 0 {
			return nil
		}
	}
}
