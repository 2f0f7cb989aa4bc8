package wire

import (
	"fmt"
	"math"
	"net/netip"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// The networks of an Addr.
const (
	Unix   = "unix"
	Vsock  = "vsock"
	TCP    = "tcp"
	Hybrid = "hybrid" // the host side of a VMM's vsock: a unix socket that is asked for a port
)

// maxUnixPath is what fits into a sockaddr_un beside its final NUL (unix(7)).
const maxUnixPath = 107

// Addr is where an agent listens.
type Addr struct {
	Network string
	Path    string     // Unix, Hybrid
	CID     uint32     // Vsock; unix.VMADDR_CID_ANY where only a port was given
	Port    uint32     // Vsock, TCP, Hybrid
	Host    netip.Addr // TCP: a loopback address
}

// ParseAddr reads unix:PATH, vsock:PORT, vsock:CID:PORT, tcp:HOST:PORT and
// hybrid:PATH:PORT. Its error names s.
func ParseAddr(s string) (Addr, error) {
	network, rest, _ := strings.Cut(s, ":")
	var a Addr
	var err error
	switch network {
	case Unix:
		a, err = unixAddr(rest)
	case Vsock:
		a, err = vsockAddr(rest)
	case TCP:
		a, err = tcpAddr(rest)
	case Hybrid:
		a, err = hybridAddr(rest)
	default:
		err = fmt.Errorf("want unix:PATH, vsock:[CID:]PORT, tcp:HOST:PORT or hybrid:PATH:PORT")
	}
	if err != nil {
		return Addr{}, fmt.Errorf("bad address %q: %w", s, err)
	}
	a.Network = network
	return a, nil
}

// String returns the form that ParseAddr reads.
func (a Addr) String() string {
	switch a.Network {
	case Unix:
		return "unix:" + a.Path
	case Vsock:
		if a.CID == unix.VMADDR_CID_ANY {
			return fmt.Sprintf("vsock:%d", a.Port)
		}
		return fmt.Sprintf("vsock:%d:%d", a.CID, a.Port)
	case TCP:
		return "tcp:" + netip.AddrPortFrom(a.Host, uint16(a.Port)).String()
	default:
		return fmt.Sprintf("%s:%s:%d", a.Network, a.Path, a.Port)
	}
}

func unixAddr(path string) (Addr, error) {
	switch {
	case path == "":
		return Addr{}, fmt.Errorf("the path is empty")
	case len(path) > maxUnixPath:
		return Addr{}, fmt.Errorf("the path is longer than %d bytes", maxUnixPath)
	case strings.IndexByte(path, 0) >= 0 || path[0] == '@':
		return Addr{}, fmt.Errorf("the path must name a file")
	}
	return Addr{Path: path}, nil
}

func vsockAddr(rest string) (a Addr, err error) {
	a.CID = unix.VMADDR_CID_ANY
	cid, port, both := strings.Cut(rest, ":")
	if !both {
		port = cid
	} else if a.CID, err = number(cid, "CID", math.MaxUint32-1); err != nil {
		return a, err
	}
	a.Port, err = number(port, "port", math.MaxUint32-1)
	return a, err
}

func tcpAddr(rest string) (a Addr, err error) {
	colon := strings.LastIndexByte(rest, ':')
	if colon < 0 {
		return a, fmt.Errorf("the port is missing")
	}
	host := strings.TrimSuffix(strings.TrimPrefix(rest[:colon], "["), "]")
	if host == "localhost" {
		host = "127.0.0.1"
	}
	a.Host, err = netip.ParseAddr(host)
	if err != nil || !a.Host.IsLoopback() || a.Host.Zone() != "" {
		return a, fmt.Errorf("%q is not a loopback address", host)
	}
	a.Host = a.Host.Unmap()
	a.Port, err = number(rest[colon+1:], "port", math.MaxUint16)
	return a, err
}

func hybridAddr(rest string) (Addr, error) {
	colon := strings.LastIndexByte(rest, ':')
	if colon < 0 {
		return Addr{}, fmt.Errorf("the port is missing")
	}
	a, err := unixAddr(rest[:colon])
	if err != nil {
		return Addr{}, err
	}
	a.Port, err = number(rest[colon+1:], "port", math.MaxUint32-1)
	return a, err
}

func number(s, what string, highest uint64) (uint32, error) {
	n, err := strconv.ParseUint(s, 10, 32)
	if err != nil || n > highest {
		return 0, fmt.Errorf("%s %q is not a number from 0 to %d", what, s, highest)
	}
	return uint32(n), nil
}

// sockaddr is what the kernel calls a. A hybrid address is its unix socket.
func (a Addr) sockaddr() (family int, sa unix.Sockaddr) {
	switch a.Network {
	case Vsock:
		return unix.AF_VSOCK, &unix.SockaddrVM{CID: a.CID, Port: a.Port}
	case TCP:
		if a.Host.Is4() {
			return unix.AF_INET, &unix.SockaddrInet4{Addr: a.Host.As4(), Port: int(a.Port)}
		}
		return unix.AF_INET6, &unix.SockaddrInet6{Addr: a.Host.As16(), Port: int(a.Port)}
	default:
		return unix.AF_UNIX, &unix.SockaddrUnix{Name: a.Path}
	}
}
