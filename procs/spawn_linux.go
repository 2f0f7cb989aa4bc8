package procs

import (
	"syscall"
	"time"
)

// spawn runs a program and tells the outcome.
func (t *Table) spawn(p *process, s Spec) {
	io, err := openStdio(s)
	if err != nil {
		t.failed(p, startError("", err, "no descriptors for a new process: %v", err))
		return
	}
	path, err := lookPath(s)
	if err == nil {
		p.announce(io.ino)
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

// busyWait is the longest of the pauses in which a program that is open for
// writing is tried again: a child that was forked while it was written still
// has it open for a moment, after its own execve has let its parent go on.
const busyWait = 16 * time.Millisecond

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
	for wait := time.Millisecond; err == syscall.ETXTBSY && wait <= busyWait; wait *= 2 {
		time.Sleep(wait)
		pid, err = t.sys.forkExec(path, s.Argv, attr)
	}
	if err != nil {
		return explain(s, path, err)
	}
	t.orphans.adopt(pid)
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
