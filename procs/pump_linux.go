package procs

import (
	"errors"
	"io"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// turnBytes is what one stream may move before the others have their turn.
	turnBytes = 256 << 10
	// A stream that was emptied rests before the next look, so that it then
	// finds many small pieces at once. The rest is fitted to the writer: it
	// should neither fill the pipe meanwhile nor leave it nearly empty.
	minRest = 100 * time.Microsecond
	maxRest = time.Millisecond
	// A pipe is grown to pipeBytes once a turn found half of its usual size in
	// it: the writer is faster than we. All others stay as they are, because
	// what unprivileged users may have together is limited.
	pipeBytes = 256 << 10
	// retryAfter is when a segment is begun again that there was no descriptor
	// for.
	retryAfter = 20 * time.Millisecond
)

// errLater is why nothing was moved: there is no descriptor for a segment. It
// passes, and until then the bytes are safe in the pipe.
var errLater = errors.New("out of descriptors")

// stream pumps one pipe or terminal into its ring.
type stream struct {
	source
	which Stream
	ring  *Ring
	copy  bool // read and write, where splice(2) refuses: from terminals, into some file systems
	pipe  int  // capacity; 0: not asked yet
	grown bool // or refused
	lossy bool // bytes were lost to a full disk, and the log says so
	rest  time.Duration
	wake  func() // ends a rest; made once
}

func (p *process) newStream(which Stream, fd int) *stream {
	s := &stream{which: which, ring: p.rings[which], copy: p.pty, rest: minRest}
	s.source = source{fd: fd, p: p, serve: s.pump, slot: -1}
	s.wake = func() { p.t.reactor.rouse(&s.source, unix.EPOLLIN) }
	return s
}

// pump moves what is there, up to a turn's worth, and leaves the stream armed,
// hot, resting or ended.
func (s *stream) pump(events uint32) {
	hup := events&unix.EPOLLHUP != 0
	if hup && events&unix.EPOLLIN == 0 && !s.copy {
		s.end() // without looking: that would begin a segment for nothing
		return
	}
	moved := 0
	for moved < turnBytes {
		n, emptied, err := s.move(turnBytes - moved)
		moved += n
		switch {
		case err == io.EOF:
			s.end()
			return
		case err == errLater:
			s.p.t.reactor.at(&s.source, time.Now().Add(retryAfter))
			return
		case emptied && (n == 0 || !hup):
			s.settle(moved)
			return
		}
	}
	s.grow(moved)
	s.p.t.reactor.again(&s.source)
}

// settle decides how the stream waits for its next byte, having moved so many
// in the turn that emptied it. A waiting reader never waits for a rest.
func (s *stream) settle(moved int) {
	r := s.p.t.reactor
	s.grow(moved)
	switch {
	case moved == 0: // quiet
		s.rest = minRest
		r.arm(&s.source, unix.EPOLLIN)
	case moved >= s.pipe/2: // rested too long
		s.rest = max(minRest, s.rest/2)
		r.again(&s.source)
	default:
		r.at(&s.source, time.Now().Add(s.rest))
		if !s.ring.rest(s.wake) {
			s.wake()
		}
		if moved < s.pipe/4 {
			s.rest = min(maxRest, s.rest*2)
		}
	}
}

// grow learns how much the pipe holds, and has it hold more for a fast writer.
func (s *stream) grow(moved int) {
	if s.pipe == 0 {
		s.pipe = 4096 // of a terminal
		if n, err := unix.FcntlInt(uintptr(s.fd), unix.F_GETPIPE_SZ, 0); err == nil {
			s.pipe = n
		}
	}
	if s.grown || moved < s.pipe/2 {
		return
	}
	s.grown = true
	if n, err := unix.FcntlInt(uintptr(s.fd), unix.F_SETPIPE_SZ, pipeBytes); err == nil {
		s.pipe = n
	}
}

// end is reached once, when everything was read.
func (s *stream) end() {
	s.p.t.reactor.drop(&s.source)
	unix.Close(s.fd)
	s.ring.finish()
	s.p.streams[s.which] = nil
	s.p.closeIfEnded()
}

// move appends up to limit bytes to the ring. emptied says that no more were
// there; the error is io.EOF, errLater or nil.
func (s *stream) move(limit int) (n int, emptied bool, err error) {
	if s.copy || s.ring.gone {
		return s.moveByCopy(limit)
	}
	fd, pos, room, err := s.ring.room()
	switch {
	case errors.Is(err, unix.EMFILE), errors.Is(err, unix.ENFILE):
		return 0, false, errLater
	case err != nil:
		s.complain(err)
		return s.lose(limit)
	}
	want := min(int(room), limit)
	n, err = ignoringEINTR(func() (int, error) {
		n, err := unix.Splice(s.fd, nil, fd, &pos, want, unix.SPLICE_F_NONBLOCK|unix.SPLICE_F_MOVE)
		return int(n), err
	})
	switch {
	case n > 0:
		s.ring.wrote(int64(n))
		return n, n < want, nil
	case err == nil:
		return 0, true, io.EOF
	case err == unix.EAGAIN:
		return 0, true, nil
	case err == unix.EINVAL: // the file system of the ring
		s.copy = true
		return 0, false, nil
	}
	s.complain(err)
	return s.lose(limit)
}

// moveByCopy is move through memory. A SIGKILL between its two calls loses
// what was read.
func (s *stream) moveByCopy(limit int) (n int, emptied bool, err error) {
	data, emptied, err := s.read(limit)
	if s.ring.gone {
		s.ring.skip(int64(len(data)))
		return len(data), emptied, err
	}
	for rest := data; len(rest) > 0; {
		n, err := s.store(rest)
		if err != nil {
			s.complain(err)
			s.ring.skip(int64(len(rest)))
			break
		}
		rest = rest[n:]
	}
	return len(data), emptied, err
}

// store appends the beginning of data to the ring.
func (s *stream) store(data []byte) (int, error) {
	fd, pos, room, err := s.ring.room()
	if err != nil {
		return 0, err
	}
	data = data[:min(int64(len(data)), room)]
	n, err := ignoringEINTR(func() (int, error) { return unix.Pwrite(fd, data, pos) })
	if n > 0 {
		s.ring.wrote(int64(n))
		return n, nil
	}
	return 0, err
}

// lose takes bytes that cannot be stored out of the pipe, so that the process
// goes on; readers are told of the gap.
func (s *stream) lose(limit int) (n int, emptied bool, err error) {
	data, emptied, err := s.read(limit)
	s.ring.skip(int64(len(data)))
	return len(data), emptied, err
}

// read returns bytes in the reactor's scratch space. EIO is how a terminal
// ends: nobody has it open any more, and nothing is left in it.
func (s *stream) read(limit int) (data []byte, emptied bool, err error) {
	buf := s.p.t.reactor.scratch()
	n, err := ignoringEINTR(func() (int, error) { return unix.Read(s.fd, buf[:min(limit, len(buf))]) })
	switch {
	case n > 0:
		return buf[:n], false, nil
	case errors.Is(err, unix.EAGAIN):
		return nil, true, nil
	}
	return nil, true, io.EOF
}

func (s *stream) complain(err error) {
	if !s.lossy {
		s.lossy = true
		s.p.t.opt.Log.Warn("output is lost: the ring cannot be written", "handle", s.p.handle, "stream", s.which.String(), "err", err)
	}
}
