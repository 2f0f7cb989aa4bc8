package journal

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"time"

	"go.etcd.io/bbolt"
)

// The names of what is in the file; doc.go describes them.
var (
	metaBucket     = []byte("meta")
	segmentsBucket = []byte("segments")
	snapshotBucket = []byte("snapshots")

	formatKey  = []byte("format")
	versionKey = []byte("version")
	createdKey = []byte("created")
	baseKey    = []byte("base")
)

const (
	format  = "supervisor journal"
	version = 1
)

// segment is a run of records in one bucket. It ends where the next begins.
type segment struct {
	first uint64
	bytes int64 // of payload
}

// ledger is what the file holds, in figures. A published ledger is never changed: a commit works on a copy.
type ledger struct {
	head     Head      // newest record
	base     Head      // newest pruned record; the chain of the retained ones starts from it
	bytes    int64     // payload retained: the sum over segments
	segments []segment // oldest first; the first one starts at base.Seq+1
}

func (l *ledger) clone() *ledger {
	c := *l
	c.segments = slices.Clone(l.segments)
	return &c
}

// last is the sequence number of the last record of segment i.
func (l *ledger) last(i int) uint64 {
	if i+1 < len(l.segments) {
		return l.segments[i+1].first - 1
	}
	return l.head.Seq
}

// writeHeader makes an empty bbolt file a journal.
func writeHeader(tx *bbolt.Tx) error {
	for _, name := range [][]byte{metaBucket, segmentsBucket, snapshotBucket} {
		if _, err := tx.CreateBucket(name); err != nil {
			return err
		}
	}
	meta := tx.Bucket(metaBucket)
	return errors.Join(
		meta.Put(formatKey, []byte(format)),
		meta.Put(versionKey, binary.BigEndian.AppendUint32(nil, version)),
		meta.Put(createdKey, []byte(time.Now().UTC().Format(time.RFC3339))),
	)
}

// checkHeader says whether the file is a journal that this version reads. Its errors are ErrForeign and ErrNewer.
func checkHeader(tx *bbolt.Tx) error {
	meta := tx.Bucket(metaBucket)
	if meta == nil || string(meta.Get(formatKey)) != format {
		return fmt.Errorf("%w: a database of another program", ErrForeign)
	}
	v := meta.Get(versionKey)
	if len(v) != 4 {
		return fmt.Errorf("%w: no format version", ErrDamaged)
	}
	if n := binary.BigEndian.Uint32(v); n != version {
		return fmt.Errorf("%w: version %d, and this program knows version %d", ErrNewer, n, version)
	}
	if tx.Bucket(segmentsBucket) == nil || tx.Bucket(snapshotBucket) == nil {
		return fmt.Errorf("%w: a bucket is missing", ErrDamaged)
	}
	return nil
}

// readBase is the newest pruned record, the zero Head if none was.
func readBase(tx *bbolt.Tx) (Head, error) {
	stored := tx.Bucket(metaBucket).Get(baseKey)
	if stored == nil {
		return Head{}, nil
	}
	base, ok := unmarshalHead(stored)
	if !ok {
		return Head{}, fmt.Errorf("%w: the chain's base is %d bytes long", ErrDamaged, len(stored))
	}
	return base, nil
}

// readLedger takes stock: header, base, segments, and the newest record, whose link it checks.
func readLedger(tx *bbolt.Tx) (*ledger, error) {
	if err := checkHeader(tx); err != nil {
		return nil, err
	}
	base, err := readBase(tx)
	if err != nil {
		return nil, err
	}
	l := &ledger{head: base, base: base}
	segments := tx.Bucket(segmentsBucket)
	err = segments.ForEachBucket(func(k []byte) error {
		s := segment{first: seqOf(k), bytes: int64(segments.Bucket(k).Sequence())}
		l.segments = append(l.segments, s)
		l.bytes += s.bytes
		return nil
	})
	if err != nil || len(l.segments) == 0 {
		return l, err
	}
	if l.segments[0].first != base.Seq+1 {
		return nil, bad(base.Seq+1, "is missing")
	}
	l.head, err = readHead(tx, base, l.segments[len(l.segments)-1].first)
	return l, err
}

// readHead reads the newest record, which is in the segment that starts at first, and checks its link.
func readHead(tx *bbolt.Tx, base Head, first uint64) (Head, error) {
	k, v := tx.Bucket(segmentsBucket).Bucket(key(first)).Cursor().Last()
	seq := seqOf(k)
	if seq < first {
		return Head{}, bad(first, "is missing")
	}
	before, err := hashAt(tx, base, seq-1)
	if err != nil {
		return Head{}, err
	}
	c := newChain(Head{Seq: seq - 1, Hash: before})
	err = c.check(seq, v)
	return c.Head, err
}

// seekSegment moves c, over the segments, to the one that holds seq, and returns its key; nil without segments.
func seekSegment(c *bbolt.Cursor, seq uint64) []byte {
	k, _ := c.Seek(key(seq))
	if k == nil {
		k, _ = c.Last()
	} else if seqOf(k) > seq {
		k, _ = c.Prev()
	}
	return k
}

// hashAt is the stored hash of a retained record or of the base.
func hashAt(tx *bbolt.Tx, base Head, seq uint64) (Hash, error) {
	if seq == base.Seq {
		return base.Hash, nil
	}
	segments := tx.Bucket(segmentsBucket)
	k := seekSegment(segments.Cursor(), seq)
	if k == nil {
		return Hash{}, bad(seq, "is missing")
	}
	value := segments.Bucket(k).Get(key(seq))
	if len(value) < sha256.Size {
		return Hash{}, bad(seq, "is missing")
	}
	return Hash(value[:sha256.Size]), nil
}

// scan visits the stored records after the given one, in order, until visit returns false. Values are valid until tx ends.
func scan(tx *bbolt.Tx, after uint64, visit func(seq uint64, value []byte) bool) {
	segments := tx.Bucket(segmentsBucket)
	c := segments.Cursor()
	from := key(after + 1)
	for name := seekSegment(c, after+1); name != nil; name, _ = c.Next() {
		records := segments.Bucket(name).Cursor()
		for k, v := records.Seek(from); k != nil; k, v = records.Next() {
			if !visit(seqOf(k), v) {
				return
			}
		}
	}
}
