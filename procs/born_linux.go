package procs

import (
	"fmt"
	"os"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
)

// Until somebody has recorded what Spawned told, a process is known by its
// handle alone. So that it is found even if the agent dies in between, its pipes
// are named beside the rings before the fork, in a symbolic link: one call
// writes it, whole or not at all. A process with a terminal needs none: it gets
// SIGHUP when the agent, and so the terminal, is gone.

const bornSuffix = ".born"

// bornFormat is a link's target: the kernel's boot id and the pipes' inodes,
// which mean something on that boot only.
const bornFormat = "%s %d %d"

var bootID = sync.OnceValue(func() string {
	id, _ := os.ReadFile("/proc/sys/kernel/random/boot_id")
	return strings.TrimSpace(string(id))
})

// announce names the pipes of a process that is about to be forked.
func (p *process) announce(ino [2]uint64) {
	if ino == [2]uint64{} {
		return
	}
	err := os.Symlink(fmt.Sprintf(bornFormat, bootID(), ino[Stdout], ino[Stderr]), p.dir+bornSuffix)
	if err != nil {
		p.t.opt.Log.Warn("after a crash right now a process would not be found", "handle", p.handle, "err", err)
	}
}

// unannounce takes that back.
func (p *process) unannounce() { _ = os.Remove(p.dir + bornSuffix) } // there is none for a terminal

// Born finds the process that an earlier agent has started under a handle, if
// it lives: for one whose Spawned nobody recorded. It leads its own session, and
// writes to the pipes that were made for it; so can a descendant, but that is
// younger, and stands for it only if it has ended.
func (t *Table) Born(handle string) (a Adoptee, found bool) {
	a.Handle = handle
	var boot string
	target, err := os.Readlink(t.newProcess(handle).dir + bornSuffix)
	if err != nil {
		return a, false
	}
	if _, err := fmt.Sscanf(target, bornFormat, &boot, &a.StdoutIno, &a.StderrIno); err != nil || boot != bootID() {
		return a, false
	}
	for _, pid := range allPids() {
		st, err := readStat(pid)
		older := !found || st.ticks < a.StartTicks
		if err == nil && older && st.session == pid && writesTo(pid, a.StdoutIno, a.StderrIno) {
			a.PID, a.StartTicks, found = pid, st.ticks, true
		}
	}
	return a, found
}

// warnOfStray names a process that nobody will find again.
func (t *Table) warnOfStray(handle string) {
	if stray, found := t.Born(handle); found {
		t.opt.Log.Warn("a process runs whose records are lost", "handle", handle, "pid", stray.PID)
	}
}

// writesTo tells whether these pipes are a process's standard output and error,
// or were: a program can close one.
func writesTo(pid int, inos ...uint64) bool {
	for which, ino := range inos {
		var st unix.Stat_t
		if unix.Stat(fmt.Sprintf("/proc/%d/fd/%d", pid, which+1), &st) == nil && st.Ino == ino && st.Mode&unix.S_IFMT == unix.S_IFIFO {
			return true
		}
	}
	return false
}
