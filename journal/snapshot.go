package journal

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"math"
	"slices"

	"go.etcd.io/bbolt"
)

// MaxSnapshot is the largest Blob of a Snapshot, in bytes.
const MaxSnapshot = 256 << 20

// Snapshot is the state that the owner of the journal folded from all records up to Seq, so that a later replay can start
// there. The journal does not understand the Blob; Version is the owner's, for its format.
type Snapshot struct {
	Seq     uint64
	Hash    Hash // of record Seq
	Version int  // 0 to 2^32-1
	Blob    []byte
}

// A stored snapshot is version (4 bytes, big-endian), Hash, digest, Blob; its key is that of Seq.
const snapshotHeader = 4 + 2*sha256.Size

// digest covers all of a snapshot, so that damage is seen.
func (s Snapshot) digest() (d Hash) {
	sum := sha256.New()
	sum.Write(key(s.Seq))
	sum.Write(binary.BigEndian.AppendUint32(nil, uint32(s.Version)))
	sum.Write(s.Hash[:])
	sum.Write(s.Blob)
	sum.Sum(d[:0])
	return d
}

func (s Snapshot) marshal() []byte {
	digest := s.digest()
	b := make([]byte, 0, snapshotHeader+len(s.Blob))
	b = binary.BigEndian.AppendUint32(b, uint32(s.Version))
	b = append(b, s.Hash[:]...)
	b = append(b, digest[:]...)
	return append(b, s.Blob...)
}

// unmarshalSnapshot copies what is stored.
func unmarshalSnapshot(k, v []byte) (Snapshot, error) {
	if len(v) < snapshotHeader {
		return Snapshot{}, fmt.Errorf("%w: the snapshot at record %d is cut short", ErrDamaged, seqOf(k))
	}
	s := Snapshot{
		Seq:     seqOf(k),
		Version: int(binary.BigEndian.Uint32(v)),
		Hash:    Hash(v[4:][:sha256.Size]),
		Blob:    append([]byte(nil), v[snapshotHeader:]...),
	}
	if s.digest() != Hash(v[4+sha256.Size:][:sha256.Size]) {
		return Snapshot{}, fmt.Errorf("%w: the snapshot at record %d does not match its digest", ErrDamaged, s.Seq)
	}
	return s, nil
}

// Snapshot returns the newest snapshot, and whether there is one. The caller owns it. A damaged one is ErrDamaged.
func (s *store) Snapshot() (snapshot Snapshot, found bool, err error) {
	return s.SnapshotAt(math.MaxUint64)
}

// SnapshotAt is Snapshot of those of the record seq and before.
func (s *store) SnapshotAt(seq uint64) (snapshot Snapshot, found bool, err error) {
	err = s.view(func(tx *bbolt.Tx) (err error) {
		snapshot, found, err = findSnapshot(tx, seq)
		return err
	})
	if err != nil {
		err = about(s.path, err)
	}
	return snapshot, found, err
}

// fits says whether the chain has the link that s claims.
func (s Snapshot) fits(tx *bbolt.Tx, base Head) bool {
	stored, err := hashAt(tx, base, s.Seq)
	return err == nil && stored == s.Hash
}

// findSnapshot is what SnapshotAt returns. A damaged snapshot is found, and has its Seq.
func findSnapshot(tx *bbolt.Tx, seq uint64) (s Snapshot, found bool, err error) {
	c := tx.Bucket(snapshotBucket).Cursor()
	k, v := c.Seek(key(seq))
	switch {
	case k == nil:
		k, v = c.Last()
	case seqOf(k) > seq:
		k, v = c.Prev()
	}
	if k == nil {
		return s, false, nil
	}
	if s, err = unmarshalSnapshot(k, v); err != nil {
		return Snapshot{Seq: seqOf(k)}, true, err
	}
	return s, true, nil
}

