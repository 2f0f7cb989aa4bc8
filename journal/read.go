package journal

import (
	"crypto/sha256"
	"slices"

	"go.etcd.io/bbolt"
)

// One read transaction copies about so much, so that no reader makes the writer keep old pages for long.
const (
	chunkRecords = 1024
	chunkBytes   = 256 << 10
)

// Read returns records in order, starting with the one after the given sequence number, or with the oldest retained one if
// that is later. It returns at most limit records and maxBytes bytes of payload (0 or less is no bound), but at least one
// record when there is one, and none past the Head at the time of the call; fewer than asked for when they are pruned
// meanwhile. The chain is checked on the way: where it breaks the error is a BadRecord, and the records before it are
// returned as well. The caller owns the records.
func (s *store) Read(after uint64, limit, maxBytes int) ([]Record, error) {
	r := reading{chain: newChain(Head{Seq: after}), until: s.Head().Seq, limit: limit, maxBytes: maxBytes}
	for r.more = true; r.more && r.chain.Seq < r.until; {
		if err := s.view(r.chunk); err != nil {
			return r.out, about(s.path, err)
		}
	}
	return r.out, nil
}

// reading is one call of Read, over several transactions.
type reading struct {
	chain           *chain // at the last record of out
	until           uint64
	limit, maxBytes int
	out             []Record
	size            int // bytes of payload in out
	more            bool
}

// chunk reads on in one transaction.
func (r *reading) chunk(tx *bbolt.Tx) error {
	if ok, err := r.start(tx); !ok {
		r.more = false
		return err
	}
	var err error
	had, size := len(r.out), r.size
	r.out = slices.Grow(r.out, r.expected())
	scan(tx, r.chain.Seq, func(seq uint64, value []byte) bool {
		if r.chain.Seq == r.until || !r.admits(len(value)-sha256.Size) {
			r.more = false
			return false
		}
		if err = r.chain.check(seq, value); err != nil {
			return false
		}
		r.add(value[sha256.Size:])
		return len(r.out)-had < chunkRecords && r.size-size < chunkBytes
	})
	own(r.out[had:], r.size-size)
	if err == nil && r.more && len(r.out) == had {
		err = bad(r.chain.Seq+1, "is missing")
	}
	return err
}

// start finds the place in the chain to read on from. It says no when pruning has overtaken the reader.
func (r *reading) start(tx *bbolt.Tx) (ok bool, err error) {
	base, err := readBase(tx)
	switch {
	case err != nil:
		return false, err
	case len(r.out) > 0:
		return r.chain.Seq >= base.Seq, nil
	}
	r.chain.Seq = max(r.chain.Seq, base.Seq)
	if r.chain.Seq >= r.until {
		return false, nil
	}
	r.chain.Hash, err = hashAt(tx, base, r.chain.Seq)
	return err == nil, err
}

// expected is how many records the next chunk holds, unless a bound in bytes ends it.
func (r *reading) expected() int {
	n := min(chunkRecords, r.until-r.chain.Seq)
	if r.limit > 0 {
		n = min(n, uint64(r.limit-len(r.out)))
	}
	return int(n)
}

// admits says whether a payload of that size still fits the caller's bounds. The first one always does.
func (r *reading) admits(size int) bool {
	if len(r.out) == 0 {
		return true
	}
	return (r.limit <= 0 || len(r.out) < r.limit) && (r.maxBytes <= 0 || r.size+size <= r.maxBytes)
}

// add takes the record at the chain's head.
func (r *reading) add(payload []byte) {
	r.out = append(r.out, Record{Seq: r.chain.Seq, Hash: r.chain.Hash, Payload: payload})
	r.size += len(payload)
}

// own replaces payloads that lie in the mapped file by copies, in one allocation of the given total size.
func own(records []Record, size int) {
	arena := make([]byte, 0, size)
	for i := range records {
		start := len(arena)
		arena = append(arena, records[i].Payload...)
		records[i].Payload = arena[start:len(arena):len(arena)]
	}
}

// Verify reads all retained records in order, checks that none is missing and that the chain holds from the first record of
// all (or from the last pruned one) to the Head at the time of the call, and that the snapshot, if there is one, is whole
// and fits the chain. It calls visit, unless nil, for each good record, and stops with its error. Damage is ErrDamaged, as
// a BadRecord where it is in a record. Records may be appended meanwhile; when the oldest are pruned under it, it goes on
// with the ones that are left.
func (s *store) Verify(visit func(Record) error) error {
	for head, at := s.Head().Seq, s.FirstSeq()-1; at < head; {
		records, err := s.Read(at, chunkRecords, chunkBytes)
		for _, r := range records {
			if visit == nil {
				break
			}
			if err := visit(r); err != nil {
				return err
			}
		}
		if err != nil {
			return err
		}
		if len(records) == 0 {
			break // all up to head have been pruned
		}
		at = records[len(records)-1].Seq
	}
	if err := s.view(checkSnapshot); err != nil {
		return about(s.path, err)
	}
	return nil
}
