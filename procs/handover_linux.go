package procs

import (
	"errors"

	"golang.org/x/sys/unix"
)

// ErrParked answers a stdin write that a handover cut short.
var ErrParked = errors.New("the agent hands over")

// Carried is a process as one image of the agent hands it to the next: its
// identity, and the numbers of the descriptors that stay open over the execve;
// -1 is none.
type Carried struct {
	Handle     string
	PID        int
	StartTicks uint64
	PTY        bool
	Running    bool // not reaped
	Forgotten  bool // its record was collected: what still comes is dropped
	Ending     bool // both streams have ended, their digests are not complete
	MidLine    bool // of a terminal's input: the last byte was no line end
	PidFD      int
	Stdin      int
	Output     [2]int
}

// FDs lists the descriptors.
func (c Carried) FDs() []int {
	var fds []int
	for _, fd := range []int{c.PidFD, c.Stdin, c.Output[Stdout], c.Output[Stderr]} {
		if fd >= 0 {
			fds = append(fds, fd)
		}
	}
	return fds
}

// Park waits for the spawns in flight and stops the reactor. Nothing is read,
// written or reaped from then on, until Resume. No start may come meanwhile,
// and no write to a stdin.
func (t *Table) Park() {
	t.spawning.Wait()
	t.CutStdin()
	t.reactor.stop()
	t.digester.stop()
}

// CutStdin answers the stdin writes that wait with ErrParked, and what they
// have written.
func (t *Table) CutStdin() {
	for _, p := range t.holders() {
		p.mu.Lock()
		for in := p.stdin; in != nil && len(in.queue) > 0; {
			in.finish(ErrParked)
		}
		p.mu.Unlock()
	}
}

// Carried lists every process that holds a descriptor, or of which something
// is still to be told. It is exact while the Table is parked.
func (t *Table) Carried() []Carried {
	var all []Carried
	for _, p := range t.holders() {
		p.mu.Lock()
		if c := p.carry(); len(c.FDs()) > 0 || c.Ending {
			all = append(all, c)
		}
		p.mu.Unlock()
	}
	return all
}

// Resume undoes Park.
func (t *Table) Resume() {
	t.digester.start()
	t.reactor.start()
}

// holders are the processes that may hold descriptors, forgotten ones too.
func (t *Table) holders() []*process {
	seen := map[*process]bool{}
	var all []*process
	add := func(p *process) {
		if !seen[p] {
			seen[p] = true
			all = append(all, p)
		}
	}
	for _, p := range t.reactor.owners() {
		add(p)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, p := range t.procs {
		add(p)
	}
	return all
}

// carry says what the next image needs. Called with mu held.
func (p *process) carry() Carried {
	c := Carried{
		Handle: p.handle, PID: p.pid, StartTicks: p.ticks, PTY: p.pty,
		Running: p.running, Forgotten: p.forgotten, Ending: p.ending && !p.forgotten,
		PidFD: p.pidfd, Stdin: -1, Output: [2]int{-1, -1},
	}
	if in := p.stdin; in != nil && !in.closed {
		c.Stdin, c.MidLine = in.fd, in.midLine
	}
	for i, s := range p.streams {
		if s != nil {
			c.Output[i] = s.fd
		}
	}
	return c
}

// Inherit takes over a process that an earlier image of this very agent has
// handed over. It is our child still: its exit is observed as ever, also one
// that came in between. Rings go on at the next byte.
func (t *Table) Inherit(c Carried) {
	p := t.newProcess(c.Handle)
	p.pty, p.pid, p.ticks = c.PTY, c.PID, c.StartTicks
	p.running, p.pidfd = c.Running, c.PidFD
	if p.running {
		t.orphans.adopt(p.pid)
	}
	if c.Forgotten {
		p.forgotten = true
		for _, r := range p.rings {
			r.discard()
		}
	} else {
		p.loadRings()
		t.mu.Lock()
		t.procs[c.Handle] = p
		t.mu.Unlock()
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.inheritStreams(c)
	if c.Stdin >= 0 {
		p.stdin = p.newStdin(c.Stdin)
		p.stdin.midLine = c.MidLine
	}
	for _, fd := range c.FDs() {
		unix.CloseOnExec(fd)
	}
	if c.Ending {
		p.closeIfEnded()
	}
	p.watch()
}

// inheritStreams makes the streams that are open, and finishes the others.
// Called with mu held.
func (p *process) inheritStreams(c Carried) {
	for which, fd := range c.Output {
		ring := p.rings[which]
		if fd < 0 {
			ring.finish()
			continue
		}
		if !c.Forgotten {
			if err := ring.reopen(); err != nil {
				p.t.opt.Log.Error("a ring cannot be continued", "handle", p.handle, "err", err)
			}
		}
		p.streams[which] = p.newStream(Stream(which), fd)
	}
}