// checkSnapshot says whether the newest snapshot, if there is one, is whole and fits the chain as stored.
func checkSnapshot(tx *bbolt.Tx) error {
	s, found, err := findSnapshot(tx, math.MaxUint64)
	if err != nil || !found {
		return err
	}
	base, err := readBase(tx)
	if err == nil && !s.fits(tx, base) {
		err = fmt.Errorf("%w: the snapshot at record %d does not fit the chain", ErrDamaged, s.Seq)
	}
	return err
}

// writeSnapshot stores s, prunes behind it and deletes the older ones that are of no more use; l is changed accordingly.
func writeSnapshot(tx *bbolt.Tx, l *ledger, s *Snapshot, maxBytes int64) error {
	if s.Hash == (Hash{}) && s.Seq == l.head.Seq {
		s.Hash = l.head.Hash
	}
	if !s.fits(tx, l.base) {
		return fmt.Errorf("%w: there is no record %d with its hash", ErrMismatch, s.Seq)
	}
	if err := tx.Bucket(snapshotBucket).Put(key(s.Seq), s.marshal()); err != nil {
		return err
	}
	if err := prune(tx, l, s.Seq, maxBytes); err != nil {
		return err
	}
	return thin(tx.Bucket(snapshotBucket), l.base.Seq, s.Seq, maxBytes/olderShare)
}

// From any record that can be asked for, a snapshot is at most snapshotReach records away, unless the older snapshots
// would then take more than one part in olderShare of MaxBytes.
const (
	snapshotReach = 65536
	olderShare    = 4
)

// thin deletes the snapshots that nobody will start from: those of records before the base or after the newest snapshot,
// those between two others that are near enough to each other, and the oldest ones beyond maxBytes.
func thin(b *bbolt.Bucket, base, newest uint64, maxBytes int64) error {
	var older, useless []stored
	c := b.Cursor()
	for k, v := c.First(); k != nil; k, v = c.Next() {
		s := stored{seqOf(k), int64(len(v))}
		switch {
		case s.seq < base || s.seq > newest:
			useless = append(useless, s)
		case s.seq < newest:
			older = append(older, s)
		}
	}
	kept := spread(older, base, newest)
	for size := sizeOf(kept); size > maxBytes; kept = kept[1:] {
		size -= kept[0].size
	}
	for _, s := range older {
		if !slices.Contains(kept, s) {
			useless = append(useless, s)
		}
	}
	for _, s := range useless {
		if err := b.Delete(key(s.seq)); err != nil {
			return err
		}
	}
	return nil
}

// stored is a snapshot as far as thin looks at it.
type stored struct {
	seq  uint64
	size int64
}

func sizeOf(all []stored) (size int64) {
	for _, s := range all {
		size += s.size
	}
	return size
}

// spread returns as few of these snapshots, which are in order, as snapshotReach allows. Of those behind a base the first
// one stays: no state is known before it.
func spread(all []stored, base, newest uint64) (kept []stored) {
	before := base
	for i, s := range all {
		next := newest
		if i+1 < len(all) {
			next = all[i+1].seq
		}
		if next-before > snapshotReach || base > 0 && len(kept) == 0 {
			kept, before = append(kept, s), s.seq
		}
	}
	return kept
}

// prune deletes the oldest segments that hold nothing after the given record, while more than maxBytes are retained.
func prune(tx *bbolt.Tx, l *ledger, through uint64, maxBytes int64) error {
	segments := tx.Bucket(segmentsBucket)
	for len(l.segments) > 0 && l.bytes > maxBytes && l.last(0) <= through {
		last := l.last(0)
		hash, err := hashAt(tx, l.base, last)
		if err != nil {
			return err
		}
		if err := segments.DeleteBucket(key(l.segments[0].first)); err != nil {
			return err
		}
		l.base = Head{Seq: last, Hash: hash}
		l.bytes -= l.segments[0].bytes
		l.segments = l.segments[1:]
	}
	return tx.Bucket(metaBucket).Put(baseKey, l.base.marshal())
}
