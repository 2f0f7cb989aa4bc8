package procs

import (
	"context"
	"io"
	"os"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Child is a process that ends with whoever attends it. It has no handle and
// no ring, and nothing is observed of it. Once its leader has exited its group
// is killed, and only then the leader is reaped: so the group is never
// another's. Who has left its session lives on.
type Child struct {
	p      process // for its identity and its signals
	stdin  *os.File
	out    [2]*os.File // a terminal has the first only
	exit   *os.File    // the pidfd
	status Status      // once reaped; guarded by p.mu
}

// Attend starts a process; an error is a *StartError. The caller ends in
// Close. Its output is not kept anywhere: a writer waits for who reads, and
// has a broken pipe after Close.
func (t *Table) Attend(s Spec) (*Child, error) {
	s.attended = true
	io, err := openStdio(s)
	if err != nil {
		return nil, startError("", err, "no descriptors for a new process: %v", err)
	}
	c := &Child{p: process{t: t, pidfd: -1}}
	path, err := lookPath(s)
	if err == nil {
		err = t.fork(&c.p, s, path, &io)
	}
	io.closeChild()
	if err != nil {
		io.closeOurs()
		return nil, err
	}
	c.p.running = true
	c.open(&io)
	return c, nil
}

// open puts our descriptors into the poller of the runtime.
func (c *Child) open(io *stdio) {
	_ = unix.SetNonblock(c.p.pidfd, true) // fails on no valid descriptor
	c.exit = os.NewFile(uintptr(c.p.pidfd), "pidfd")
	if io.in >= 0 {
		c.stdin = os.NewFile(uintptr(io.in), "stdin")
	}
	for which, fd := range io.out {
		if fd >= 0 {
			c.out[which] = os.NewFile(uintptr(fd), Stream(which).String())
		}
	}
}

// Read reads output: of a terminal, or stdout. The end of a terminal is io.EOF.
func (c *Child) Read(b []byte) (int, error) {
	n, err := c.out[Stdout].Read(b)
	if pathErr, ok := err.(*os.PathError); ok && pathErr.Err == unix.EIO {
		err = io.EOF // nobody has the terminal open any more
	}
	return n, err
}

// Write writes to the terminal, or to stdin.
func (c *Child) Write(b []byte) (int, error) { return c.stdin.Write(b) }

// Kill kills the group.
func (c *Child) Kill() {
	c.p.mu.Lock()
	defer c.p.mu.Unlock()
	if c.p.running {
		_ = c.p.signal(unix.SIGKILL, true) // at worst nobody is left
	}
}

// Wait waits until the leader has exited, and kills the group when ctx ends
// before. Afterwards no member of the group runs any more.
func (c *Child) Wait(ctx context.Context) Status {
	defer context.AfterFunc(ctx, c.Kill)()
	if raw, err := c.exit.SyscallConn(); err == nil {
		_ = raw.Read(func(uintptr) bool { return c.settle() }) // its end is settle's
	}
	return c.status
}

// settle reaps the leader if it has exited, and reports whether it was reaped.
func (c *Child) settle() bool {
	p := &c.p
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.running {
		return true
	}
	if _, _, exited, _ := waitChild(p.pidfd, unix.WNOWAIT); !exited {
		return false
	}
	_ = p.signal(unix.SIGKILL, true) // nobody but the zombie may be left
	c.status, _, _, _ = waitChild(p.pidfd, 0)
	p.running = false
	p.t.orphans.release(p.pid)
	return true
}

// Close kills the group if its leader still runs, waits for that, and closes
// all descriptors.
func (c *Child) Close() error {
	c.Kill()
	c.Wait(context.Background())
	for _, f := range []*os.File{c.stdin, c.out[Stdout], c.out[Stderr], c.exit} {
		if f != nil {
			f.Close()
		}
	}
	return nil
}

// Run runs a program until it exits or ctx ends, and hands what it writes to
// out, one writer a stream, each called from one goroutine at a time. They
// must not block for long and must not fail. When Run returns, nothing of the
// group is left. Stdin that the program does not take is dropped.
func (t *Table) Run(ctx context.Context, s Spec, stdin []byte, out [2]io.Writer) (Status, error) {
	s.PTY, s.StdinNull = false, len(stdin) == 0
	c, err := t.Attend(s)
	if err != nil {
		return Status{}, err
	}
	defer c.Close()
	var pumps sync.WaitGroup
	if c.stdin != nil {
		pumps.Go(func() {
			_, _ = c.stdin.Write(stdin)
			c.stdin.Close()
		})
	}
	for which, f := range c.out {
		pumps.Go(func() { _, _ = io.Copy(out[which], f) })
	}
	status := c.Wait(ctx)
	c.interrupt()
	pumps.Wait()
	for which, f := range c.out {
		copyRest(out[which], f)
	}
	return status, nil
}

// interrupt ends reads and writes under way: who has left the session may hold
// the pipes open for ever.
func (c *Child) interrupt() {
	for _, f := range []*os.File{c.stdin, c.out[Stdout], c.out[Stderr]} {
		if f != nil {
			_ = f.SetDeadline(time.Unix(1, 0)) // fails only on a closed one
		}
	}
}

// copyRest copies what a pipe holds now, all that a dead group has written,
// and no more of what a stranger adds.
func copyRest(dst io.Writer, f *os.File) {
	raw, err := f.SyscallConn()
	if err != nil {
		return
	}
	_ = raw.Control(func(fd uintptr) {
		held, err := unix.IoctlGetInt(int(fd), unix.TIOCINQ)
		for buf := make([]byte, 64<<10); err == nil && held > 0; {
			var n int
			n, err = ignoringEINTR(func() (int, error) { return syscall.Read(int(fd), buf[:min(held, len(buf))]) })
			if n <= 0 {
				return
			}
			_, _ = dst.Write(buf[:n])
			held -= n
		}
	})
}
