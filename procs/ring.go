package procs

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// Ring keeps the newest bytes of one stream in segment files, addressed by
// their offset since the stream's start.
//
// Segments are only ever appended to, each a quarter of the ring, named by
// their first offset; the size of the last one is the end of the stream. So
// the files alone say everything, and SIGKILL at any moment loses nothing.
// The oldest segment is unlinked once the window no longer touches it and the
// digest has read it, hence up to five lie on disk, and sometimes what is late
// to be hashed (see maxLate). A stream without output has no file. Nothing is
// synced: a ring need not survive the kernel.
//
// One writer, the pump, under its process.mu; any number of readers, who never
// hold it up: files are read without the lock.
type Ring struct {
	prefix  string // path of a segment without its first offset
	bytes   int64  // the window
	segment int64  // size of a segment

	mu      sync.Mutex
	segs    []int64 // first offsets of the segments on disk, ascending
	end     int64
	floor   int64         // nothing below is held: bytes were lost to a full disk
	changed chan struct{} // closed at the next byte or at the end; nil: nobody waits
	rouse   func()        // set while the pump rests: ends the rest
	ended   bool
	gone    bool // forgotten: bytes are counted and dropped

	digest  *digest       // nil: bytes are lost, or came too fast
	late    int64         // this ring's part of allLate
	allLate *atomic.Int64 // the digester's
	filled  func()        // tells the digester that there is something for it

	fd   int   // the last segment, open for writing; -1: none. The pump's own
	last int64 // its first offset; likewise
}

func newRing(dir string, s Stream, bytes int64) *Ring {
	return &Ring{
		prefix:  filepath.Join(dir, s.String()) + ".",
		bytes:   bytes,
		segment: max(1, (bytes+3)/4),
		fd:      -1,
	}
}

// End is the number of bytes that the stream had so far.
func (r *Ring) End() int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.end
}

// First is the offset of the oldest byte still held.
func (r *Ring) First() int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.first()
}

func (r *Ring) first() int64 { return max(0, r.floor, r.end-r.bytes) }

// Ended says that the stream was read to its end: End will not grow any more.
func (r *Ring) Ended() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.ended
}

// Changed returns a channel that is closed at the next byte or at the end of
// the stream; at once when it has ended. Take it before looking at End.
func (r *Ring) Changed() <-chan struct{} {
	r.mu.Lock()
	if r.ended {
		r.mu.Unlock()
		return ended
	}
	if r.changed == nil {
		r.changed = make(chan struct{})
	}
	changed, rouse := r.changed, r.rouse
	r.rouse = nil
	r.mu.Unlock()
	if rouse != nil {
		rouse()
	}
	return changed
}

// ended is what Changed returns of a stream that cannot change any more.
var ended = func() chan struct{} {
	c := make(chan struct{})
	close(c)
	return c
}()

// wake tells the waiting readers. It is called with mu held.
func (r *Ring) wake() {
	if r.changed != nil {
		close(r.changed)
		r.changed = nil
	}
}

// ReadAt copies bytes from offset off on into dst. It reads fewer than
// len(dst) only at the end of the stream or when the window moved on
// meanwhile. Behind the window it reads from first, the oldest byte held, and
// first-off bytes were dropped; past the end n is 0. An error means the files.
func (r *Ring) ReadAt(dst []byte, off int64) (n int, first int64, err error) {
	for {
		r.mu.Lock()
		first = r.first()
		at, end := max(off, first), r.end
		r.mu.Unlock()
		if at >= end {
			return 0, first, nil
		}
		n, err = r.readRange(dst[:min(int64(len(dst)), end-at)], at)
		if n > 0 || err != nil || len(dst) == 0 {
			return n, first, err
		}
	}
}

// readRange reads until dst is full or a segment is no longer held.
func (r *Ring) readRange(dst []byte, at int64) (n int, err error) {
	for n < len(dst) {
		m, err := r.readSegment(dst[n:], at+int64(n))
		if m == 0 || err != nil {
			return n, err
		}
		n += m
	}
	return n, nil
}

// readSegment reads from the one segment that holds offset at; 0 bytes mean
// that it is not held any more.
func (r *Ring) readSegment(dst []byte, at int64) (int, error) {
	fd, first, until, err := r.openSegment(at)
	if fd < 0 || err != nil {
		return 0, err
	}
	defer unix.Close(fd)
	dst = dst[:min(int64(len(dst)), until-at)]
	for n := 0; ; {
		m, err := ignoringEINTR(func() (int, error) { return unix.Pread(fd, dst[n:], at-first+int64(n)) })
		n += max(m, 0)
		switch {
		case err != nil:
			return n, fmt.Errorf("read %s: %w", r.path(first), err)
		case n == len(dst):
			return n, nil
		case m == 0:
			return n, fmt.Errorf("read %s: shorter than it was", r.path(first))
		}
	}
}

