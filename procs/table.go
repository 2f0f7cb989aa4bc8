package procs

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
)

// Table holds the processes by handle.
type Table struct {
	opt      Options
	sys      *system
	reactor  *reactor
	digester digester
	orphans  orphans

	// forks is read-locked from each fork until its child is registered. Who
	// reaps children that nobody registered takes the write side first.
	forks sync.RWMutex

	held atomic.Bool // see HoldStdin

	mu       sync.Mutex
	procs    map[string]*process
	waiting  []start // starts that no spawner has taken yet
	spawners int
	closed   bool
	spawning sync.WaitGroup
}

type start struct {
	p    *process
	spec Spec
}

// New makes an empty Table and starts its reactor and its digester. Every descriptor of this
// process but 0, 1 and 2 becomes close-on-exec. The agent's own oom_score_adj
// must be set before. Rings of an earlier agent
// in o.Dir stay until Keep is called.
func New(o Options) (*Table, error) {
	o = o.withDefaults()
	if err := os.MkdirAll(o.Dir, 0o700); err != nil {
		return nil, fmt.Errorf("rings: %w", err)
	}
	if err := sealDescriptors(); err != nil {
		return nil, err
	}
	r, err := newReactor()
	if err != nil {
		return nil, err
	}
	t := &Table{opt: o, sys: probeSystem(), reactor: r, procs: make(map[string]*process)}
	r.crashed, t.digester.crashed = o.Crashed, o.Crashed
	t.orphans.init()
	r.start()
	t.digester.start()
	return t, nil
}

// Close waits for the spawns in flight, stops reactor and digester and closes all
// descriptors. Processes live on, with their stdin at its end and without a
// terminal; rings stay on disk. Starts still queued fail with ErrClosed. No
// other method may be called afterwards.
func (t *Table) Close() error {
	t.mu.Lock()
	t.closed = true
	t.mu.Unlock()
	t.spawning.Wait()
	t.orphans.stop()
	t.reactor.stop()
	t.digester.stop()
	for _, p := range t.reactor.owners() { // forgotten ones too
		p.release()
	}
	for _, p := range t.procs { // what is left are pidfds of groups
		p.release()
	}
	return t.reactor.close()
}

// Start spawns a process under a new handle. It never waits: the outcome is
// Spawned or SpawnFailed. Output works from now on.
func (t *Table) Start(handle string, s Spec) {
	p := t.newProcess(handle)
	p.pty = s.PTY
	t.mu.Lock()
	defer t.mu.Unlock()
	t.procs[handle] = p
	t.waiting = append(t.waiting, start{p, s})
	if t.spawners < t.opt.Spawns {
		t.spawners++
		t.spawning.Add(1)
		go t.spawnWaiting()
	}
}

// spawnWaiting is a spawner: it ends when no start waits.
func (t *Table) spawnWaiting() {
	defer t.spawning.Done()
	defer Recover(t.opt.Crashed)
	for {
		s, closed, ok := t.nextStart()
		switch {
		case !ok:
			return
		case closed:
			t.failed(s.p, ErrClosed)
		default:
			t.spawn(s.p, s.spec)
		}
	}
}

func (t *Table) nextStart() (s start, closed, ok bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.waiting) == 0 {
		t.waiting = nil
		t.spawners--
		return start{}, false, false
	}
	s = t.waiting[0]
	t.waiting[0] = start{}
	t.waiting = t.waiting[1:]
	return s, t.closed, true
}

// failed forgets a process that never was.
func (t *Table) failed(p *process, err error) {
	t.mu.Lock()
	delete(t.procs, p.handle)
	t.mu.Unlock()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.unannounce()
	for _, r := range p.rings {
		r.finish()
	}
	p.observe(SpawnFailed{Handle: p.handle, Err: err, At: now()})
}

func (t *Table) lookup(handle string) *process {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.procs[handle]
}

// Output returns the ring of a stream, nil when the handle is unknown. It
// stays readable after the end of the stream, until Forget.
func (t *Table) Output(handle string, s Stream) *Ring {
	if p := t.lookup(handle); p != nil {
		return p.rings[s]
	}
	return nil
}

// Forget deletes the rings of a process and its handle; nothing is observed
// of it any more. Pipes that are still open are read to their end, and what
// comes is dropped.
func (t *Table) Forget(handle string) {
	t.mu.Lock()
	p := t.procs[handle]
	delete(t.procs, handle)
	t.mu.Unlock()
	if p != nil {
		p.forget()
	}
}

// Reopen makes Output work for a process that ended under an earlier agent,
// with what is on disk of its rings. The error says that it cannot be read; it is
// lost then.
func (t *Table) Reopen(handle string) error {
	p := t.newProcess(handle)
	err := p.loadRings()
	for _, r := range p.rings {
		r.finish()
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.procs[handle] = p
	return err
}

// Keep removes the rings on disk of all handles but these. Of a process that
// still runs under another it warns: its records were not durable yet.
func (t *Table) Keep(handles []string) error {
	entries, err := os.ReadDir(t.opt.Dir)
	if err != nil {
		return fmt.Errorf("rings: %w", err)
	}
	kept := slices.Clone(handles)
	slices.Sort(kept)
	for _, e := range entries {
		handle, born := strings.CutSuffix(e.Name(), bornSuffix)
		if _, ok := slices.BinarySearch(kept, handle); ok || !e.IsDir() && !born {
			continue
		}
		if born {
			t.warnOfStray(handle)
		}
		if err := os.RemoveAll(filepath.Join(t.opt.Dir, e.Name())); err != nil {
			return fmt.Errorf("rings: %w", err)
		}
	}
	return nil
}

// Sweep reaps every exit that already happened. Their observations were
// delivered when it returns.
func (t *Table) Sweep() {
	t.mu.Lock()
	all := make([]*process, 0, len(t.procs))
	for _, p := range t.procs {
		all = append(all, p)
	}
	t.mu.Unlock()
	for _, p := range all {
		p.mu.Lock()
		p.reap()
		p.mu.Unlock()
	}
}
