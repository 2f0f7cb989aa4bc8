package journal

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"syscall"
	"time"

	"go.etcd.io/bbolt"
)

const (
	maxBatchBytes = 8 << 20                // a batch takes no more payloads past this size
	maxQueued     = 4                      // modes Batch and Off: batches queued before Append waits
	fullInterval  = 100 * time.Millisecond // modes Batch and Off: how often a full disk is tried again
)

// batch is what one commit stores: the payloads of any number of Appends, or a snapshot.
type batch struct {
	payloads [][]byte
	size     int // bytes of payloads
	snapshot *Snapshot
	done     chan struct{} // closed when it is committed or refused; then first and err hold
	first    uint64        // in the modes Batch and Off it holds from the beginning
	err      error
}

// takes says whether an Append of that size may join.
func (b *batch) takes(size int) bool { return b.snapshot == nil && b.size+size <= maxBatchBytes }

// enqueue adds payloads to the last batch of the queue or to a new one. The offset is their place in it.
func (j *Journal) enqueue(payloads [][]byte, size int) (b *batch, offset uint64, err error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if err := j.refusal(); err != nil {
		return nil, 0, err
	}
	if n := len(j.queue); n > 0 && j.queue[n-1].takes(size) {
		b = j.queue[n-1]
	} else {
		b = &batch{first: j.next, done: make(chan struct{})}
		j.queue = append(j.queue, b)
	}
	offset = uint64(len(b.payloads))
	b.payloads = append(b.payloads, payloads...)
	b.size += size
	j.next += uint64(len(payloads))
	j.signal()
	return b, offset, nil
}

// push queues a batch of its own.
func (j *Journal) push(b *batch) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	if err := j.refusal(); err != nil {
		return err
	}
	j.queue = append(j.queue, b)
	j.signal()
	return nil
}

// refusal is why nothing can be queued. The caller holds mu.
func (j *Journal) refusal() error {
	if j.closed {
		return j.closedError()
	}
	return j.Err()
}

func (j *Journal) closedError() error { return fmt.Errorf("%s: %w", j.path, ErrClosed) }

func (j *Journal) signal() {
	select {
	case j.wake <- struct{}{}:
	default: // the committer has not seen the last one yet
	}
}

// appendLater is Append in the modes Batch and Off. What it queues keeps its sequence numbers, so while the disk is full
// nothing more is taken.
func (j *Journal) appendLater(payloads [][]byte, size int) (uint64, error) {
	if j.full.Load() {
		return 0, fmt.Errorf("%s: %w", j.path, ErrFull)
	}
	b, offset, err := j.enqueue(copyAll(payloads, size), size)
	if err != nil {
		return 0, err
	}
	if j.queued() > maxQueued {
		<-b.done
		return b.first + offset, b.err
	}
	return b.first + offset, nil
}

func copyAll(payloads [][]byte, size int) [][]byte {
	arena, copies := make([]byte, 0, size), make([][]byte, len(payloads))
	for i, p := range payloads {
		start := len(arena)
		arena = append(arena, p...)
		copies[i] = arena[start:]
	}
	return copies
}

// run is the committer: the one goroutine that writes. It ends when the journal is closed and the queue is empty.
func (j *Journal) run() {
	defer close(j.stopped)
	for b := j.take(); b != nil; b = j.take() {
		j.commit(b)
		close(b.done)
	}
}

// take waits for the next batch; nil when the journal is closed.
func (j *Journal) take() *batch {
	for {
		j.gather()
		if b, closed := j.pop(); b != nil || closed {
			return b
		}
		<-j.wake
	}
}

func (j *Journal) pop() (b *batch, closed bool) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if len(j.queue) > 0 {
		b, j.queue = j.queue[0], j.queue[1:]
	}
	return b, j.closed
}

// gather gives callers a chance to join the batch. In mode Always no time passes: those whom the last commit released run
// until they have queued their next record, so that the commit serves all of them and not only the first.
func (j *Journal) gather() {
	if j.options.Sync != Always {
		j.pause(time.Until(j.due))
		return
	}
	for before, now := -1, j.waiting(); now > before; before, now = now, j.waiting() {
		runtime.Gosched()
	}
}

// waiting is the number of payloads in the queue.
func (j *Journal) waiting() (n int) {
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, b := range j.queue {
		n += len(b.payloads)
	}
	return n
}

// queued is the number of batches in the queue.
func (j *Journal) queued() int {
	j.mu.Lock()
	defer j.mu.Unlock()
	return len(j.queue)
}

// pause waits, but not past Close.
func (j *Journal) pause(d time.Duration) (closing bool) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return false
	case <-j.closing:
		return true
	}
}

// commit stores a batch, or sets its error. What Append has already accepted is tried again while the disk is full; once
// some of it is lost, nothing that was accepted after it is stored.
func (j *Journal) commit(b *batch) {
	if b.err = j.lost; b.err != nil {
		return
	}
	b.err = j.try(b)
	accepted := j.options.Sync != Always && b.snapshot == nil
	for accepted && errors.Is(b.err, ErrFull) {
		j.full.Store(true)
		j.refuseSnapshots(b.err)
		if j.pause(fullInterval) {
			break
		}
		b.err = j.try(b)
	}
	j.full.Store(false)
	j.due = time.Now().Add(batchInterval)
	if accepted && j.lost == nil {
		j.lost = b.err
	}
}

