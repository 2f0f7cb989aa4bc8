package procs

import (
	"fmt"
	"math"
	"os"
	"runtime"
	"strconv"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// system is what New found out about the kernel and about the state in which
// the agent was launched.
type system struct {
	groupSignals bool       // pidfd_send_signal takes PIDFD_SIGNAL_PROCESS_GROUP (Linux 6.9)
	pidfdInfo    bool       // PIDFD_GET_INFO is there (Linux 6.13; with the exit status: 6.15)
	blocked      bool       // the agent was launched with signals blocked
	oomScoreAdj  string     // the agent's own, when it is not 0
	exposed      sync.Mutex // held while it is 0 for a fork
}

func probeSystem() *system {
	s := new(system)
	if fd, err := unix.PidfdOpen(os.Getpid(), 0); err == nil {
		err := unix.PidfdSendSignal(fd, 0, nil, unix.PIDFD_SIGNAL_PROCESS_GROUP)
		s.groupSignals = err == nil || err == unix.ESRCH // no such group, but it was looked for
		_, err = pidfdInfo(fd, unix.PIDFD_INFO_PID)
		s.pidfdInfo = err == nil
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

// Features names the newer features of the kernel that are in use. Without
// them the Table does the same by slower means, and knows fewer exit statuses
// of adopted processes.
func (t *Table) Features() []string {
	names := []string{}
	if t.sys.groupSignals {
		names = append(names, "pidfd_group_signal")
	}
	if t.sys.pidfdInfo {
		names = append(names, "pidfd_info")
	}
	return names
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
	if s.oomScoreAdj != "" {
		s.exposed.Lock()
		defer s.exposed.Unlock()
		setOOMScore("0")
		defer setOOMScore(s.oomScoreAdj)
	}
	return syscall.ForkExec(path, argv, attr)
}

// setOOMScore sets the agent's own. A child inherits it: done to the child
// instead, it would come too late for what that one has forked by then. One may
// always go back to what one was launched with (proc_pid_oom_score_adj(5)).
func setOOMScore(adj string) {
	_ = os.WriteFile("/proc/self/oom_score_adj", []byte(adj), 0) // at worst a child is protected too
}
