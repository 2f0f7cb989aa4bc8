package wire

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// ErrInUse is returned by Listen where something answers on the address.
var ErrInUse = errors.New("somebody listens there already")

// errRefused is returned by accept for a peer that may not speak.
var errRefused = errors.New("peer refused")

// Access says which peers may speak. A TCP peer has no identity: all may.
type Access struct {
	UIDs []uint32 // unix peers; nil is the own uid and root
	CIDs []uint32 // vsock peers; nil is the host
}

func (a Access) allowsUID(uid uint32) bool {
	if a.UIDs == nil {
		return uid == 0 || uid == uint32(os.Geteuid())
	}
	return slices.Contains(a.UIDs, uid)
}

func (a Access) allowsCID(cid uint32) bool {
	if a.CIDs == nil {
		return cid == unix.VMADDR_CID_HOST
	}
	return slices.Contains(a.CIDs, cid)
}

// mode is the narrowest mode of a socket file that lets the allowed users
// connect. Root needs none.
func (a Access) mode() uint32 {
	own := uint32(os.Geteuid())
	if slices.ContainsFunc(a.UIDs, func(uid uint32) bool { return uid != own && uid != 0 }) {
		return 0o666
	}
	return 0o600
}

// peerOf names the peer of an accepted connection and says whether it may
// speak.
func (a Access) peerOf(fd int, sa unix.Sockaddr) (name string, ok bool) {
	switch sa := sa.(type) {
	case *unix.SockaddrVM:
		return fmt.Sprintf("cid=%d port=%d", sa.CID, sa.Port), a.allowsCID(sa.CID)
	case *unix.SockaddrInet4:
		return netip.AddrPortFrom(netip.AddrFrom4(sa.Addr), uint16(sa.Port)).String(), true
	case *unix.SockaddrInet6:
		return netip.AddrPortFrom(netip.AddrFrom16(sa.Addr), uint16(sa.Port)).String(), true
	default:
		cred, err := unix.GetsockoptUcred(fd, unix.SOL_SOCKET, unix.SO_PEERCRED)
		if err != nil {
			return "", false
		}
		return fmt.Sprintf("uid=%d pid=%d", cred.Uid, cred.Pid), a.allowsUID(cred.Uid)
	}
}

// Listener is a listening socket. It outlives an execve by its descriptor: see
// FD and Inherit.
type Listener struct {
	addr   Addr
	access Access
	file   *os.File
	raw    syscall.RawConn
	socket os.FileInfo // of the socket file, as it was made
}

// Listen listens on a. A socket file on which nobody answers is replaced; one
// with a living owner is ErrInUse. Nobody can connect before the file has its
// mode.
func Listen(a Addr, access Access) (*Listener, error) {
	l, err := listen(a, access)
	if err != nil {
		return nil, fmt.Errorf("listen on %v: %w", a, err)
	}
	return l, nil
}

func listen(a Addr, access Access) (*Listener, error) {
	if a.Network == Hybrid {
		return nil, errors.New("only a client can use a hybrid address")
	}
	family, sa := a.sockaddr()
	fd, err := unix.Socket(family, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, os.NewSyscallError("socket", err)
	}
	if err = bind(fd, a, sa, access); err == nil {
		err = os.NewSyscallError("listen", unix.Listen(fd, unix.SOMAXCONN))
	}
	if err != nil {
		unix.Close(fd)
		return nil, err
	}
	return newListener(fd, a, access)
}

// Inherit makes a listener of a descriptor that listens on a already: of one
// that came through an execve. It takes fd over, sets close-on-exec on it and
// does not touch the socket file.
func Inherit(fd int, a Addr, access Access) (*Listener, error) {
	family, _ := a.sockaddr()
	domain, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_DOMAIN)
	if err != nil {
		return nil, fmt.Errorf("inherit %v: descriptor %d: %w", a, fd, err)
	}
	listens, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_ACCEPTCONN)
	if err != nil || domain != family || listens != 1 {
		return nil, fmt.Errorf("inherit %v: descriptor %d does not listen there", a, fd)
	}
	unix.CloseOnExec(fd)
	if err := unix.SetNonblock(fd, true); err != nil {
		return nil, fmt.Errorf("inherit %v: %w", a, err)
	}
	return newListener(fd, a, access)
}

