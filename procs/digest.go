package procs

import (
	"crypto/sha256"
	"encoding"
	"encoding/binary"
	"encoding/hex"
	"hash"
	"os"
	"runtime"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// maxLate bounds what is kept on disk only because it was not hashed yet: the
// bytes behind the windows of all rings of a Table together. A stream that
// would exceed it, because it is written faster than it can be hashed, goes
// without a digest; it never waits for one.
const maxLate = 16 << 20

// digestTurn is what one stream may hash before the others have their turn.
const digestTurn = 256 << 10

// digesterNice makes the digester's thread yield to the pump and to what it
// pumps, without starving (setpriority(2); on Linux a thread has its own).
const digesterNice = 15

// A digest is the SHA-256 of a whole stream in the making. It is read from the
// segments, behind the pump; how far it came is stored beside them before any
// of them goes. So a later agent goes on with it, and a stream has no digest
// only where bytes were lost or were written too fast.
type digest struct {
	path string    // where its state is stored
	sum  hash.Hash // the digester's own
	at   int64     // bytes hashed, under Ring.mu

	mu      sync.Mutex // serves the file
	removed bool       // the file is, for good
}

func newDigest(path string) *digest { return &digest{path: path, sum: sha256.New()} }

// The stored state is at, as 8 bytes, highest first, and what sum marshals to.
const digestHeader = 8

// store puts the state after the first at bytes into the file. One short
// pwrite is there or not after a SIGKILL, never in part.
func (d *digest) store(at int64) {
	state, err := d.sum.(encoding.BinaryAppender).AppendBinary(binary.BigEndian.AppendUint64(nil, uint64(at)))
	d.mu.Lock()
	defer d.mu.Unlock()
	if err != nil || d.removed {
		return
	}
	fd, err := unix.Open(d.path, unix.O_WRONLY|unix.O_CREAT|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return // a later agent finds segments missing, and then there is no digest
	}
	_, _ = ignoringEINTR(func() (int, error) { return unix.Pwrite(fd, state, 0) })
	unix.Close(fd)
}

// load takes the state that an earlier agent has stored; without one the
// digest begins at the beginning.
func (d *digest) load() {
	state, err := os.ReadFile(d.path)
	if err != nil || len(state) < digestHeader {
		return
	}
	sum := sha256.New()
	if sum.(encoding.BinaryUnmarshaler).UnmarshalBinary(state[digestHeader:]) == nil {
		d.sum, d.at = sum, int64(binary.BigEndian.Uint64(state))
	}
}

// remove deletes the file; none appears later.
func (d *digest) remove() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.removed = true
	_ = unix.Unlink(d.path)
}

// hash takes the next piece of what is there to be hashed; more says that it
// was not the last. It is called by the digester alone.
func (r *Ring) hash(buf []byte) (more bool) {
	r.mu.Lock()
	d := r.digest
	if d == nil || d.at == r.hashable() {
		r.mu.Unlock()
		return false
	}
	at, until, ended := d.at, r.hashable(), r.ended
	r.mu.Unlock()
	n, err := r.readRange(buf[:min(int64(len(buf)), until-at)], at)
	d.sum.Write(buf[:n])
	if !ended {
		d.store(at + int64(n))
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if d.at += int64(n); n == 0 || err != nil {
		r.giveUpDigest()
	}
	r.evict()
	return r.digest != nil && r.digest.at < r.hashable()
}

// hashable is the end of what may be hashed now: whole segments, and all when
// the stream has ended. Called with mu held.
func (r *Ring) hashable() int64 {
	last := len(r.segs) - 1
	if r.ended || last < 0 || r.end-r.segs[last] >= r.segment {
		return r.end
	}
	return r.segs[last]
}

// hashed says that nothing is left to be done for the digest of a stream that
// has ended.
func (r *Ring) hashed() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.digest == nil || r.digest.at == r.end
}

// sha256 is the digest of a stream that was hashed to its end, in hex; empty
// if it has none.
func (r *Ring) sha256() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.digest == nil {
		return ""
	}
	return hex.EncodeToString(r.digest.sum.Sum(nil))
}

// noDigest says that bytes of the stream are lost, or may be.
func (r *Ring) noDigest() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.giveUpDigest()
	r.evict()
}

// giveUpDigest is called with mu held.
func (r *Ring) giveUpDigest() {
	if r.digest != nil {
		r.digest.remove()
		r.digest = nil
		r.beLate(0)
	}
}

// loadDigest goes on with the digest of an earlier agent, if all that it has
// not read is there. Called with mu held, after the segments were found.
func (r *Ring) loadDigest() {
	if r.digest == nil {
		return
	}
	r.digest.load()
	if at := r.digest.at; at < r.segs[0] || at > r.end {
		r.giveUpDigest()
	} else {
		r.beLate(max(0, r.first()-at))
	}
}

// oldest is the offset from which on segments must stay: that of the window,
// or what is not hashed yet. Called with mu held.
func (r *Ring) oldest() int64 {
	first := r.first()
	if r.digest == nil {
		return first
	}
	if r.beLate(max(0, first-r.digest.at)) > maxLate {
		r.giveUpDigest()
		return first
	}
	return min(first, r.digest.at)
}

// beLate says how many bytes wait for the digest behind the window, and
// returns how many of all rings do. Called with mu held.
func (r *Ring) beLate(n int64) (all int64) {
	all = r.allLate.Add(n - r.late)
	r.late = n
	return all
}

// digester hashes what the rings hold, in one goroutine for all of them, and
// tells the end of processes whose streams are hashed to theirs.
type digester struct {
	late atomic.Int64 // see maxLate

	mu       sync.Mutex
	wake     sync.Cond
	queue    []*process // in the order of asking; each once, see process.queued
	stopping bool
	done     chan struct{} // closed when the goroutine has ended

	crashed func(reason any, stack []byte) // see Options.Crashed
}

// start runs the digester until stop. It may be started again afterwards.
func (d *digester) start() {
	d.wake.L = &d.mu
	d.stopping = false
	d.done = make(chan struct{})
	go d.run()
}

// stop waits until the goroutine has ended. What is queued stays queued.
func (d *digester) stop() {
	d.mu.Lock()
	d.stopping = true
	d.wake.Signal()
	d.mu.Unlock()
	<-d.done
}

func (d *digester) run() {
	defer close(d.done)
	defer Recover(d.crashed)
	runtime.LockOSThread() // for good: the thread ends with the goroutine
	_ = unix.Setpriority(unix.PRIO_PROCESS, 0, digesterNice)
	buf := make([]byte, digestTurn)
	for p := d.next(); p != nil; p = d.next() {
		if p.hash(buf) {
			d.add(p)
		}
	}
}

// add queues a process that has something to be hashed, or to be told.
func (d *digester) add(p *process) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !p.queued {
		p.queued = true
		d.queue = append(d.queue, p)
		d.wake.Signal()
	}
}

// next waits for a process; nil means stop.
func (d *digester) next() *process {
	d.mu.Lock()
	defer d.mu.Unlock()
	for len(d.queue) == 0 && !d.stopping {
		d.wake.Wait()
	}
	if d.stopping {
		return nil
	}
	p := d.queue[0]
	d.queue[0] = nil
	d.queue = d.queue[1:]
	p.queued = false
	return p
}

// hash is a turn of the digester; more says that it needs another.
func (p *process) hash(buf []byte) (more bool) {
	for _, r := range p.rings {
		more = r.hash(buf) || more
	}
	if !more {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.tellIfHashed()
	}
	return more
}
