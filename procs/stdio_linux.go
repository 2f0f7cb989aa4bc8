package procs

import (
	"fmt"
	"strconv"

	"golang.org/x/sys/unix"
)

// stdio is both ends of a child's descriptors 0, 1 and 2.
type stdio struct {
	child [3]int
	// Ours, nonblocking, close-on-exec; -1: none. With a terminal out is one
	// end of it and in another descriptor of the same.
	in  int
	out [2]int
	ino [2]uint64
}

func noStdio() stdio {
	return stdio{child: [3]int{-1, -1, -1}, in: -1, out: [2]int{-1, -1}}
}

func (f *stdio) closeChild() { closeAll(f.child[:]...) }
func (f *stdio) closeOurs()  { closeAll(f.in, f.out[0], f.out[1]) }

func closeAll(fds ...int) {
	for _, fd := range fds {
		if fd >= 0 {
			unix.Close(fd)
		}
	}
}

// openStdio opens what the spec asks for; on an error nothing is left open.
func openStdio(s Spec) (stdio, error) {
	f := noStdio()
	open := f.openPipes
	if s.PTY {
		open = f.openPTY
	}
	if err := open(s); err != nil {
		f.closeChild()
		f.closeOurs()
		return noStdio(), err
	}
	return f, nil
}

func (f *stdio) openPipes(s Spec) (err error) {
	for _, out := range []Stream{Stdout, Stderr} {
		if err := f.openOutput(out, s.attended); err != nil {
			return fmt.Errorf("%v: %w", out, err)
		}
	}
	if s.StdinNull {
		f.child[0], err = unix.Open("/dev/null", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	} else {
		f.child[0], f.in, err = pipe(0)
		if err == nil {
			_, err = unix.FcntlInt(uintptr(f.in), unix.F_SETFL, unix.O_NONBLOCK)
		}
	}
	if err != nil {
		return fmt.Errorf("stdin: %w", err)
	}
	return nil
}

// openOutput makes the pipe of one output stream. The child's end is opened
// anew: for reading too, so that its pipe has a reader as long as the child
// lives, and blocking. One that ends with us needs no such reader.
func (f *stdio) openOutput(s Stream, attended bool) error {
	r, w, err := pipe(unix.O_NONBLOCK)
	if err != nil {
		return err
	}
	f.out[s], f.child[1+s] = r, w
	if attended {
		return unix.SetNonblock(w, false)
	}
	var st unix.Stat_t
	if err := unix.Fstat(r, &st); err != nil {
		return err
	}
	f.ino[s] = st.Ino
	rw, err := unix.Open("/proc/self/fd/"+strconv.Itoa(w), unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil { // no /proc: the stream works, but no later agent can take it over
		return unix.SetNonblock(w, false)
	}
	unix.Close(w)
	f.child[1+s] = rw
	return nil
}

func pipe(flags int) (r, w int, err error) {
	var fds [2]int
	if err := unix.Pipe2(fds[:], flags|unix.O_CLOEXEC); err != nil {
		return -1, -1, fmt.Errorf("pipe: %w", err)
	}
	return fds[0], fds[1], nil
}
