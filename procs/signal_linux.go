package procs

import (
	"fmt"
	"os"
	"os/signal"
	"strconv"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Signal sends sig to the leader of a process, or to its whole group, which
// is also reached when only members are left of it. It never reaches a
// stranger, however pids are recycled. ErrNotRunning means that nobody was
// there to be signalled; other errors are the kernel's (EPERM, EINVAL).
func (t *Table) Signal(handle string, sig syscall.Signal, group bool) error {
	p := t.lookup(handle)
	if p == nil {
		return ErrNotRunning
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.reap() // a zombie takes signals too, and nothing comes of it
	err := p.signal(sig, group)
	if err == unix.ESRCH {
		return ErrNotRunning
	}
	if err != nil {
		return fmt.Errorf("signal %d: %w", int(sig), err)
	}
	return nil
}

// Leftovers says that the leader was reaped but its group still has members.
func (t *Table) Leftovers(handle string) bool {
	p := t.lookup(handle)
	if p == nil {
		return false
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.releaseGroup()
	return !p.running && p.pidfd >= 0
}

// releaseGroup closes the pidfd of a reaped leader once its group has no
// members left. Called with mu held.
func (p *process) releaseGroup() {
	if !p.running && p.signal(0, true) == unix.ESRCH {
		p.closePidfd()
	}
}

func (p *process) signal(sig syscall.Signal, group bool) error {
	switch {
	case p.pidfd < 0, !group && !p.running:
		return unix.ESRCH
	case !group:
		return unix.PidfdSendSignal(p.pidfd, sig, nil, 0)
	case p.t.sys.groupSignals:
		return unix.PidfdSendSignal(p.pidfd, sig, nil, unix.PIDFD_SIGNAL_PROCESS_GROUP)
	case p.running: // not reaped, which needs mu: its pid cannot be another's
		return unix.Kill(-p.pid, sig)
	}
	return p.signalMembers(sig)
}

// signalMembers signals what is left of the group of a reaped leader, below
// Linux 6.9. Members can fork meanwhile, so it looks until it finds no new ones.
func (p *process) signalMembers(sig syscall.Signal) error {
	if unix.Kill(-p.pid, 0) == unix.ESRCH { // nobody's group has that number
		return unix.ESRCH
	}
	seen := make(map[int]bool)
	for fresh := true; fresh; {
		fresh = false
		for _, pid := range p.members() {
			if !seen[pid] {
				seen[pid], fresh = true, sig == unix.SIGKILL
				p.signalMember(pid, sig)
			}
		}
	}
	if len(seen) == 0 {
		return unix.ESRCH
	}
	return nil
}

// signalMember signals pid if it is still a member, now that a pidfd holds it.
func (p *process) signalMember(pid int, sig syscall.Signal) {
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return
	}
	defer unix.Close(fd)
	if st, err := readStat(pid); err == nil && p.inGroup(st) {
		_ = unix.PidfdSendSignal(fd, sig, nil, 0)
	}
}

func (p *process) inGroup(st procStat) bool {
	return st.pgrp == p.pid && st.session == p.pid && st.ticks >= p.ticks
}

// members returns the pids of the group. The number of a group can be
// recycled once all its members are gone. A stranger's group of that number
// is younger than the last moment at which it was ours, provenAt; so one
// member that is not younger proves the group, and moves that moment on.
func (p *process) members() []int {
	var pids []int
	proven, asked := false, ticksNow()
	for _, pid := range allPids() {
		if st, err := readStat(pid); err == nil && p.inGroup(st) {
			pids = append(pids, pid)
			proven = proven || st.ticks <= p.provenAt
		}
	}
	if !proven {
		return nil
	}
	p.provenAt = asked
	return pids
}

func allPids() []int {
	dir, err := os.Open("/proc")
	if err != nil {
		return nil
	}
	defer dir.Close()
	names, _ := dir.Readdirnames(-1)
	var pids []int
	for _, name := range names {
		if pid, err := strconv.Atoi(name); err == nil {
			pids = append(pids, pid)
		}
	}
	return pids
}

// ticksNow is the present in the unit of procStat.ticks. The kernel reports
// to user space in hundredths of a second on every architecture that Go has.
func ticksNow() uint64 {
	var ts unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts)
	return uint64(ts.Nano()) / 10_000_000
}

// CatchIgnored makes every signal that the agent was launched with as
// ignored a caught one that does nothing. It must be called once, before
// anything is spawned: an ignored signal stays ignored in children, a caught
// one gets its default action back. A shell's background job, for example,
// starts with SIGINT and SIGQUIT ignored. Signals must never be ignored by
// the agent itself: it catches and drops them.
func CatchIgnored() {
	dropped := make(chan os.Signal, 1) // Notify does not wait for receivers
	for sig := syscall.Signal(1); sig <= 64; sig++ {
		if ignored(sig) {
			signal.Notify(dropped, sig)
		}
		if ignored(sig) { // os/signal leaves the C library's own alone, which posix_spawn(3) ignores in children
			sigaction(sig, &kernelSigaction{}, nil) // the default
		}
	}
}

// kernelSigaction is what rt_sigaction(2) takes. The layout differs between
// architectures, the first word does not, and all zeros are the default.
type kernelSigaction struct {
	handler uintptr
	_       [18]uintptr
}

// ignored asks the kernel: the os/signal package knows only some signals.
func ignored(sig syscall.Signal) bool {
	const ignore = 1 // SIG_IGN
	var act kernelSigaction
	return sigaction(sig, nil, &act) && act.handler == ignore
}

func sigaction(sig syscall.Signal, set, get *kernelSigaction) bool {
	_, _, errno := unix.RawSyscall6(unix.SYS_RT_SIGACTION, uintptr(sig),
		uintptr(unsafe.Pointer(set)), uintptr(unsafe.Pointer(get)), 8, 0, 0)
	return errno == 0
}
