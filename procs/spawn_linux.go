package procs

import (
	"fmt"
	"math"
	"os"
	"runtime"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
)

// spawn runs a program and tells the outcome.
func (t *Table) spawn(p *process, s Spec) {
	io, err := openStdio(s)
	if err != nil {
		t.failed(p, fmt.Errorf("start: %w", err))
		return
	}
	path, err := lookPath(s)
	if err == nil {
		err = t.fork(p, s, path, &io)
	}
	io.closeChild()
	if err != nil {
		io.closeOurs()
		t.failed(p, err)
		return
	}
	p.begin(&io)
}

// fork makes the child and registers it, as one step for whoever reaps
// strangers. The error is a *StartError.
func (t *Table) fork(p *process, s Spec, path string, io *stdio) error {
	pidfd := -1
	attr := &syscall.ProcAttr{
		Dir:   s.Cwd,
		Env:   s.Env,
		Files: []uintptr{uintptr(io.child[0]), uintptr(io.child[1]), uintptr(io.child[2])},
		// Setsid makes the process group too. No Pdeathsig: it would fire when
		// the thread that forked ends, at the latest in an execve of the agent.
		Sys: &syscall.SysProcAttr{Setsid: true, Setctty: s.PTY, Ctty: 0, PidFD: &pidfd},
	}
	t.forks.RLock()
	defer t.forks.RUnlock()
	pid, err := t.sys.forkExec(path, s.Argv, attr)
	if err != nil {
		return explain(s, path, err)
	}
	t.sys.resetOOMScore(pid)
	st, err := readStat(pid) // there even if it has exited: we have not reaped it
	if err != nil {
		t.opt.Log.Warn("start ticks cannot be read", "pid", pid, "err", err)
	}
	p.mu.Lock()
	p.pid, p.ticks, p.pidfd = pid, st.ticks, pidfd
	p.mu.Unlock()
	return nil
}

// begin tells that the process runs, and lets the reactor see the rest.
func (p *process) begin(io *stdio) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.running = true
	if io.in >= 0 {
		p.stdin = p.newStdin(io.in)
	}
	for which, fd := range io.out {
		if fd >= 0 {
			p.streams[which] = p.newStream(Stream(which), fd)
		} else {
			p.rings[which].finish()
		}
	}
	p.observe(Spawned{
		Handle:     p.handle,
		PID:        p.pid,
		StartTicks: p.ticks,
		StdoutIno:  io.ino[Stdout],
		StderrIno:  io.ino[Stderr],
		At:         now(),
	})
	p.watch()
}

// system is what New found out about the kernel and about the state in which
// the agent was launched.
type system struct {
	groupSignals bool   // pidfd_send_signal takes PIDFD_SIGNAL_PROCESS_GROUP (Linux 6.9)
	blocked      bool   // the agent was launched with signals blocked
	oomScoreAdj  string // the agent's own, when it is not 0
}

func probeSystem() system {
	var s system
	if fd, err := unix.PidfdOpen(os.Getpid(), 0); err == nil {
		err := unix.PidfdSendSignal(fd, 0, nil, unix.PIDFD_SIGNAL_PROCESS_GROUP)
		s.groupSignals = err == nil || err == unix.ESRCH // no such group, but it was looked for
		unix.Close(fd)
	}
	var mask unix.Sigset_t
	_ = unix.PthreadSigmask(unix.SIG_BLOCK, nil, &mask)
	s.blocked = mask != unix.Sigset_t{}
	if adj, err := os.ReadFile("/proc/self/oom_score_adj"); err == nil && string(adj) != "0\n" {
		s.oomScoreAdj = string(adj)
	}
	return s
}

// sealDescriptors keeps from children what the agent was launched with: they
// get 0, 1 and 2 only. What the agent opens itself is close-on-exec anyway.
func sealDescriptors() error {
	const first = 3
	if unix.CloseRange(first, math.MaxUint32, unix.CLOSE_RANGE_CLOEXEC) == nil {
		return nil
	}
	fds, err := os.ReadDir("/proc/self/fd") // before Linux 5.11
	if err != nil {
		return fmt.Errorf("descriptors: %w", err)
	}
	for _, e := range fds {
		if fd, err := strconv.Atoi(e.Name()); err == nil && fd >= first {
			unix.CloseOnExec(fd)
		}
	}
	return nil
}

// forkExec runs syscall.ForkExec with an empty signal mask: the child gets
// the mask of the thread that forks, and Go's threads keep what was blocked
// when the agent was launched.
func (s *system) forkExec(path string, argv []string, attr *syscall.ProcAttr) (int, error) {
	if s.blocked {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		var none, before unix.Sigset_t
		if err := unix.PthreadSigmask(unix.SIG_SETMASK, &none, &before); err == nil {
			defer unix.PthreadSigmask(unix.SIG_SETMASK, &before, nil)
		}
	}
	return syscall.ForkExec(path, argv, attr)
}

// resetOOMScore takes from a child what protects the agent.
func (s *system) resetOOMScore(pid int) {
	if s.oomScoreAdj != "" {
		_ = os.WriteFile("/proc/"+strconv.Itoa(pid)+"/oom_score_adj", []byte("0"), 0)
	}
}
