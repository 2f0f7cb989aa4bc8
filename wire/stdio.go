package wire

import (
	"errors"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// Stdio makes a connection of a pair of streams, which may block and belong to
// others: their descriptors are left as they are. Ended is closed when the
// connection is, because in has ended or for another reason, and all that was
// said on it is passed on. Then nothing more is read of in, and Stdio can be
// called again.
func Stdio(in, out *os.File) (c *Conn, ended <-chan struct{}, err error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, os.NewSyscallError("socketpair", err)
	}
	raw, errIn := in.SyscallConn()
	c, errOurs := newConn(fds[0], Unix, "stdio")
	far, errFar := newConn(fds[1], Unix, "stdio")
	if err := errors.Join(errIn, errOurs, errFar); err != nil {
		return nil, nil, err
	}
	read, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(read)
		_ = raw.Control(func(fd uintptr) { feedFrom(int(fd), far) })
		_ = far.CloseWrite()
	}()
	go func() {
		defer close(done)
		defer far.Close()
		_, _ = io.Copy(out, far) // an error ends it as the end does
		_ = far.control(func(fd int) error { return unix.Shutdown(fd, unix.SHUT_RDWR) })
		<-read
	}()
	return c, done, nil
}

// feedFrom passes on what comes from a descriptor, until that ends or the other
// end of far is closed. It reads only what is there, so that a read that waits
// does not take what is meant for who comes next.
func feedFrom(fd int, far *Conn) {
	buf := make([]byte, 64<<10)
	for readable(fd, far) {
		n, err := unix.Read(fd, buf)
		switch {
		case err == unix.EAGAIN || err == unix.EINTR:
			continue
		case err != nil || n == 0:
			return
		}
		if _, err := far.Write(buf[:n]); err != nil {
			return
		}
	}
}

// readable waits until there is something to read, be it the end. It reports
// false when the other end of far is closed.
func readable(fd int, far *Conn) (ok bool) {
	_ = far.control(func(conn int) error {
		fds := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}, {Fd: int32(conn)}}
		for !ok && fds[1].Revents == 0 {
			_, err := unix.Poll(fds, -1)
			if err != nil && err != unix.EINTR {
				break
			}
			ok = fds[0].Revents != 0
		}
		ok = ok && fds[1].Revents == 0
		return nil
	})
	return ok
}
