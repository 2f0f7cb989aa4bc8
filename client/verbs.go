package client

import (
	"bytes"
	"context"
	"slices"

	"supervisor/wire"
)

// Start starts a process, which then belongs to the agent. After
// ErrDisconnected it may run or not; a request with Idem can be repeated. An
// agent that would not know Idem, and start again, is ErrTooOld.
func (c *Client) Start(ctx context.Context, r StartRequest) (reply StartReply, err error) {
	if r.Idem != "" {
		err = c.need(ctx, "idempotency")
	}
	if err == nil {
		err = c.call(ctx, "proc_start", &r, &reply, nil)
	}
	return reply, err
}

// List returns the processes that run and those that ended and are not
// forgotten yet, ordered by start.
func (c *Client) List(ctx context.Context) ([]Proc, error) {
	var reply wire.ListReply
	err := c.call(ctx, "proc_list", nil, &reply, nil)
	return reply.Procs, err
}

// Logs reads once. See Follow for all of it.
func (c *Client) Logs(ctx context.Context, r LogsRequest) (LogsReply, error) {
	var reply LogsReply
	err := c.call(ctx, "proc_logs", &r, &reply, nil)
	return reply, err
}

// Signal sends a signal to the process group, or to the leader alone.
func (c *Client) Signal(ctx context.Context, handle string, signal int, group bool) error {
	return c.call(ctx, "proc_signal", &wire.SignalRequest{Handle: handle, Signal: signal, Group: group}, nil, nil)
}

// Kill sends SIGKILL to the process group. It does not wait for the end.
func (c *Client) Kill(ctx context.Context, handle string) error {
	return c.call(ctx, "proc_kill", &wire.HandleRequest{Handle: handle}, nil, nil)
}

// Resize sets the size of a process's terminal.
func (c *Client) Resize(ctx context.Context, handle string, cols, rows int) error {
	return c.call(ctx, "proc_resize", &wire.ResizeRequest{Handle: handle, Cols: cols, Rows: rows}, nil, nil)
}

// JournalRead reads records once. The records are the caller's.
func (c *Client) JournalRead(ctx context.Context, r JournalReadRequest) (JournalReadReply, error) {
	var reply JournalReadReply
	err := c.call(ctx, "journal_read", &r, &reply, func([]byte) {
		for i, record := range reply.Records {
			reply.Records[i] = slices.Clone(record)
		}
	})
	return reply, err
}

// JournalInfo returns the bounds of the journal and the hash of its head.
func (c *Client) JournalInfo(ctx context.Context) (JournalInfoReply, error) {
	var reply JournalInfoReply
	err := c.call(ctx, "journal_info", nil, &reply, nil)
	return reply, err
}

// JournalSnapshot returns the newest snapshot of the record atSeq, 0 being the
// head, or of one before it; its Seq is 0 if there is none. An agent of before
// this was asked for returns the newest of all.
func (c *Client) JournalSnapshot(ctx context.Context, atSeq uint64) (JournalSnapshotReply, error) {
	var whole []byte
	var seq uint64
	for {
		var part JournalSnapshotReply
		r := wire.JournalSnapshotRequest{AtSeq: atSeq, Offset: int64(len(whole))}
		keep := func([]byte) {
			if part.Seq != seq { // a newer one has taken its place, or this is the first part
				seq, whole = part.Seq, nil
			}
			if r.Offset == int64(len(whole)) {
				whole = append(whole, part.Data...)
			}
		}
		if err := c.call(ctx, "journal_snapshot", &r, &part, keep); err != nil {
			return part, err
		}
		if int64(len(whole)) == part.Size {
			part.Data = whole
			return part, nil
		}
	}
}

// says reports whether a reply's line has a field, for fields of which absent
// and false are different things. It is exact: bytes are base64 on the wire,
// and in text a quote is escaped.
func says(line []byte, field string) bool {
	return bytes.Contains(line, []byte(`"`+field+`":`))
}