func newListener(fd int, a Addr, access Access) (*Listener, error) {
	l := &Listener{addr: a, access: access, file: os.NewFile(uintptr(fd), a.String())}
	raw, err := l.file.SyscallConn()
	if err != nil {
		l.file.Close()
		return nil, err
	}
	l.raw = raw
	switch a.Network {
	case Unix:
		l.socket, _ = os.Lstat(a.Path)
	case TCP: // port 0 was a wish for any
		if port, err := boundPort(fd); err == nil {
			l.addr.Port = port
		}
	}
	return l, nil
}

func boundPort(fd int) (uint32, error) {
	sa, err := unix.Getsockname(fd)
	switch sa := sa.(type) {
	case *unix.SockaddrInet4:
		return uint32(sa.Port), nil
	case *unix.SockaddrInet6:
		return uint32(sa.Port), nil
	}
	return 0, err
}

// bind gives the socket its name. Until listen(2) a connect is refused, so the
// mode is set in time whatever the umask is.
func bind(fd int, a Addr, sa unix.Sockaddr, access Access) error {
	if a.Network == TCP {
		if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1); err != nil {
			return err
		}
	}
	err := unix.Bind(fd, sa)
	if err == unix.EADDRINUSE && a.Network == Unix {
		if err := removeStale(a, sa); err != nil {
			return err
		}
		err = unix.Bind(fd, sa)
	}
	if err == unix.EADDRINUSE {
		return ErrInUse
	}
	if err != nil || a.Network != Unix {
		return os.NewSyscallError("bind", err)
	}
	return os.NewSyscallError("chmod", unix.Chmod(a.Path, access.mode()))
}

// removeStale unlinks a socket file whose owner is gone.
func removeStale(a Addr, sa unix.Sockaddr) error {
	info, err := os.Lstat(a.Path)
	if err != nil {
		return err
	}
	if info.Mode().Type() != os.ModeSocket {
		return errors.New("a file that is no socket is in the way")
	}
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return os.NewSyscallError("socket", err)
	}
	defer unix.Close(fd)
	if err := unix.Connect(fd, sa); err != unix.ECONNREFUSED {
		return ErrInUse // also where nobody can tell: a full backlog, no permission
	}
	return os.Remove(a.Path)
}

// Addr returns where it listens; a TCP port that was 0 is the real one.
func (l *Listener) Addr() Addr { return l.addr }

// FD returns the descriptor, which stays the listener's and non-blocking.
func (l *Listener) FD() (int, error) {
	number := -1
	err := l.raw.Control(func(fd uintptr) { number = int(fd) })
	return number, err
}

// Close stops listening and removes the socket file if it is still ours.
func (l *Listener) Close() error {
	if l.socket != nil {
		now, err := os.Lstat(l.addr.Path)
		// Inode numbers are used again; their times tell the files apart.
		if err == nil && os.SameFile(now, l.socket) && now.ModTime().Equal(l.socket.ModTime()) {
			os.Remove(l.addr.Path)
		}
	}
	return l.file.Close()
}

// Accept waits for the next peer that may speak; others are closed unread.
func (l *Listener) Accept() (*Conn, error) {
	for {
		c, err := l.accept()
		if err != errRefused {
			return c, err
		}
	}
}

func (l *Listener) accept() (*Conn, error) {
	var fd int
	var sa unix.Sockaddr
	var err error
	if e := l.raw.Read(func(listening uintptr) bool {
		fd, sa, err = unix.Accept4(int(listening), unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC)
		return err != unix.EAGAIN
	}); e != nil {
		return nil, e
	}
	if err != nil {
		return nil, os.NewSyscallError("accept", err)
	}
	peer, ok := l.access.peerOf(fd, sa)
	if !ok {
		unix.Close(fd)
		return nil, errRefused
	}
	return newConn(fd, l.addr.Network, peer)
}

// pause makes Accept return at once with os.ErrDeadlineExceeded; resume undoes
// it. Peers that connect meanwhile wait in the backlog.
func (l *Listener) pause()  { l.file.SetReadDeadline(time.Unix(1, 0)) }
func (l *Listener) resume() { l.file.SetReadDeadline(time.Time{}) }
