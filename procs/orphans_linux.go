package procs

import (
	"fmt"
	"os"
	"os/signal"
	"sync"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"
)

// orphans tells the children of the agent that somebody here started, and
// reaps himself, from those that came to it when their parent died.
type orphans struct {
	reaped atomic.Int64
	wake   chan os.Signal // SIGCHLD, from the kernel or from whoever reaped
	quit   chan struct{}
	done   chan struct{} // nil while nothing is swept

	mu      sync.Mutex
	own     map[int]int // owners by pid: two for a moment, when a pid is used again
	blocked bool        // the sweep waits until what is in its way is gone
}

func (o *orphans) init() {
	o.wake = make(chan os.Signal, 1)
	o.quit = make(chan struct{})
	o.own = make(map[int]int)
}

// adopt makes pid a child with an owner. Until the pid is registered here, its
// fork holds the read side of Table.forks.
func (o *orphans) adopt(pid int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.own[pid]++
}

// release is told when the owner has reaped pid.
func (o *orphans) release(pid int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.own[pid]--; o.own[pid] == 0 {
		delete(o.own, pid)
	}
	o.unblock()
}

// unblock lets a sweep go on that waits for it. Called with mu held.
func (o *orphans) unblock() {
	if o.blocked {
		o.blocked = false
		select {
		case o.wake <- unix.SIGCHLD:
		default:
		}
	}
}

// owned reports whether pid has an owner; if so, the sweep goes
// on when that one has reaped it.
func (o *orphans) owned(pid int) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.blocked = o.own[pid] > 0
	return o.blocked
}

// ReapOrphans makes this process the one that orphaned descendants come to,
// which as PID 1 it is anyway, and reaps each when it ends. It is called once,
// after the last Adopt or Inherit. A child that is started by other means than
// the Table's must not exist: its status would be lost to whoever waits for it.
func (t *Table) ReapOrphans() error {
	if os.Getpid() != 1 {
		if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
			return fmt.Errorf("becoming a subreaper: %w", err)
		}
	}
	o := &t.orphans
	o.done = make(chan struct{})
	signal.Notify(o.wake, unix.SIGCHLD)
	go t.reapOrphans()
	return nil
}

// Reaped is the number of orphans reaped so far.
func (t *Table) Reaped() int64 { return t.orphans.reaped.Load() }

// CountReaped adds what an earlier image has reaped.
func (t *Table) CountReaped(n int64) { t.orphans.reaped.Add(n) }

func (t *Table) reapOrphans() {
	defer close(t.orphans.done)
	defer Recover(t.opt.Crashed)
	for {
		for t.reapOrphan() {
		}
		select {
		case <-t.orphans.wake:
		case <-t.orphans.quit:
			return
		}
	}
}

// stop ends the sweep and waits for its end.
func (o *orphans) stop() {
	if o.done != nil {
		signal.Stop(o.wake)
		close(o.quit)
		<-o.done
	}
}

// reapOrphan reaps one orphan, if one has ended. The kernel names the same
// zombie until it is reaped, so an own one ends the sweep for now.
func (t *Table) reapOrphan() bool {
	o := &t.orphans
	pid := endedChild(unix.P_ALL, 0, unix.WNOWAIT)
	if pid == 0 || o.owned(pid) {
		return false
	}
	t.forks.Lock() // whoever is being forked gets an owner first
	defer t.forks.Unlock()
	if o.owned(pid) {
		return false
	}
	if endedChild(unix.P_PID, pid, 0) == pid {
		o.reaped.Add(1)
	}
	return true
}

// endedChild is waitid(2) for a child that has ended; 0 is none.
func endedChild(idType, id, flags int) int {
	var info childInfo
	_, err := ignoringEINTR(func() (int, error) {
		return 0, unix.Waitid(idType, id, (*unix.Siginfo)(unsafe.Pointer(&info)), unix.WEXITED|unix.WNOHANG|flags, nil)
	})
	if err != nil {
		return 0
	}
	return int(info.child.pid)
}
