package wire

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Conn is one connection, of any network. Like a net.Conn it may be read and
// written at the same time, and Close ends both.
type Conn struct {
	file *os.File
	raw  syscall.RawConn
	name string
	tcp  bool // the peer may be a browser
}

// newConn takes over fd, which is non-blocking.
func newConn(fd int, network, peer string) (*Conn, error) {
	file := os.NewFile(uintptr(fd), network)
	raw, err := file.SyscallConn()
	if err != nil {
		file.Close()
		return nil, err
	}
	c := &Conn{file: file, raw: raw, name: peer, tcp: network == TCP}
	if c.tcp {
		c.control(func(fd int) error { return unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_NODELAY, 1) })
	}
	return c, nil
}

// PeerName says who is at the other end: "uid=0 pid=4242", "cid=2 port=1024",
// "127.0.0.1:4242". On a dialed connection it is the address.
func (c *Conn) PeerName() string { return c.name }

// Read reads what has arrived.
func (c *Conn) Read(p []byte) (int, error) { return c.file.Read(p) }

// Write writes all of p, or fails.
func (c *Conn) Write(p []byte) (int, error) { return c.file.Write(p) }

// Close ends reads and writes that are under way with os.ErrClosed.
func (c *Conn) Close() error { return c.file.Close() }

// CloseWrite tells the peer that nothing more will come; replies still do.
func (c *Conn) CloseWrite() error {
	return c.control(func(fd int) error { return unix.Shutdown(fd, unix.SHUT_WR) })
}

// SetDeadline, SetReadDeadline and SetWriteDeadline are those of os.File.
func (c *Conn) SetDeadline(t time.Time) error { return c.file.SetDeadline(t) }

// SetReadDeadline bounds reads; see SetDeadline.
func (c *Conn) SetReadDeadline(t time.Time) error { return c.file.SetReadDeadline(t) }

// SetWriteDeadline bounds writes; see SetDeadline.
func (c *Conn) SetWriteDeadline(t time.Time) error { return c.file.SetWriteDeadline(t) }

// control calls f with the descriptor, without making it blocking as
// os.File.Fd would.
func (c *Conn) control(f func(fd int) error) error {
	var err error
	if e := c.raw.Control(func(fd uintptr) { err = f(int(fd)) }); e != nil {
		return e
	}
	return err
}

// readLate reads into r, whose buffer it takes only once something is there.
func (c *Conn) readLate(r *LineReader) (n int, err error) {
	waited := c.raw.Read(func(fd uintptr) bool {
		n, err = unix.Read(int(fd), r.room())
		for err == unix.EINTR {
			n, err = unix.Read(int(fd), r.room())
		}
		if err == unix.EAGAIN {
			r.Release()
			return false
		}
		return true
	})
	switch {
	case waited != nil:
		return 0, waited
	case err != nil:
		return 0, os.NewSyscallError("read", err)
	case n == 0:
		return 0, io.EOF
	}
	return n, nil
}

// waitHangup blocks until the peer has closed its end whole or the connection
// broke, or until the read deadline. A half-close does not end it.
func (c *Conn) waitHangup() error {
	return c.raw.Read(func(fd uintptr) bool { return polled(fd, 0) })
}

// polled reports whether fd has one of events, a hang-up or an error. The
// poller wakes on edges, which may have passed: only poll(2) knows.
func polled(fd uintptr, events int16) bool {
	fds := []unix.PollFd{{Fd: int32(fd), Events: events}}
	n, err := unix.Poll(fds, 0)
	return n > 0 || err != nil && err != unix.EINTR
}

// writeAll writes p to a peer that must take some of it every stall, and tells
// how much it took. Most replies fit into the socket: only the others are worth
// a timer.
func (c *Conn) writeAll(p []byte, stall time.Duration) (taken int, err error) {
	taken, err = c.writeNow(p)
	for err == nil && taken < len(p) {
		const piece = 256 << 10 // one deadline for each: a slow peer is not a dead one
		c.SetWriteDeadline(time.Now().Add(stall))
		var n int
		n, err = c.file.Write(p[taken:min(taken+piece, len(p))])
		if n > 0 && errors.Is(err, os.ErrDeadlineExceeded) {
			err = nil
		}
		taken += n
	}
	return taken, err
}

// writeNow writes what the socket takes at once.
func (c *Conn) writeNow(p []byte) (n int, err error) {
	if e := c.raw.Control(func(fd uintptr) { n, err = unix.Write(int(fd), p) }); e != nil {
		return 0, e
	}
	if err == unix.EAGAIN || err == unix.EINTR {
		return 0, nil
	}
	return max(n, 0), os.NewSyscallError("write", err)
}

// Dial connects to an agent. The context bounds connecting alone.
func Dial(ctx context.Context, a Addr) (*Conn, error) {
	c, err := dial(ctx, a)
	if err != nil {
		return nil, fmt.Errorf("dial %v: %w", a, err)
	}
	return c, nil
}

func dial(ctx context.Context, a Addr) (*Conn, error) {
	family, sa := a.sockaddr()
	fd, err := unix.Socket(family, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, os.NewSyscallError("socket", err)
	}
	c, err := newConn(fd, a.Network, a.String())
	if err != nil {
		return nil, err
	}
	stop := context.AfterFunc(ctx, func() { c.SetDeadline(time.Unix(1, 0)) })
	err = c.connect(ctx, sa)
	if err == nil && a.Network == Hybrid {
		err = c.askForPort(a.Port)
	}
	if !stop() && ctx.Err() != nil {
		err = ctx.Err()
	}
	if err != nil {
		c.Close()
		return nil, err
	}
	return c, nil
}

// connect connects a non-blocking socket. A unix socket whose backlog is full
// says EAGAIN and cannot be waited for (connect(2)).
func (c *Conn) connect(ctx context.Context, sa unix.Sockaddr) error {
	for {
		err := c.control(func(fd int) error { return unix.Connect(fd, sa) })
		switch err {
		case unix.EINPROGRESS, unix.EINTR:
			return c.connected()
		case unix.EAGAIN:
			select {
			case <-ctx.Done():
				return ctx.Err()
			case <-time.After(5 * time.Millisecond):
			}
		default:
			return os.NewSyscallError("connect", err)
		}
	}
}

// connected waits for the end of a connect that is in progress.
func (c *Conn) connected() error {
	if err := c.raw.Write(func(fd uintptr) bool { return polled(fd, unix.POLLOUT) }); err != nil {
		return err
	}
	return c.control(func(fd int) error {
		code, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_ERROR)
		if err == nil && code != 0 {
			err = syscall.Errno(code)
		}
		return os.NewSyscallError("connect", err)
	})
}

// askForPort asks a VMM for the guest's port. The answer is read byte by byte:
// what follows it is the agent's.
func (c *Conn) askForPort(port uint32) error {
	if _, err := fmt.Fprintf(c, "CONNECT %d\n", port); err != nil {
		return err
	}
	var answer []byte
	for len(answer) < 64 {
		var b [1]byte
		if _, err := io.ReadFull(c, b[:]); err != nil {
			return fmt.Errorf("no answer to CONNECT %d: %w", port, err)
		}
		if b[0] == '\n' {
			break
		}
		answer = append(answer, b[0])
	}
	if !strings.HasPrefix(string(answer), "OK") {
		return fmt.Errorf("CONNECT %d was answered %q", port, answer)
	}
	return nil
}