// openSegment opens the segment that holds offset at for reading, and tells
// its range. The descriptor is -1 when at is not held.
func (r *Ring) openSegment(at int64) (fd int, first, until int64, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	i, exact := slices.BinarySearch(r.segs, at)
	if !exact {
		i--
	}
	if i < 0 || at >= r.end {
		return -1, 0, 0, nil
	}
	first, until = r.segs[i], r.end
	if i+1 < len(r.segs) {
		until = r.segs[i+1]
	}
	fd, err = unix.Open(r.path(first), unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err == unix.ENOENT { // removed by somebody: its bytes are dropped, what follows is not
		r.floor = until
		return -1, 0, 0, nil
	}
	if err != nil {
		return -1, 0, 0, fmt.Errorf("open %s: %w", r.path(first), err)
	}
	return fd, first, until, nil
}

// tail returns the last n bytes held, as far as they can be read.
func (r *Ring) tail(n int) []byte {
	end := r.End()
	first := max(r.First(), end-int64(n))
	if end == first {
		return nil
	}
	buf := make([]byte, end-first)
	m, _, _ := r.ReadAt(buf, first)
	return buf[:m]
}

func (r *Ring) path(first int64) string { return fmt.Sprintf("%s%016x", r.prefix, first) }

// room returns the descriptor to write the next bytes to, the position in its
// file and how many bytes fit there. It begins a segment when the last is full.
func (r *Ring) room() (fd int, pos, n int64, err error) {
	if r.fd >= 0 {
		pos = r.end - r.last
		if pos < r.segment {
			return r.fd, pos, r.segment - pos, nil
		}
		r.closeSegment()
	}
	if err := r.beginSegment(); err != nil {
		return -1, 0, 0, err
	}
	return r.fd, 0, r.segment, nil
}

func (r *Ring) beginSegment() error {
	path := r.path(r.end)
	const flags = unix.O_RDWR | unix.O_CREAT | unix.O_TRUNC | unix.O_CLOEXEC
	fd, err := unix.Open(path, flags, 0o600)
	if errors.Is(err, fs.ErrNotExist) {
		if err = os.MkdirAll(filepath.Dir(path), 0o700); err == nil {
			fd, err = unix.Open(path, flags, 0o600)
		}
	}
	if err != nil {
		return fmt.Errorf("create %s: %w", path, err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.fd, r.last = fd, r.end
	if n := len(r.segs); n == 0 || r.segs[n-1] != r.end { // else skip has left it
		r.segs = append(r.segs, r.end)
	}
	return nil
}

// wrote says that n bytes were appended where room said.
func (r *Ring) wrote(n int64) {
	r.mu.Lock()
	r.end += n
	r.evict()
	r.wake()
	worthwhile := r.digest != nil && r.end-r.last >= r.segment && r.end-r.digest.at >= r.bytes/2
	r.mu.Unlock()
	if worthwhile {
		r.filled()
	}
}

// evict unlinks the segments that nobody needs any more. Called with mu held.
func (r *Ring) evict() {
	for oldest := r.oldest(); len(r.segs) > 1 && r.segs[1] <= oldest; {
		r.unlinkOldest()
	}
}

// skip says that n bytes of the stream could not be kept. All before them is
// dropped too: what a ring holds has no hole. The last segment stays, empty,
// so that the end is still known from the files.
func (r *Ring) skip(n int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.closeSegment()
	r.giveUpDigest()
	r.end += n
	r.floor = r.end
	for len(r.segs) > 1 {
		r.unlinkOldest()
	}
	if len(r.segs) == 1 {
		r.emptyLast()
	}
	r.wake()
}

// skipTo says that the stream has an end that its files do not tell.
func (r *Ring) skipTo(end int64) {
	if missing := end - r.End(); missing > 0 {
		r.skip(missing)
	}
}

// emptyLast makes the only segment begin at the end of the stream. Called
// with mu held.
func (r *Ring) emptyLast() {
	path := r.path(r.end)
	if err := unix.Rename(r.path(r.segs[0]), path); err != nil {
		r.unlinkOldest()
		return
	}
	_ = unix.Truncate(path, 0)
	r.segs[0] = r.end
}

func (r *Ring) unlinkOldest() {
	_ = unix.Unlink(r.path(r.segs[0]))
	r.segs = slices.Delete(r.segs, 0, 1)
}

func (r *Ring) closeSegment() {
	if r.fd >= 0 {
		unix.Close(r.fd)
		r.fd = -1
	}
}

// finish says that the stream has ended.
func (r *Ring) finish() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.closeSegment()
	r.ended, r.rouse = true, nil
	r.wake()
}

// rest registers what ends the rest of the pump, unless a reader waits.
func (r *Ring) rest(rouse func()) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.changed != nil {
		return false
	}
	r.rouse = rouse
	return true
}

// discard deletes what is held; what still comes is counted and dropped.
func (r *Ring) discard() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.closeSegment()
	r.giveUpDigest()
	for len(r.segs) > 0 {
		r.unlinkOldest()
	}
	r.floor, r.gone = r.end, true
	r.wake()
}

// load finds the segments that an earlier agent left on disk.
func (r *Ring) load() error {
	firsts, err := r.firstsOnDisk()
	if err != nil || len(firsts) == 0 {
		return err
	}
	last := firsts[len(firsts)-1]
	var st unix.Stat_t
	if err := unix.Stat(r.path(last), &st); err != nil {
		return fmt.Errorf("stat %s: %w", r.path(last), err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.segs, r.end, r.floor = firsts, last+st.Size, firsts[0]
	r.loadDigest()
	return nil
}

func (r *Ring) firstsOnDisk() ([]int64, error) {
	dir, name := filepath.Split(r.prefix)
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	var firsts []int64
	for _, e := range entries {
		hex, ok := strings.CutPrefix(e.Name(), name)
		if first, err := strconv.ParseInt(hex, 16, 64); ok && err == nil && len(hex) == 16 {
			firsts = append(firsts, first)
		}
	}
	slices.Sort(firsts)
	return firsts, nil
}

// reopen goes on writing where the last segment on disk ends.
func (r *Ring) reopen() error {
	if len(r.segs) == 0 {
		return nil
	}
	r.last = r.segs[len(r.segs)-1]
	path := r.path(r.last)
	fd, err := unix.Open(path, unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("open %s: %w", path, err)
	}
	r.fd = fd
	return nil
}
