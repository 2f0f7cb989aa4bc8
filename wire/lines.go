package wire

import (
	"bytes"
	"strings"
	"unicode/utf8"
)

// maxPiece is the most text that one event of the agent front carries.
const maxPiece = 64 << 10

// nextPiece cuts what one event carries off the unsent bytes of a stream: a
// line with its end, maxPiece bytes of a longer one, or what is left of a
// stream that has ended. Of an unfinished line nothing is cut (0), unless it is
// a prompt: its writer has been quiet. Then the piece is partial.
//
// It looks at the first maxPiece bytes alone, so however the bytes came, the
// pieces are the same. A character is never split; bytes that cannot become one
// are not held back.
func nextPiece(b []byte, ended, quiet bool) (n int, partial bool) {
	window := b[:min(len(b), maxPiece)]
	if i := bytes.IndexByte(window, '\n'); i >= 0 {
		return i + 1, false
	}
	switch {
	case len(b) >= maxPiece:
		return len(window) - unfinished(window), false
	case ended:
		return len(b), false
	case quiet:
		n = len(b) - unfinished(b)
		return n, n > 0
	}
	return 0, false
}

// unfinished is how many bytes at the end of b begin a character whose rest is
// still to come.
func unfinished(b []byte) int {
	for n := 1; n < utf8.UTFMax && n <= len(b); n++ {
		tail := b[len(b)-n:]
		if utf8.RuneStart(tail[0]) {
			if utf8.FullRune(tail) {
				return 0
			}
			return n
		}
	}
	return 0
}

// textOf is bytes as text. Those that are no UTF-8 become one U+FFFD each, and
// valid is false.
func textOf(b []byte) (text string, valid bool) {
	if utf8.Valid(b) {
		return string(b), true
	}
	var s strings.Builder
	for len(b) > 0 {
		r, size := utf8.DecodeRune(b)
		s.WriteRune(r)
		b = b[size:]
	}
	return s.String(), false
}
