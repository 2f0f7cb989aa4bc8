package engine

import (
	"cmp"
	"context"
	"time"

	"supervisor/procs"
	"supervisor/wire"
)

// stream is output by absolute offset: a ring, or what the journal kept.
type stream interface {
	End() int64
	First() int64
	ReadAt(dst []byte, off int64) (n int, first int64, err error)
	Changed() <-chan struct{}
	Ended() bool
}

// stream finds a process's output. A ring that does not reach the end that the
// journal knows is not the one of then (the runtime directory did not outlive
// a reboot): what is left is the journal's tail.
func (e *Engine) stream(r *row, s procs.Stream) stream {
	kept := tail{r.output.StdoutTail, r.output.StdoutLen}
	if s == procs.Stderr {
		kept = tail{r.output.StderrTail, r.output.StderrLen}
	}
	if ring := e.table.Output(r.proc.Handle, s); ring != nil && ring.End() >= kept.end {
		return ring
	}
	return kept
}

// tail is the end of a stream that is over.
type tail struct {
	bytes []byte
	end   int64
}

// End is the length of the whole stream.
func (t tail) End() int64 { return t.end }

// First is the offset of the first byte that is left.
func (t tail) First() int64 { return t.end - int64(len(t.bytes)) }

// Changed never happens.
func (t tail) Changed() <-chan struct{} { return nil }

// Ended is true.
func (t tail) Ended() bool { return true }

// ReadAt reads as procs.Ring.ReadAt does.
func (t tail) ReadAt(dst []byte, off int64) (n int, first int64, err error) {
	from := max(off, t.First())
	if from < t.end {
		n = copy(dst, t.bytes[from-t.First():])
	}
	return n, t.First(), nil
}

// Logs implements wire.Backend.
func (e *Engine) Logs(ctx context.Context, r wire.LogsRequest, reply *wire.LogsReply) error {
	var timeout <-chan time.Time
	if r.WaitMS > 0 {
		timer := time.NewTimer(time.Duration(min(r.WaitMS, wire.MaxLogWaitMS)) * time.Millisecond)
		defer timer.Stop()
		timeout = timer.C
	}
	for {
		// The row is read before the streams: what it says is over, is.
		row := e.view.get(r.Handle)
		if row == nil {
			return unknownHandle()
		}
		stdout, stderr := e.stream(row, procs.Stdout), e.stream(row, procs.Stderr)
		moreOut, moreErr := more(stdout), more(stderr)
		news := stdout.End() > r.Offset || stderr.End() > r.StderrOffset || row.proc.Drained
		if news || timeout == nil {
			return readLogs(r, reply, row, stdout, stderr)
		}
		select {
		case <-moreOut:
		case <-moreErr:
		case <-row.replaced:
		case <-timeout:
			timeout = nil
		case <-ctx.Done():
			return ctx.Err()
		case <-e.gate.closed():
			if err := e.gate.why(); err != nil {
				return err
			}
		}
	}
}

// more is closed when a stream goes on; never for one that is over, whose end
// the row tells when it is durable.
func more(s stream) <-chan struct{} {
	if s.Ended() {
		return nil
	}
	return s.Changed()
}

// readLogs fills the reply from both streams.
func readLogs(r wire.LogsRequest, reply *wire.LogsReply, row *row, stdout, stderr stream) error {
	limit := min(cmp.Or(r.Limit, wire.DefaultLogLimit), wire.MaxLogLimit)
	out := part{data: reply.Stdout}
	if err := out.read(stdout, r.Offset, limit); err != nil {
		return err
	}
	errs := part{data: reply.Stderr}
	if err := errs.read(stderr, r.StderrOffset, limit); err != nil {
		return err
	}
	*reply = wire.LogsReply{
		Stdout: out.data, StdoutOffset: out.next, StdoutDropped: out.dropped, StdoutFirst: out.first,
		Stderr: errs.data, StderrOffset: errs.next, StderrDropped: errs.dropped, StderrFirst: errs.first,
		Exit: exitOf(row), Drained: row.proc.Drained,
	}
	return nil
}

// part is what is read of one stream.
type part struct {
	data                 []byte
	next, dropped, first int64
}

// read takes up to limit bytes from offset on. Its memory is bounded by what
// there is, not by what was asked for.
func (p *part) read(s stream, offset, limit int64) error {
	end := s.End()
	size := max(min(limit, end-offset, end-s.First()), 0)
	if int64(cap(p.data)) < size {
		p.data = make([]byte, size)
	}
	n, first, err := s.ReadAt(p.data[:size], offset)
	if err != nil {
		return wire.Errorf(wire.CodeInternal, "reading output: %s", err)
	}
	p.data, p.first = p.data[:n], first
	if offset >= end {
		p.next = end
		return nil
	}
	p.dropped = max(first-offset, 0)
	p.next = offset + p.dropped + int64(n)
	return nil
}
