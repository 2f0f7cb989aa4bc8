package journal

import (
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"time"
)

// Limits of what one call may append.
const (
	MaxPayload = 32 << 20 // bytes of one record's payload
	MaxAppend  = 64 << 20 // bytes of all payloads of one Append
)

// Defaults of Options.
const (
	defaultMaxBytes       = 64 << 20
	defaultSegmentRecords = 4096
	segmentShare          = 16 // a segment ends at this part of MaxBytes, however few its records
)

// batchInterval is how often, at most, the modes Batch and Off commit.
const batchInterval = 20 * time.Millisecond

// SyncMode says when an Append is on the disk.
type SyncMode int

const (
	Always SyncMode = iota // Append returns when its records are durable
	Batch                  // Append returns at once; commits, each durable, follow at most every 20 ms
	Off                    // as Batch, and the kernel decides when to write: a power cut can damage the file
)

var syncModes = [...]string{Always: "always", Batch: "batch", Off: "off"}

// String is the name that ParseSyncMode reads.
func (m SyncMode) String() string { return syncModes[m] }

// ParseSyncMode reads always, batch or off.
func ParseSyncMode(name string) (SyncMode, error) {
	for m, known := range syncModes {
		if name == known {
			return SyncMode(m), nil
		}
	}
	return Always, fmt.Errorf("journal sync mode %q is none of always, batch, off", name)
}

// Options of a Journal. The zero value is good.
type Options struct {
	Sync           SyncMode
	MaxBytes       int64 // payload bytes above which a snapshot prunes; 0 means 64 MiB
	SegmentRecords int   // records in a segment, the unit of pruning; 0 means 4096
	// File is the journal as an earlier image of this process had it open, from (*Journal).File, with its lock. It is
	// taken for sound: of it, only the meta pages and the newest record are checked, and Verify does the rest. The Journal
	// owns it from then on.
	File *os.File
	// Committed, unless nil, is called after each commit, with the new Head. It must not block and must not call the
	// Journal's writing methods.
	Committed func(Head)

	disk disk // the zero value is the real one
}

func (o Options) withDefaults() Options {
	if o.MaxBytes <= 0 {
		o.MaxBytes = defaultMaxBytes
	}
	if o.SegmentRecords <= 0 {
		o.SegmentRecords = defaultSegmentRecords
	}
	return o
}

// Journal is an open journal and its one writer. All methods are safe for concurrent use.
type Journal struct {
	store
	options Options
	final   atomic.Pointer[error] // the first error after which nothing can be committed; stays
	full    atomic.Bool           // modes Batch and Off: what is queued did not fit the disk

	wake    chan struct{} // capacity 1: something was queued
	closing chan struct{} // closed by Close
	stopped chan struct{} // closed by the committer

	mu     sync.Mutex
	closed bool
	queue  []*batch // what the committer has not taken yet
	next   uint64   // modes Batch and Off: the sequence number of the next record to be queued

	due  time.Time // modes Batch and Off: the next commit, at the earliest; the committer's
	lost error     // the first error about what Append had accepted; the committer's, then Close's
}

// Open opens the journal at path and checks it, or creates it if there is none or a file of zero length; a new one appears
// whole or not at all. Damage, another kind of file, a newer format and a lock held by another process (waited for, under a
// second) are ErrDamaged, ErrForeign, ErrNewer and ErrLocked; such a file is not changed. There must be one writer: see
// Lock. The caller must Close it.
func Open(path string, o Options) (*Journal, error) {
	o = o.withDefaults()
	file := o.File
	if file == nil {
		var err error
		if file, err = openOrCreate(path, o.disk); err != nil {
			return nil, err
		}
	}
	j := &Journal{
		options: o,
		wake:    make(chan struct{}, 1),
		closing: make(chan struct{}),
		stopped: make(chan struct{}),
	}
	if err := j.open(path, file, o.File == nil, o.Sync == Off); err != nil {
		return nil, err
	}
	j.next = j.Head().Seq + 1
	go j.run()
	return j, nil
}

// File is the open file. Its descriptor carries the lock, and may be handed over to the next image of this process; its
// owner is the Journal.
func (j *Journal) File() *os.File { return j.file }

// Err returns the error after which this Journal cannot commit any more, nil while it can. A full disk is none.
func (j *Journal) Err() error {
	if err := j.final.Load(); err != nil {
		return *err
	}
	return nil
}

// Append stores the payloads as consecutive records, all or none, and returns the first one's sequence number. In mode
// Always it returns when they are durable, and concurrent calls share a commit. In Batch and Off it returns when they are
// queued, and what it accepted can be lost by a crash or a later error. The payloads may be reused after the return. No
// payload at all is 0 and nil.
//
// ErrFull: the disk is full; nothing of this call is or will be stored, and the next call tries again. ErrFailed: it is
// unknown whether the records are on the disk. ErrTooLarge and ErrClosed: nothing was done.
func (j *Journal) Append(payloads ...[]byte) (first uint64, err error) {
	size, err := j.measure(payloads)
	if err != nil || len(payloads) == 0 {
		return 0, err
	}
	if j.options.Sync != Always {
		return j.appendLater(payloads, size)
	}
	b, offset, err := j.enqueue(payloads, size)
	if err != nil {
		return 0, err
	}
	<-b.done
	return b.first + offset, b.err
}

// measure is the size of all payloads, or ErrTooLarge.
func (j *Journal) measure(payloads [][]byte) (size int, err error) {
	for i, p := range payloads {
		if len(p) > MaxPayload {
			return 0, fault(ErrTooLarge, j.path, "payload %d has %d bytes, more than %d", i, len(p), MaxPayload)
		}
		size += len(p)
	}
	if size > MaxAppend {
		return 0, fault(ErrTooLarge, j.path, "a batch of %d bytes, more than %d", size, MaxAppend)
	}
	return size, nil
}

// WriteSnapshot stores s as the newest snapshot and, in the same transaction, prunes the oldest segments that lie wholly
// behind it while more than Options.MaxBytes are retained. Of the older snapshots those stay that keep the way to any
// retained record short. It returns when that is committed, as
// all that was appended before it is then. The Blob must not change before the return. A zero s.Hash stands for that of
// record s.Seq if it is the newest then. Errors as of Append, and ErrMismatch when s.Hash is not the hash of record s.Seq.
func (j *Journal) WriteSnapshot(s Snapshot) error {
	if len(s.Blob) > MaxSnapshot {
		return fault(ErrTooLarge, j.path, "a snapshot of %d bytes, more than %d", len(s.Blob), MaxSnapshot)
	}
	b := &batch{snapshot: &s, done: make(chan struct{})}
	if err := j.push(b); err != nil {
		return err
	}
	<-b.done
	return b.err
}

// Close commits what is queued, syncs, and lets go of the file. Calls that wait are answered. It returns an error if what
// Append accepted could not be committed. A second Close is ErrClosed.
func (j *Journal) Close() error {
	j.mu.Lock()
	again := j.closed
	j.closed = true
	j.mu.Unlock()
	if again {
		return j.closedError()
	}
	close(j.closing)
	j.signal()
	<-j.stopped
	return j.finish()
}