// refuseSnapshots answers those that would wait behind a full disk: only what Append has accepted must.
func (j *Journal) refuseSnapshots(err error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.queue = slices.DeleteFunc(j.queue, func(b *batch) bool {
		if b.snapshot == nil {
			return false
		}
		b.err = err
		close(b.done)
		return true
	})
}

// try stores a batch in one transaction and publishes the new head once it is durable.
func (j *Journal) try(b *batch) error {
	if err := j.Err(); err != nil {
		return err
	}
	if j.removed() {
		return j.fail(errors.New("the file was deleted"))
	}
	next := j.ledger.Load().clone()
	if j.options.Sync == Always {
		b.first = next.head.Seq + 1 // in the other modes it was assigned when it was queued
	}
	var (
		rejected error
		id       int
	)
	err := j.guard(func() error {
		return j.db.Update(func(tx *bbolt.Tx) error {
			id = tx.ID()
			rejected = j.write(tx, next, b)
			return rejected
		})
	})
	switch {
	case err == nil:
		j.ledger.Store(next)
		if j.options.Committed != nil {
			j.options.Committed(next.head)
		}
		return nil
	case rejected != nil:
		return about(j.path, rejected)
	case isFull(err) && !j.visible(id):
		return fault(ErrFull, j.path, "%w", err)
	}
	return j.fail(err)
}

// removed says whether the file has no name any more: what is written to it then is gone with this process.
func (j *Journal) removed() bool {
	info, err := j.file.Stat()
	return err == nil && info.Sys().(*syscall.Stat_t).Nlink == 0
}

// visible says whether the transaction with this id became the newest one although its commit failed: bbolt writes the meta
// page before the last sync. What is not known counts as visible.
func (j *Journal) visible(id int) bool {
	newest := id
	err := j.view(func(tx *bbolt.Tx) error {
		newest = tx.ID()
		return nil
	})
	return err != nil || newest >= id
}

// fail makes err final. A sync is never tried again: the kernel may have dropped the pages that it could not write, and
// would then report success (fsync(2), and PostgreSQL's experience with it).
func (j *Journal) fail(err error) error {
	if errors.Is(err, ErrDamaged) {
		err = about(j.path, err)
	} else {
		err = fault(ErrFailed, j.path, "%w", err)
	}
	j.final.CompareAndSwap(nil, &err)
	return err
}

// write puts a batch into tx, and what it changes into l.
func (j *Journal) write(tx *bbolt.Tx, l *ledger, b *batch) error {
	if b.snapshot != nil {
		return writeSnapshot(tx, l, b.snapshot, j.options.MaxBytes)
	}
	segments := tx.Bucket(segmentsBucket)
	segments.FillPercent = 1 // keys only grow: a half-full page would stay half full
	c := newChain(l.head)
	values := make([]byte, 0, b.size+len(b.payloads)*sha256.Size)
	for rest := b.payloads; len(rest) > 0; {
		records, s, err := j.openSegment(segments, l, c.Seq+1)
		if err != nil {
			return err
		}
		size := s.bytes
		for len(rest) > 0 && !j.ended(s, c.Seq+1) {
			c.extend(rest[0])
			start := len(values)
			values = append(append(values, c.Hash[:]...), rest[0]...)
			if err := records.Put(key(c.Seq), values[start:]); err != nil {
				return err
			}
			s.bytes += int64(len(rest[0]))
			rest = rest[1:]
		}
		l.bytes += s.bytes - size
		if err := records.SetSequence(uint64(s.bytes)); err != nil {
			return err
		}
	}
	l.head = c.Head
	return nil
}

// openSegment returns the segment for the record seq, the newest one or one after it, with its bucket.
func (j *Journal) openSegment(segments *bbolt.Bucket, l *ledger, seq uint64) (*bbolt.Bucket, *segment, error) {
	var records *bbolt.Bucket
	if n := len(l.segments); n > 0 && !j.ended(&l.segments[n-1], seq) {
		records = segments.Bucket(key(l.segments[n-1].first))
	} else {
		var err error
		if records, err = segments.CreateBucket(key(seq)); err != nil {
			return nil, nil, err
		}
		l.segments = append(l.segments, segment{first: seq})
	}
	records.FillPercent = 1
	return records, &l.segments[len(l.segments)-1], nil
}

// ended says that the record seq belongs into the segment after s.
func (j *Journal) ended(s *segment, seq uint64) bool {
	return seq-s.first >= uint64(j.options.SegmentRecords) || s.bytes > j.options.MaxBytes/segmentShare
}

// finish syncs what mode Off left to the kernel, and closes the file.
func (j *Journal) finish() error {
	err := j.lost
	if j.options.Sync == Off && j.Err() == nil {
		err = errors.Join(err, j.db.Sync())
	}
	return errors.Join(err, j.close())
}
