package procs

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// openPTY opens a terminal: the child has its slave three times. It is done
// by hand because the usual helpers leave the master blocking.
func (f *stdio) openPTY(s Spec) error {
	const flags = unix.O_RDWR | unix.O_NOCTTY | unix.O_CLOEXEC
	master, err := unix.Open("/dev/ptmx", flags|unix.O_NONBLOCK, 0)
	if err != nil {
		return fmt.Errorf("open /dev/ptmx: %w", err)
	}
	f.out[Stdout] = master
	if err := unix.IoctlSetPointerInt(master, unix.TIOCSPTLCK, 0); err != nil {
		return fmt.Errorf("unlock the terminal: %w", err)
	}
	if s.Cols != 0 || s.Rows != 0 {
		if err := setWindow(master, s.Cols, s.Rows); err != nil {
			return err
		}
	}
	// By ioctl, not by name: it works in any mount namespace.
	slave, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(master), unix.TIOCGPTPEER, flags)
	if errno != 0 {
		return fmt.Errorf("open the terminal: %w", errno)
	}
	f.child[0] = int(slave)
	for i := 1; i < len(f.child); i++ {
		if f.child[i], err = dup(int(slave)); err != nil {
			return err
		}
	}
	// Output and input wait each for their own events, so each needs a descriptor.
	f.in, err = dup(master)
	return err
}

func dup(fd int) (int, error) {
	d, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return -1, fmt.Errorf("dup: %w", err)
	}
	return d, nil
}

func setWindow(master int, cols, rows uint16) error {
	if err := unix.IoctlSetWinsize(master, unix.TIOCSWINSZ, &unix.Winsize{Col: cols, Row: rows}); err != nil {
		return fmt.Errorf("set window size: %w", err)
	}
	return nil
}

// Resize gives the terminal of a process a new size. The kernel raises
// SIGWINCH when it differs. Errors: ErrNotAPTY, ErrNotRunning.
func (t *Table) Resize(handle string, cols, rows uint16) error {
	p := t.lookup(handle)
	if p == nil {
		return ErrNotRunning
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case !p.running:
		return ErrNotRunning
	case !p.pty:
		return ErrNotAPTY
	case p.stdin == nil || p.stdin.closed: // its terminal is gone
		return ErrNotRunning
	}
	return setWindow(p.stdin.fd, cols, rows)
}

// endOfFile returns what makes the reader of a terminal see the end of its
// input: its end-of-file character, in the middle of a line twice, because the
// first one then only hands over the unfinished line. See termios(3), VEOF.
func endOfFile(master int, midLine bool) []byte {
	tio, err := unix.IoctlGetTermios(master, unix.TCGETS)
	if err != nil || tio.Cc[unix.VEOF] == 0 { // disabled
		return nil
	}
	eof := []byte{tio.Cc[unix.VEOF]}
	if midLine && tio.Lflag&unix.ICANON != 0 {
		eof = append(eof, eof[0])
	}
	return eof
}
