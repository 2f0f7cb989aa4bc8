package wire

import (
	"io"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"
)

const (
	spillBytes = 256 << 10 // of a reply, before they are handed on
	// pieceBytes is encoded at once; whole groups of base64.
	pieceBytes = 48 << 10
)

// spill hands on what was encoded so far, once it is much.
func (e *encoder) spill() {
	if e.to != nil && len(e.dst) >= spillBytes {
		e.handOn()
	}
}

// handOn sends what was encoded; the first time it makes others wait with
// their replies. Without a peer nothing need be completed.
func (e *encoder) handOn() {
	if !e.begun {
		e.begun = true
		e.to.writing.Lock()
	}
	e.to.send(e.dst)
	e.dst = e.dst[:0]
	if err := e.to.waits.Err(); err != nil && e.err == nil {
		e.err = err
	}
}

func (e *encoder) output(name string, p *[]byte) {
	e.name(name)
	e.dst = append(e.dst, '"')
	for rest := *p; len(rest) > 0 && e.err == nil; {
		piece := rest[:wholeCharacters(rest, pieceBytes)]
		rest = rest[len(piece):]
		start := len(e.dst)
		e.dst, _ = jsontext.AppendQuote(e.dst, piece)                 // see appendText
		e.dst = append(e.dst[:start], e.dst[start+1:len(e.dst)-1]...) // less its quotes
		e.spill()
	}
	e.dst = append(e.dst, '"')
}

// wholeCharacters is a length of up to n that splits no character of p.
func wholeCharacters(p []byte, n int) int {
	if len(p) <= n {
		return len(p)
	}
	for back := range utf8.UTFMax {
		if utf8.RuneStart(p[n-back]) {
			return n - back
		}
	}
	return n // no character anyway
}

func (e *encoder) content(name string, p *Content) {
	if p.From == nil {
		e.base64(name, &p.Bytes, always)
		return
	}
	defer p.From.Close()
	e.name(name)
	e.dst = append(e.dst, '"')
	buf := make([]byte, pieceBytes)
	for more := true; more && e.err == nil; e.spill() {
		n, err := io.ReadFull(p.From, buf)
		e.bytes(buf[:n])
		more = err == nil
		if !more && err != io.EOF && err != io.ErrUnexpectedEOF {
			e.err = err
		}
	}
	e.dst = append(e.dst, '"')
}

func (d *decoder) output(name string, p *[]byte) {
	var text string
	d.text(name, &text, always)
	*p = append((*p)[:0], text...)
}

func (d *decoder) content(name string, p *Content) { d.base64(name, &p.Bytes, always) }
