package wire

import (
	"errors"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// Stdio makes a connection of a pair of streams, which may block and belong to
// others: their descriptors are left as they are. Ended is closed when in has
// ended, and all of it was passed on.
func Stdio(in io.Reader, out io.Writer) (c *Conn, ended <-chan struct{}, err error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, os.NewSyscallError("socketpair", err)
	}
	c, errOurs := newConn(fds[0], Unix, "stdio")
	far, errFar := newConn(fds[1], Unix, "stdio")
	if err := errors.Join(errOurs, errFar); err != nil {
		return nil, nil, err
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_, _ = io.Copy(far, in) // an error ends it as the end does
		_ = far.CloseWrite()
	}()
	go func() {
		defer far.Close()
		_, _ = io.Copy(out, far)
	}()
	return c, done, nil
}
