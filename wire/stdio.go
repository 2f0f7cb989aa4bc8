package wire

import (
	"context"
	"errors"
	"io"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// Stdio is a connection over a pair of streams, which may block and belong to
// others: their descriptors are left as they are.
type Stdio struct {
	*Conn
	Ended <-chan struct{} // closed when Conn was closed, as it is when in has ended, and what was said on it is out

	in       int
	out      io.Writer
	far      *Conn         // the other end of Conn
	wake     *os.File      // an eventfd(2), which ends the reader
	read     chan struct{} // closed when nothing reads in any more
	written  chan struct{} // closed when nothing writes to out any more
	farewell chan []byte   // what is written last
}

// NewStdio makes a connection of the descriptor in and of out.
func NewStdio(in int, out io.Writer) (*Stdio, error) {
	nobody := make(chan struct{})
	close(nobody)
	return newStdio(in, out, nobody)
}

// newStdio writes nothing until another writer to out is gone.
func newStdio(in int, out io.Writer, gone <-chan struct{}) (*Stdio, error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, os.NewSyscallError("socketpair", err)
	}
	near, errNear := newConn(fds[0], Unix, "stdio")
	far, errFar := newConn(fds[1], Unix, "stdio")
	wake, errWake := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err := errors.Join(errNear, errFar, errWake); err != nil {
		return nil, err
	}
	ended := make(chan struct{})
	s := &Stdio{
		Conn: near, Ended: ended, in: in, out: out, far: far, wake: os.NewFile(uintptr(wake), "eventfd"),
		read: make(chan struct{}), written: make(chan struct{}), farewell: make(chan []byte, 1),
	}
	go s.passIn(wake)
	go s.passOut(gone, ended)
	return s, nil
}

// passIn passes on what comes in. It takes nothing that it was not told of
// before, so that what comes after Pause is left for the next reader.
func (s *Stdio) passIn(wake int) {
	defer close(s.read)
	ready := []unix.PollFd{{Fd: int32(s.in), Events: unix.POLLIN}, {Fd: int32(wake), Events: unix.POLLIN}}
	for buf := make([]byte, 64<<10); ; {
		_, err := unix.Poll(ready, -1)
		if ready[1].Revents != 0 {
			return
		}
		n := 0
		if err == nil {
			n, err = unix.Read(s.in, buf)
		}
		switch {
		case err == unix.EINTR || err == unix.EAGAIN:
		case err != nil || n == 0: // an error ends it as the end does
			_ = s.far.CloseWrite()
			return
		default:
			if _, err := s.far.Write(buf[:n]); err != nil { // Conn was closed
				return
			}
		}
	}
}

// passOut passes on what goes out, and the last word, which comes when nothing
// reads any more.
func (s *Stdio) passOut(gone <-chan struct{}, ended chan<- struct{}) {
	defer close(s.written)
	<-gone
	whole, err := s.copyOut()
	s.far.Close()
	close(ended)
	last, ok := <-s.farewell
	if !ok || err != nil {
		return
	}
	if !whole { // the peer did not read, and was cut off
		last = append([]byte{'\n'}, last...)
	}
	<-s.read
	_, _ = s.out.Write(last) // nobody would hear that it failed
}

// copyOut writes to out what is said on Conn, until that is closed, perhaps with
// requests in it. It reports whether the last line is whole.
func (s *Stdio) copyOut() (whole bool, err error) {
	whole = true
	for buf := make([]byte, 64<<10); ; {
		n, end := s.far.Read(buf)
		if n > 0 {
			if _, err := s.out.Write(buf[:n]); err != nil {
				return false, err
			}
			whole = buf[n-1] == '\n'
		}
		if end != nil {
			return whole, nil
		}
	}
}

// Pause ends the reading of in. What was read is still passed on.
func (s *Stdio) Pause() {
	one := [8]byte{1}
	_, _ = s.wake.Write(one[:])
}

// Finish waits, after Pause and when Conn was closed, until all that was
// written to it is out, or ctx ends. With upgrading the peer is told then that
// another connection begins, since it cannot see that this one has ended.
func (s *Stdio) Finish(ctx context.Context, upgrading bool) {
	if upgrading {
		s.farewell <- farewell(time.Now())
	}
	close(s.farewell)
	for _, gone := range []<-chan struct{}{s.written, s.read} {
		select {
		case <-gone:
		case <-ctx.Done():
			return
		}
	}
	s.wake.Close()
}

// Again makes the next connection over the same streams. Finish comes before.
func (s *Stdio) Again() (*Stdio, error) { return newStdio(s.in, s.out, s.written) }

// farewell is an error that answers no request.
func farewell(now time.Time) []byte {
	e := &encoder{}
	e.envelope("error", now)
	none, said := "", string(CodeUpgrading)+": this connection has ended; shake hands again"
	e.text("req_id", &none, always)
	e.text("error", &said, always)
	return append(e.dst, '}', '\n')
}
