package statemachine

import (
	"bytes"
	"errors"
	"fmt"
)

// unpacker reads a msgpack map into the fields that a lister names, straight
// from the bytes: through a reader's interface a replay takes three times as
// long. Every length is checked against the bytes that are left before it is
// used, so hostile input costs no more than its own size.
type unpacker struct {
	rest   []byte      // what was not read yet
	left   uint64      // entries of the map at hand whose key was not read yet
	key    []byte      // key of the entry at hand; nil when its value was taken
	used   bool        // a field was taken in this pass over the list
	err    error       // the first one; nothing is read after it
	recent [256]string // short strings read before, by a hash
}

// read reads b, which must be one map and nothing else, into l.
func (u *unpacker) read(b []byte, l fieldLister) error {
	u.rest, u.left, u.key, u.err = b, 0, nil, nil
	u.Map(l)
	if len(u.rest) > 0 {
		u.fail(fmt.Errorf("%w: %d bytes after the value", errMalformed, len(u.rest)))
	}
	u.rest = nil
	return u.err
}

// Map reads one map into l. Entries in the order of the list are read in one
// pass; any other order takes more passes, and a pass that takes nothing drops
// the entry at hand as unknown.
func (u *unpacker) Map(l fieldLister) {
	left := u.left
	u.left = u.count(mapping, 2)
	for u.err == nil && (u.left > 0 || u.key != nil) {
		u.used = false
		l.fields(u)
		if !u.used {
			u.drop()
		}
	}
	u.left, u.used = left, true
}

// drop passes over one entry that no field claims.
func (u *unpacker) drop() {
	if u.next() {
		u.key = nil
		u.raw()
	}
}

// next makes sure that the key of an entry is at hand.
func (u *unpacker) next() bool {
	if u.err != nil || u.key != nil {
		return u.err == nil
	}
	if u.left == 0 {
		return false
	}
	u.left--
	u.key = u.span(text)
	return u.err == nil
}

// take claims the entry at hand if it has that name.
func (u *unpacker) take(name string) bool {
	if u.key == nil && !u.next() || string(u.key) != name {
		return false
	}
	u.key, u.used = nil, true
	return true
}

func (u *unpacker) fail(err error) {
	if u.err == nil {
		u.err = err
	}
}

// head reads a value's head.
func (u *unpacker) head() head {
	if u.err != nil {
		return head{}
	}
	h := headOf(u.rest)
	if h.class == malformed {
		u.fail(errMalformed)
	}
	u.rest = u.rest[h.size:]
	return h
}

// need fails unless a value's head was of the class that its field has.
func (u *unpacker) need(ok bool) {
	if !ok {
		u.fail(errors.New("a field of another type"))
	}
}

// count reads the head of an array or a map, whose elements or entries take at
// least that many bytes each.
func (u *unpacker) count(c class, least int) uint64 {
	h := u.head()
	u.need(h.class == c)
	if h.n > uint64(len(u.rest)/least) {
		u.fail(fmt.Errorf("%w: %d elements in %d bytes", errMalformed, h.n, len(u.rest)))
	}
	if u.err != nil {
		return 0
	}
	return h.n
}

// span reads a string of either class; the result is part of the input.
func (u *unpacker) span(c class) []byte {
	if n := shortText(u.rest); n > 0 && c == text && u.err == nil {
		s := u.rest[1 : 1+n]
		u.rest = u.rest[1+n:]
		return s
	}
	h := u.head()
	u.need(h.class == c)
	if h.n > uint64(len(u.rest)) {
		u.fail(fmt.Errorf("%w: a string cut short", errMalformed))
	}
	if u.err != nil {
		return nil
	}
	s := u.rest[:h.n]
	u.rest = u.rest[h.n:]
	return s
}

// shortText is the length of a string whose head is one byte, as most are that
// are stored; 0 for any other value, and one that is cut short.
func shortText(b []byte) int {
	if len(b) == 0 || b[0]&0xe0 != 0xa0 || len(b) <= int(b[0]&0x1f) {
		return 0
	}
	return int(b[0] & 0x1f)
}

// string reads a string. Most of a journal's short strings were in a record
// just before, and then the same copy serves.
func (u *unpacker) string() string {
	s := u.span(text)
	if len(s) == 0 || len(s) > 64 {
		return string(s)
	}
	mix := uint32(s[0]) | uint32(s[len(s)/2])<<8 | uint32(s[len(s)-1])<<16 | uint32(len(s))<<24
	slot := &u.recent[mix*0x9e3779b1>>24]
	if *slot != string(s) {
		*slot = string(s)
	}
	return *slot
}

// raw reads one value of any kind as it is; the result is part of the input.
func (u *unpacker) raw() []byte {
	if u.err != nil {
		return nil
	}
	n, err := extent(u.rest)
	if err != nil {
		u.fail(err)
		return nil
	}
	v := u.rest[:n]
	u.rest = u.rest[n:]
	return v
}

func (u *unpacker) Bool(name string, p *bool, _ bool) {
	if u.take(name) {
		h := u.head()
		u.need(h.class == boolean)
		*p = h.n == 1
	}
}

func (u *unpacker) Int(name string, p *int, _ bool) {
	v := int64(*p)
	u.Int64(name, &v, always)
	*p = int(v)
}

func (u *unpacker) Int64(name string, p *int64, _ bool) {
	if u.take(name) {
		v, ok := u.head().signedValue()
		u.need(ok)
		*p = v
	}
}

func (u *unpacker) Uint64(name string, p *uint64, _ bool) {
	if u.take(name) {
		v, ok := u.head().unsignedValue()
		u.need(ok)
		*p = v
	}
}

func (u *unpacker) String(name string, p *string, _ bool) {
	if u.take(name) {
		*p = u.string()
	}
}

func (u *unpacker) Strings(name string, p *[]string, _ bool) {
	if !u.take(name) {
		return
	}
	n := u.count(array, 1)
	*p = make([]string, 0, n)
	for range n {
		*p = append(*p, u.string())
	}
}

func (u *unpacker) Bytes(name string, p *[]byte, _ bool) {
	if u.take(name) {
		*p = bytes.Clone(u.span(binaryString))
	}
}

func (u *unpacker) Time(name string, p *int64, opt bool) { u.Int64(name, p, opt) }

func (u *unpacker) Boot(name string, p *Boot, _ bool) {
	if u.take(name) {
		b := u.span(binaryString)
		u.need(len(b) == len(p))
		copy(p[:], b)
	}
}

func (u *unpacker) Struct(name string, l fieldLister, _ bool) {
	if !u.take(name) {
		return
	}
	if unknown, ok := l.(*Unknown); ok {
		unknown.Data = bytes.Clone(u.raw())
		return
	}
	u.Map(l)
}

func (u *unpacker) List(name string, l list) {
	if !u.take(name) {
		return
	}
	n := u.count(array, l.Least())
	for i := 0; i < int(n) && u.err == nil; i++ {
		u.Map(l.At(i))
	}
}
