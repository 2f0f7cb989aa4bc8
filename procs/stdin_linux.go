package procs

import (
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// stdin is our end of a process's stdin, and the writes that wait for it in
// the order in which they came. It is guarded by process.mu.
type stdin struct {
	source
	added   bool // known to the reactor
	closed  bool
	midLine bool // of a terminal: the last byte was no line end
	queue   []write
	expires time.Time // of the first write, once it had to wait; zero before
}

// write is one call of Table.Stdin.
type write struct {
	data       []byte // what is left of it
	written    int
	closeAfter bool
	eof        bool // data is the terminal's end-of-file now, which does not count
	done       func(written int, err error)
}

func (p *process) newStdin(fd int) *stdin {
	in := &stdin{}
	in.source = source{fd: fd, p: p, serve: in.serve, slot: -1}
	return in
}

// Stdin writes data to the stdin of a process, after all earlier writes, and
// then calls done, once, possibly before it returns. It never waits and owns
// data until then.
//
// With closeAfter stdin is closed behind the data; on a terminal the
// end-of-file character is sent and nothing is closed. The errors are
// ErrNotRunning, ErrStdinClosed and, when the process did not take all of
// data in time, os.ErrDeadlineExceeded; written counts the bytes accepted. done
// must not block and must not call the Table.
func (t *Table) Stdin(handle string, data []byte, closeAfter bool, done func(written int, err error)) {
	p := t.lookup(handle)
	if p == nil {
		done(0, ErrNotRunning)
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case !p.running:
		done(0, ErrNotRunning)
	case p.stdin == nil:
		done(0, ErrStdinClosed)
	default:
		p.stdin.push(write{data: data, closeAfter: closeAfter, done: done})
	}
}

func (in *stdin) push(w write) {
	in.queue = append(in.queue, w)
	if len(in.queue) == 1 {
		in.flush()
	}
}

// serve is called when stdin takes bytes again, broke, or the deadline of the
// first write is over.
func (in *stdin) serve(uint32) {
	if len(in.queue) == 0 {
		return
	}
	if !in.expires.IsZero() && !time.Now().Before(in.expires) {
		in.finish(os.ErrDeadlineExceeded)
	}
	in.flush()
}

// flush writes as much of the queue as stdin takes.
func (in *stdin) flush() {
	for len(in.queue) > 0 {
		w := &in.queue[0]
		if in.closed {
			in.finish(ErrStdinClosed)
			continue
		}
		if err := in.write(w); err == unix.EAGAIN && in.p.t.held.Load() {
			in.finish(ErrParked)
			continue
		} else if err == unix.EAGAIN {
			in.wait()
			return
		} else if err != nil { // nobody can read it any more
			in.p.reap() // answers all that wait, if the process has ended
			in.close()
			continue
		}
		if w.closeAfter {
			in.closeBehind(w)
			continue
		}
		in.finish(nil)
	}
}

// write writes the rest of w. EAGAIN means that stdin is full.
func (in *stdin) write(w *write) error {
	for len(w.data) > 0 {
		n, err := ignoringEINTR(func() (int, error) { return unix.Write(in.fd, w.data) })
		if err != nil {
			return err
		}
		if n == 0 {
			return unix.EAGAIN
		}
		in.midLine = !w.eof && w.data[n-1] != '\n' && w.data[n-1] != '\r'
		w.data = w.data[n:]
		if !w.eof {
			w.written += n
		}
	}
	return nil
}

// closeBehind does what closeAfter asks for, w being written.
func (in *stdin) closeBehind(w *write) {
	if !in.p.pty {
		in.close()
		in.finish(nil)
		return
	}
	w.closeAfter = false
	w.data, w.eof = endOfFile(in.fd, in.midLine), true
}

// wait lets the reactor go on when stdin takes bytes again. The deadline of
// the first write runs from the first time that it has to wait.
func (in *stdin) wait() {
	r := in.p.t.reactor
	if in.expires.IsZero() {
		in.expires = time.Now().Add(in.p.t.opt.StdinDeadline)
		r.at(&in.source, in.expires)
	}
	if in.added {
		r.arm(&in.source, unix.EPOLLOUT)
		return
	}
	in.added = r.add(&in.source, unix.EPOLLOUT) == nil
}

// finish answers the first write.
func (in *stdin) finish(err error) {
	w := in.queue[0]
	in.queue[0] = write{}
	in.queue = in.queue[1:]
	if len(in.queue) == 0 {
		in.queue = nil
	}
	if !in.expires.IsZero() {
		in.expires = time.Time{}
		in.p.t.reactor.stopTimer(&in.source)
	}
	if w.done != nil {
		w.done(w.written, err)
	}
}

// close gives the reader its end of file. A terminal's is only closed when
// the process has ended.
func (in *stdin) close() {
	if !in.closed {
		in.closed = true
		in.p.t.reactor.drop(&in.source)
		unix.Close(in.fd)
	}
}

// end answers all writes that are left, because the process has ended.
func (in *stdin) end() {
	in.close()
	for len(in.queue) > 0 {
		in.finish(ErrNotRunning)
	}
}
