package statemachine

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
)

// maxDepth bounds the nesting of anything that is passed over unread.
const maxDepth = 32

var errMalformed = errors.New("not well-formed msgpack")

// class is what a msgpack value is.
type class uint8

const (
	malformed class = iota // also extension types: none is ever stored
	null
	boolean
	unsigned
	signed
	float
	text
	binaryString
	array
	mapping
)

// head is the start of a value: n is the integer or truth itself, the number
// of bytes that follow, or that of elements or entries. Size is the head's own.
type head struct {
	class class
	n     uint64
	size  int
}

// wide lists the forms from 0xc0 to 0xdf: their class and how many bytes of n
// follow the first one.
var wide = [32]struct {
	class class
	bytes uint8
}{
	0x00: {null, 0}, 0x02: {boolean, 0}, 0x03: {boolean, 0},
	0x04: {binaryString, 1}, 0x05: {binaryString, 2}, 0x06: {binaryString, 4},
	0x0a: {float, 4}, 0x0b: {float, 8},
	0x0c: {unsigned, 1}, 0x0d: {unsigned, 2}, 0x0e: {unsigned, 4}, 0x0f: {unsigned, 8},
	0x10: {signed, 1}, 0x11: {signed, 2}, 0x12: {signed, 4}, 0x13: {signed, 8},
	0x19: {text, 1}, 0x1a: {text, 2}, 0x1b: {text, 4},
	0x1c: {array, 2}, 0x1d: {array, 4},
	0x1e: {mapping, 2}, 0x1f: {mapping, 4},
}

// headOf reads the head of the value at the start of b; its class is malformed
// where there is none.
func headOf(b []byte) head {
	if len(b) == 0 {
		return head{}
	}
	switch c := b[0]; {
	case c <= 0x7f:
		return head{unsigned, uint64(c), 1}
	case c <= 0x8f:
		return head{mapping, uint64(c & 0x0f), 1}
	case c <= 0x9f:
		return head{array, uint64(c & 0x0f), 1}
	case c <= 0xbf:
		return head{text, uint64(c & 0x1f), 1}
	case c >= 0xe0:
		return head{signed, uint64(int8(c)), 1}
	}
	return wideHead(b)
}

func wideHead(b []byte) head {
	form := wide[b[0]&0x1f]
	size := 1 + int(form.bytes)
	if len(b) < size {
		return head{}
	}
	h := head{class: form.class, size: size}
	switch form.bytes {
	case 0:
		h.n = uint64(b[0] & 1) // of true, not of false
	case 1:
		h.n = uint64(b[1])
	case 2:
		h.n = uint64(binary.BigEndian.Uint16(b[1:]))
	case 4:
		h.n = uint64(binary.BigEndian.Uint32(b[1:]))
	case 8:
		h.n = binary.BigEndian.Uint64(b[1:])
	}
	if h.class == signed {
		unused := 64 - 8*form.bytes
		h.n = uint64(int64(h.n<<unused) >> unused)
	}
	return h
}

// content is how many bytes and how many values belong to the value after its
// head. A length is at most 32 bits wide, so nothing overflows.
func (h head) content() (bytes, values uint64) {
	switch h.class {
	case text, binaryString:
		return h.n, 0
	case array:
		return 0, h.n
	case mapping:
		return 0, 2 * h.n
	}
	return 0, 0
}

// extent measures the value at the start of b, whatever it holds. It does not
// recurse and believes no length: eight hostile bytes could otherwise ask for
// gigabytes or overflow the stack.
func extent(b []byte) (int, error) {
	var open [maxDepth]uint64 // values still to come, per nesting level
	depth, pos := 0, 0
	for {
		h := headOf(b[pos:])
		bytes, values := h.content()
		pos += h.size
		if h.class == malformed || bytes > uint64(len(b)-pos) {
			return 0, fmt.Errorf("%w at byte %d", errMalformed, pos)
		}
		pos += int(bytes)
		if values > 0 {
			if depth == maxDepth {
				return 0, fmt.Errorf("%w: nested deeper than %d", errMalformed, maxDepth)
			}
			open[depth] = values
			depth++
			continue
		}
		for depth > 0 && open[depth-1] == 1 {
			depth--
		}
		if depth == 0 {
			return pos, nil
		}
		open[depth-1]--
	}
}

// signedValue is an integer's value.
func (h head) signedValue() (int64, bool) {
	ok := h.class == signed || h.class == unsigned && h.n <= math.MaxInt64
	return int64(h.n), ok
}

// unsignedValue is that of one that is not negative.
func (h head) unsignedValue() (uint64, bool) {
	ok := h.class == unsigned || h.class == signed && h.n <= math.MaxInt64
	return h.n, ok
}
