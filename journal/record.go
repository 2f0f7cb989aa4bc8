package journal

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"hash"
)

// Hash is a link of the chain: SHA-256 over the previous Hash, the sequence number and the payload.
type Hash [sha256.Size]byte

// String is the hash in lowercase hex.
func (h Hash) String() string { return hex.EncodeToString(h[:]) }

// Record is one stored record. Payload is a copy that the caller owns.
type Record struct {
	Seq     uint64
	Hash    Hash
	Payload []byte
}

// Head is a position in the chain: a record's sequence number and hash. The zero Head stands before the first record.
type Head struct {
	Seq  uint64
	Hash Hash
}

// chain computes hashes, one record after the other. Not safe for concurrent use.
type chain struct {
	Head
	sum    hash.Hash
	prefix [sha256.Size + 8]byte // previous hash, sequence: a field, so that it does not escape for each record
}

func newChain(from Head) *chain { return &chain{Head: from, sum: sha256.New()} }

// extend moves the head to the next record, whose payload this is.
func (c *chain) extend(payload []byte) {
	c.Seq++
	copy(c.prefix[:], c.Hash[:])
	binary.BigEndian.PutUint64(c.prefix[sha256.Size:], c.Seq)
	c.sum.Reset()
	c.sum.Write(c.prefix[:])
	c.sum.Write(payload)
	c.sum.Sum(c.Hash[:0])
}

// check extends the chain by a stored record, or says what is wrong with it.
func (c *chain) check(seq uint64, value []byte) error {
	switch next := c.Seq + 1; {
	case seq != next:
		return bad(next, "is missing")
	case len(value) < sha256.Size:
		return bad(next, "is only %d bytes long", len(value))
	}
	c.extend(value[sha256.Size:])
	if !bytes.Equal(c.Hash[:], value[:sha256.Size]) {
		return bad(seq, "does not match its hash")
	}
	return nil
}

// A key is a sequence number, big-endian, so that keys sort as numbers do.
func key(seq uint64) []byte { return binary.BigEndian.AppendUint64(make([]byte, 0, 8), seq) }

// seqOf is the inverse of key. A key of another length, which no journal holds, is 0, which no record has.
func seqOf(key []byte) uint64 {
	if len(key) != 8 {
		return 0
	}
	return binary.BigEndian.Uint64(key)
}

// A head is stored as its key and its hash.
func (h Head) marshal() []byte { return append(key(h.Seq), h.Hash[:]...) }

func unmarshalHead(b []byte) (h Head, ok bool) {
	if len(b) != 8+sha256.Size {
		return h, false
	}
	return Head{Seq: seqOf(b[:8]), Hash: Hash(b[8:])}, true
}
