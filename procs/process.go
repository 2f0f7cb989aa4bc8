package procs

import (
	"os"
	"path/filepath"
	"sync"

	"golang.org/x/sys/unix"
)

// process is one handle: waiting for its spawn, live, or ended.
type process struct {
	t      *Table
	handle string
	dir    string   // of the rings
	rings  [2]*Ring // never nil, never replaced

	mu        sync.Mutex
	pty       bool
	running   bool // spawned and not reaped
	forgotten bool // nobody is told any more
	pid       int
	ticks     uint64
	pidfd     int // -1: none. After the exit it stays while the group has members
	exit      source
	streams   [2]*stream // nil: ended, or never was
	stdin     *stdin     // nil: none
	provenAt  uint64     // see members
	ending    bool       // both streams have ended, and nobody was told yet

	queued bool // the digester's, under its mu
}

func (t *Table) newProcess(handle string) *process {
	p := &process{t: t, handle: handle, dir: filepath.Join(t.opt.Dir, handle), pidfd: -1}
	for _, s := range []Stream{Stdout, Stderr} {
		r := newRing(p.dir, s, t.opt.RingBytes)
		r.digest = newDigest(r.prefix + "sha256")
		r.allLate = &t.digester.late
		r.filled = func() { t.digester.add(p) }
		p.rings[s] = r
	}
	return p
}

// observe passes on what happened. Called with mu held.
func (p *process) observe(o Observation) {
	if !p.forgotten && p.t.opt.Observe != nil {
		p.t.opt.Observe(o)
	}
}

// watch hands the pidfd and the streams to the reactor. Called with mu held.
func (p *process) watch() {
	r := p.t.reactor
	for _, s := range p.streams {
		if s == nil {
			continue
		}
		if err := r.add(&s.source, unix.EPOLLIN); err != nil {
			p.t.opt.Log.Error("a stream cannot be read", "handle", p.handle, "err", err)
			s.end()
		}
	}
	if !p.running {
		return
	}
	p.exit = source{fd: p.pidfd, p: p, slot: -1, serve: p.exitSeen}
	if err := r.add(&p.exit, unix.EPOLLIN); err != nil {
		p.t.opt.Log.Error("an exit cannot be seen", "handle", p.handle, "err", err)
	}
}

// closeIfEnded has it told that the last stream has ended, at once if nothing
// is left to be hashed. Called with mu held.
func (p *process) closeIfEnded() {
	if p.streams[Stdout] != nil || p.streams[Stderr] != nil {
		return
	}
	p.releaseGroup()
	p.ending = true
	if !p.tellIfHashed() {
		p.t.digester.add(p)
	}
}

// tellIfHashed tells, once, that both streams have ended, when their digests
// are complete. Called with mu held.
func (p *process) tellIfHashed() bool {
	stdout, stderr := p.rings[Stdout], p.rings[Stderr]
	if !p.ending || !stdout.hashed() || !stderr.hashed() {
		return false
	}
	p.ending = false
	n := p.t.opt.TailBytes
	p.observe(Closed{
		Handle:       p.handle,
		StdoutLen:    stdout.End(),
		StderrLen:    stderr.End(),
		StdoutTail:   stdout.tail(n),
		StderrTail:   stderr.tail(n),
		StdoutSHA256: stdout.sha256(),
		StderrSHA256: stderr.sha256(),
		At:           now(),
	})
	return true
}

// forget drops everything that was kept for readers.
func (p *process) forget() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.forgotten = true
	p.unannounce()
	if p.rings[Stdout].End()+p.rings[Stderr].End() > 0 {
		defer os.Remove(p.dir)
	}
	for _, r := range p.rings {
		r.discard()
	}
	if !p.running {
		p.closePidfd()
	}
}

// release closes all descriptors and leaves everything else as it is.
func (p *process) release() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.stdin != nil {
		p.stdin.end()
	}
	for i, s := range p.streams {
		if s != nil {
			p.t.reactor.drop(&s.source)
			unix.Close(s.fd)
			s.ring.closeSegment()
			p.streams[i] = nil
		}
	}
	if p.running {
		p.t.reactor.drop(&p.exit)
	}
	p.closePidfd()
}

func (p *process) closePidfd() {
	closeAll(p.pidfd)
	p.pidfd = -1
}
