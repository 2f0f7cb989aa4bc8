package statemachine

import (
	"bytes"
	"errors"
	"fmt"
)

// ErrRecord is a payload that is no record of this format.
var ErrRecord = errors.New("not a record")

// stored is the stored form of a record: one msgpack map, kind first. Fields
// are only ever added. The sequence is not in it: it is the record's key in
// the journal, and part of what the chain hashes.
//
//	k kind · v version of the kind, absent for the first · t wall clock, unix
//	ns · m monotonic clock, ns · b boot id, 16 bytes · g generation · h handle,
//	absent where there is none · d the event's fields, a map
//
// A kind whose fields change meaning gets a version of its own, and an
// upcaster from each older one. So far there is none.
type stored struct {
	version versioned // as read, or to be written
	data    versioned // what Event was made for
	rec     *Record
}

// versioned is a kind and which meaning of it.
type versioned struct {
	kind   string
	number int
}

func (s *stored) fields(v visitor) {
	v.String("k", &s.version.kind, always)
	v.Int("v", &s.version.number, optional)
	v.Time("t", &s.rec.Stamp.Wall, always)
	v.Int64("m", &s.rec.Stamp.Mono, always)
	v.Boot("b", &s.rec.Stamp.Boot, always)
	v.Int("g", &s.rec.Stamp.Gen, always)
	v.String("h", &s.rec.Handle, optional)
	if s.rec.Event == nil {
		s.rec.Event, s.data = s.version.newEvent(), s.version
	}
	v.Struct("d", s.rec.Event, always)
}

// newEvent gives what the data is read into.
func (v versioned) newEvent() Event {
	if e := newEvent(Kind(v.kind)); e != nil && v.number == 0 {
		return e
	}
	const emptyMap = 0x80
	return &Unknown{Name: Kind(v.kind), Version: v.number, Data: []byte{emptyMap}}
}

// Encoder writes records. It is for one goroutine and reuses its memory.
type Encoder struct{ p *packer }

// Encode returns the stored form of r, less its Seq. The caller owns it.
func (e *Encoder) Encode(r *Record) []byte {
	if e.p == nil {
		e.p = newPacker()
	}
	e.p.buf.Reset()
	s := stored{version: versioned{kind: string(r.Event.Kind())}, rec: r}
	if u, ok := r.Event.(*Unknown); ok {
		s.version.number = u.Version
	}
	e.p.Map(&s)
	return bytes.Clone(e.p.buf.Bytes())
}

// Decoder reads records. It is for one goroutine and reuses its memory.
type Decoder struct {
	u   unpacker
	s   stored
	rec Record
}

// Decode reads the stored form of the record with that sequence. The result
// keeps nothing of payload. Errors wrap ErrRecord; no input makes it panic or
// allocate more than a small multiple of its length.
func (d *Decoder) Decode(seq uint64, payload []byte) (Record, error) {
	d.s = stored{rec: &d.rec}
	err := d.pass(seq, payload)
	if err == nil && d.s.data != d.s.version {
		// Kind or version came after the data, and are known only now.
		err = d.pass(seq, payload)
	}
	switch {
	case err == nil && d.s.version.kind == "":
		err = errors.New("it names no kind")
	case err == nil && d.s.data != d.s.version:
		err = errors.New("it names two kinds")
	}
	if err != nil {
		return Record{}, fmt.Errorf("record %d: %w: %w", seq, ErrRecord, err)
	}
	return d.rec, nil
}

func (d *Decoder) pass(seq uint64, payload []byte) error {
	d.rec = Record{Seq: seq}
	return d.u.read(payload, &d.s)
}
