package procs

import (
	"errors"
	"fmt"

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
	Running    bool   // not reaped
	Forgotten  bool   // its record was collected: what still comes is dropped
	ProvenAt   uint64 // when the group was last known to be its own, in ticks
	Ending     bool   // both streams have ended, their digests are not complete
	MidLine    bool   // of a terminal's input: the last byte was no line end
	PidFD      int
	Stdin      int
	Output     [2]int
	End        [2]int64 // of the streams: the files do not tell it where bytes were lost to a full disk
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
	t.reactor.stop()
	t.digester.stop()
}

// Resume undoes Park.
func (t *Table) Resume() {
	t.digester.start()
	t.reactor.start()
}

// HoldStdin answers the writes to a stdin that wait with ErrParked and what
// they have written, and so every later one that would have to wait, until
// ReleaseStdin.
func (t *Table) HoldStdin() {
	t.held.Store(true)
	for _, p := range t.holders() {
		p.mu.Lock()
		for in := p.stdin; in != nil && len(in.queue) > 0; {
			in.finish(ErrParked)
		}
		p.mu.Unlock()
	}
}

// ReleaseStdin undoes HoldStdin.
func (t *Table) ReleaseStdin() { t.held.Store(false) }

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
		Running: p.running, Forgotten: p.forgotten, ProvenAt: p.provenAt,
		Ending: p.ending && !p.forgotten,
		PidFD:  p.pidfd, Stdin: -1, Output: [2]int{-1, -1},
		End: [2]int64{p.rings[Stdout].End(), p.rings[Stderr].End()},
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
// handed over. The Table must be parked: nothing is read or reaped until Resume,
// so that all of it can still be handed back. It is our child still: its exit is
// observed as ever, also one that came in between. Rings go on at the next byte.
func (t *Table) Inherit(c Carried) error {
	p := t.newProcess(c.Handle)
	p.pty, p.pid, p.ticks = c.PTY, c.PID, c.StartTicks
	p.running, p.pidfd, p.provenAt = c.Running, c.PidFD, c.ProvenAt
	p.forgotten = c.Forgotten
	if p.running {
		t.orphans.adopt(p.pid)
	}
	if p.forgotten {
		for _, r := range p.rings {
			r.discard()
		}
	} else {
		t.mu.Lock()
		t.procs[c.Handle] = p
		t.mu.Unlock()
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, which := range []Stream{Stdout, Stderr} {
		if err := p.inheritStream(which, c); err != nil {
			return fmt.Errorf("process %s: %w", c.Handle, err)
		}
	}
	if c.Stdin >= 0 {
		p.stdin = p.newStdin(c.Stdin)
		p.stdin.midLine = c.MidLine
	}
	if c.Ending {
		p.closeIfEnded()
	}
	if err := p.watchInherited(); err != nil {
		return fmt.Errorf("process %s: %w", c.Handle, err)
	}
	return nil
}

// inheritStream makes a stream that is open, and finishes one that is not. A
// ring that cannot be read is no reason to lose it: whoever handed it over may
// be able to. Called with mu held.
func (p *process) inheritStream(which Stream, c Carried) error {
	ring := p.rings[which]
	if c.End[which] > 0 && !c.Forgotten { // else it has no files
		if err := ring.load(); err != nil {
			return err
		}
		ring.skipTo(c.End[which])
	}
	if c.Output[which] < 0 {
		ring.finish()
		return nil
	}
	if err := ring.reopen(); err != nil {
		return err
	}
	p.streams[which] = p.newStream(which, c.Output[which])
	return nil
}

// watchInherited is watch, but closes nothing when it fails: what cannot be
// watched must be handed back. Called with mu held.
func (p *process) watchInherited() error {
	for _, s := range p.streams {
		if s == nil {
			continue
		}
		if err := p.t.reactor.add(&s.source, unix.EPOLLIN); err != nil {
			return err
		}
	}
	if !p.running {
		return nil
	}
	p.exit = source{fd: p.pidfd, p: p, slot: -1, serve: p.exitSeen}
	return p.t.reactor.add(&p.exit, unix.EPOLLIN)
}
