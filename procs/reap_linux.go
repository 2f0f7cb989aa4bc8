package procs

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// exitSeen serves the pidfd.
func (p *process) exitSeen(uint32) {
	if p.reap(); p.running {
		p.t.reactor.arm(&p.exit, unix.EPOLLIN)
	}
}

// reap takes the status of a process that has exited; otherwise it does
// nothing. It and Child.settle reap what was started here, reapOrphan the rest.
// Called with mu held.
func (p *process) reap() {
	if !p.running {
		return
	}
	status, rusage, exited := p.wait()
	if !exited {
		return
	}
	p.running = false
	p.t.orphans.release(p.pid)
	p.provenAt = ticksNow()
	p.t.reactor.drop(&p.exit)
	if p.stdin != nil {
		p.stdin.end()
	}
	p.releaseGroup()
	p.observe(Exited{Handle: p.handle, Status: status, Rusage: rusage, At: now()})
	for _, s := range p.streams {
		if s != nil {
			s.wake() // its end is probably there already
		}
	}
}

// wait reaps the child behind the pidfd without waiting. For a process that
// is not our child, any more or at all, it finds out what it can.
func (p *process) wait() (s Status, ru Rusage, exited bool) {
	s, ru, exited, err := waitChild(p.pidfd, 0)
	if err == unix.ECHILD {
		s, exited = p.strangersStatus()
	}
	return s, ru, exited
}

// waitChild is waitid(2) on a pidfd, without waiting.
func waitChild(pidfd, flags int) (s Status, ru Rusage, exited bool, err error) {
	var info childInfo
	var usage unix.Rusage
	_, err = ignoringEINTR(func() (int, error) {
		return 0, unix.Waitid(unix.P_PIDFD, pidfd, (*unix.Siginfo)(unsafe.Pointer(&info)), unix.WEXITED|unix.WNOHANG|flags, &usage)
	})
	if err != nil || info.child.pid == 0 {
		return Status{}, Rusage{}, false, err
	}
	return info.status(), rusageOf(&usage), true, nil
}

// childInfo is siginfo_t as waitid(2) fills it.
type childInfo struct {
	signo, errno, code int32
	child              struct {
		_      [0]uintptr // a union that holds pointers, so it is aligned like one
		pid    int32
		uid    uint32
		status int32
	}
	_ [104]byte // siginfo_t has 128 bytes
}

func (i *childInfo) status() Status {
	const exited, dumped = 1, 3 // CLD_EXITED, CLD_DUMPED
	if i.code == exited {
		return Status{Known: true, Code: int(i.child.status)}
	}
	return Status{Known: true, Signal: unix.Signal(i.child.status), CoreDumped: i.code == dumped}
}

func rusageOf(u *unix.Rusage) Rusage {
	return Rusage{UserUS: u.Utime.Nano() / 1000, SysUS: u.Stime.Nano() / 1000, MaxRSSKiB: int64(u.Maxrss)}
}

// strangersStatus is how a process that is not our child ended, if it has: by
// what the kernel keeps behind a pidfd, else by the zombie.
func (p *process) strangersStatus() (s Status, exited bool) {
	if !readable(p.pidfd) {
		return Status{}, false
	}
	if word, ok := p.keptStatus(); ok {
		return statusFromWait(word), true
	}
	if st, err := readStat(p.pid); err == nil && st.ticks == p.ticks && st.state == 'Z' {
		return statusFromWait(st.exitWord), true
	}
	// Reaped between the two questions: ask the first again.
	word, ok := p.keptStatus()
	if !ok {
		return Status{}, true
	}
	return statusFromWait(word), true
}

// readable says that the process behind a pidfd has exited.
func readable(pidfd int) bool {
	fds := []unix.PollFd{{Fd: int32(pidfd), Events: unix.POLLIN}}
	n, err := ignoringEINTR(func() (int, error) { return unix.Poll(fds, 0) })
	return n == 1 && err == nil
}

// keptStatus is the status of a process that was reaped, by whomever.
func (p *process) keptStatus() (word int, ok bool) {
	if !p.t.sys.pidfdInfo {
		return 0, false
	}
	info, err := pidfdInfo(p.pidfd, unix.PIDFD_INFO_EXIT)
	return int(info.Exit_code), err == nil && info.Mask&unix.PIDFD_INFO_EXIT != 0
}

// pidfdInfo is ioctl PIDFD_GET_INFO; the mask of its answer says what is there.
func pidfdInfo(pidfd int, mask uint64) (info unix.PidfdInfo, err error) {
	info.Mask = mask
	_, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(pidfd), unix.PIDFD_GET_INFO, uintptr(unsafe.Pointer(&info)))
	if errno != 0 {
		return info, errno
	}
	return info, nil
}
