package procs

import (
	"errors"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// Adoptee is a process that an earlier agent has spawned, as it was observed
// then, on this boot of the kernel.
type Adoptee struct {
	Handle               string
	PID                  int
	StartTicks           uint64
	StdoutIno, StderrIno uint64
	PTY                  bool
}

// Adopted is what is left of it.
type Adopted struct {
	// Found: it lives; Exited will be observed.
	Found bool
	// Status is how it ended, when it is not found, as far as that can be known.
	Status Status
	// Pipes says of each stream that it is read on. The others have ended.
	Pipes [2]bool
}

// Adopt takes over a process after the agent that spawned it has died. A
// process with the same pid but another start is never taken.
//
// Output goes on at the next byte. Pipes that a descendant holds are regained
// even if the process itself has ended. Stdin is at its end, a terminal is
// gone. Closed is observed once, before Adopt returns if no pipe was regained;
// a stream whose pipe was not has no digest. Exited is observed only if it is found.
func (t *Table) Adopt(a Adoptee) Adopted {
	p := t.newProcess(a.Handle)
	p.pty = a.PTY
	p.pid, p.ticks = a.PID, a.StartTicks
	if err := p.loadRings(); err != nil {
		t.opt.Log.Error("a ring cannot be read", "handle", p.handle, "err", err)
	}
	t.mu.Lock()
	t.procs[a.Handle] = p
	t.mu.Unlock()

	p.mu.Lock()
	defer p.mu.Unlock()
	var got Adopted
	got.Found, got.Status = p.find()
	if !a.PTY {
		p.regain([2]uint64{a.StdoutIno, a.StderrIno})
	}
	for which, s := range p.streams {
		got.Pipes[which] = s != nil
		if s == nil {
			p.rings[which].finish()
			p.rings[which].noDigest() // what was in the pipe, or terminal, is lost
		}
	}
	p.closeIfEnded()
	p.watch()
	return got
}

// find opens the pidfd of the process if it lives, and only its own.
func (p *process) find() (alive bool, s Status) {
	pidfd, err := unix.PidfdOpen(p.pid, 0)
	if err != nil {
		return false, Status{}
	}
	// Read behind the open: the pidfd and the ticks are of the same process,
	// or it is gone.
	st, err := readStat(p.pid)
	if err != nil || st.ticks != p.ticks {
		unix.Close(pidfd)
		return false, Status{}
	}
	p.pidfd = pidfd
	if status, _, exited := p.wait(); exited {
		p.provenAt = ticksNow()
		p.releaseGroup()
		return false, status
	}
	p.running = true
	p.t.orphans.adopt(p.pid)
	return true, Status{}
}

// loadRings finds what is on disk of the rings.
func (p *process) loadRings() error {
	return errors.Join(p.rings[Stdout].load(), p.rings[Stderr].load())
}

// regain opens the output pipes again, wherever somebody has them open.
func (p *process) regain(inos [2]uint64) {
	for which, ino := range inos {
		fd := reopenPipe(p.pid, ino)
		if fd < 0 {
			continue
		}
		if err := p.rings[which].reopen(); err != nil {
			p.t.opt.Log.Error("a ring cannot be continued", "handle", p.handle, "err", err)
		}
		p.streams[which] = p.newStream(Stream(which), fd)
	}
}

// reopenPipe looks for the pipe at the leader, then at everybody: descendants
// can have left its session. The inode of a pipe is that pipe's alone.
func reopenPipe(leader int, ino uint64) int {
	if ino == 0 {
		return -1
	}
	if fd := reopenPipeOf(leader, ino); fd >= 0 {
		return fd
	}
	for _, pid := range allPids() {
		if fd := reopenPipeOf(pid, ino); fd >= 0 {
			return fd
		}
	}
	return -1
}

func reopenPipeOf(pid int, ino uint64) int {
	dir := "/proc/" + strconv.Itoa(pid) + "/fd"
	d, err := os.Open(dir)
	if err != nil {
		return -1
	}
	defer d.Close()
	names, _ := d.Readdirnames(-1)
	want := "pipe:[" + strconv.FormatUint(ino, 10) + "]"
	for _, name := range names {
		if link, err := os.Readlink(dir + "/" + name); err != nil || link != want {
			continue
		}
		fd, err := unix.Open(dir+"/"+name, unix.O_RDONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
		if err != nil {
			continue
		}
		var st unix.Stat_t
		if unix.Fstat(fd, &st) == nil && st.Ino == ino { // still what the link said
			return fd
		}
		unix.Close(fd)
	}
	return -1
}
