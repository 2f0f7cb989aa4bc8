package wire

import (
	"bytes"
	"errors"
	"io"
	"sync"
	"sync/atomic"
)

// ErrLineTooLong is returned by LineReader.Next for a line above its limit.
// The rest of the input is unread and means nothing: close the connection.
var ErrLineTooLong = errors.New("line too long")

// ErrLinesTooLong is returned by LineReader.Next for a line that is too long as
// long as others are. It is final as well.
var ErrLinesTooLong = errors.New("too many long lines at once")

// A frame is one JSON object on one line, ended by LF or CRLF.

// firstBuffer is what a reader takes before it knows how long the line is.
const firstBuffer = 4 << 10

// keepBuffer is the largest buffer that goes back to the pool.
const keepBuffer = 1 << 20

var lineBuffers = sync.Pool{New: func() any {
	b := make([]byte, firstBuffer)
	return &b
}}

// longLines is the memory that the lines of all connections share, as far as one
// is longer than shortLine. Nobody waits for it, since a peer may hold it that
// never ends its line.
type longLines struct {
	taken atomic.Int64
}

const (
	longLinesBytes = 256 << 20 // sixteen of the longest lines
	shortLine      = 64 << 10
)

func (l *longLines) take(bytes int64) bool {
	if l.taken.Add(bytes) <= longLinesBytes {
		return true
	}
	l.taken.Add(-bytes)
	return false
}

// LineReader cuts a stream into lines. Its memory doubles with what has
// arrived and never follows a number that a peer sent. Not safe for concurrent
// use.
type LineReader struct {
	src  io.Reader
	max  int
	conn *Conn // if set, src; then no buffer is held while nothing arrives

	shared *longLines // nil: memory is the reader's own affair
	taken  int64      // of shared

	held       *[]byte // from lineBuffers; nil when nothing is buffered
	buf        []byte
	start, end int // what of buf is unread
	seen       int // bytes after start known to hold no LF
}

// NewLineReader reads lines of up to limit bytes, line end not counted. It
// keeps its buffer for life: for clients, whose connections are few and whose
// replies are large.
func NewLineReader(src io.Reader, limit int) *LineReader {
	return &LineReader{src: src, max: limit}
}

// newIdleReader reads lines of a connection that is mostly silent.
func newIdleReader(conn *Conn, limit int, shared *longLines) *LineReader {
	return &LineReader{src: conn, max: limit, conn: conn, shared: shared}
}

// Next returns the next line that is not blank, without its end. The slice is
// valid until the next call. At the end of the input it returns io.EOF, or
// io.ErrUnexpectedEOF where a line without its end was left; ErrLineTooLong and
// ErrLinesTooLong are final. After any other error, a passed deadline above all, Next may be
// called again and goes on where it was.
func (r *LineReader) Next() ([]byte, error) {
	for {
		line, ok := r.cut()
		switch {
		case !ok && r.end-r.start > r.max+1, len(line) > r.max:
			return nil, ErrLineTooLong
		case ok && !blank(line):
			return line, nil
		case ok:
			continue
		}
		if err := r.more(); err != nil {
			return nil, r.ended(err)
		}
	}
}

// unread is what was read beyond the last line, valid as that is.
func (r *LineReader) unread() []byte { return r.buf[r.start:r.end] }

// Release gives the buffer back, and what is unread with it.
func (r *LineReader) Release() {
	if r.held != nil && len(r.buf) <= keepBuffer {
		*r.held = r.buf
		lineBuffers.Put(r.held)
	}
	r.held, r.buf, r.start, r.end, r.seen = nil, nil, 0, 0, 0
	if r.taken > 0 {
		r.shared.taken.Add(-r.taken)
		r.taken = 0
	}
}

// cut takes one line off the buffer, if one is whole.
func (r *LineReader) cut() (line []byte, ok bool) {
	n := bytes.IndexByte(r.buf[r.start+r.seen:r.end], '\n')
	if n < 0 {
		r.seen = r.end - r.start
		return nil, false
	}
	n += r.seen
	line = r.buf[r.start : r.start+n]
	r.start, r.seen = r.start+n+1, 0
	return bytes.TrimSuffix(line, []byte{'\r'}), true
}

// more reads once.
func (r *LineReader) more() error {
	idle := r.start == r.end
	if idle {
		r.start, r.end, r.seen = 0, 0, 0
	}
	var n int
	var err error
	if idle && r.conn != nil {
		n, err = r.conn.readLate(r)
	} else {
		space := r.room()
		if space == nil {
			return ErrLinesTooLong
		}
		n, err = r.src.Read(space)
	}
	r.end += n
	if n > 0 {
		return nil // an error comes again with the next read
	}
	return err
}

// room returns space behind end, which it makes by taking a buffer, moving the
// unread bytes to the front, or doubling; nil where there is no memory for that.
func (r *LineReader) room() []byte {
	switch {
	case r.held == nil:
		r.held = lineBuffers.Get().(*[]byte)
		r.buf = *r.held
	case r.end < len(r.buf):
	case r.start > 0:
		r.end = copy(r.buf, r.buf[r.start:r.end])
		r.start = 0
	default:
		// Two bytes above the limit are enough to see that a line is over it.
		size := max(len(r.buf)+1, min(2*len(r.buf), r.max+2))
		if !r.reserve(size) {
			return nil
		}
		grown := make([]byte, size)
		r.end = copy(grown, r.buf[:r.end])
		r.buf = grown
	}
	return r.buf[r.end:]
}

// reserve takes what a buffer of that size needs of the shared memory.
func (r *LineReader) reserve(size int) bool {
	more := int64(size) - r.taken
	if r.shared == nil || size <= shortLine {
		return true
	}
	if !r.shared.take(more) {
		return false
	}
	r.taken += more
	return true
}

func (r *LineReader) ended(err error) error {
	if err == io.EOF && !blank(r.buf[r.start:r.end]) {
		return io.ErrUnexpectedEOF
	}
	return err
}

func blank(line []byte) bool { return len(bytes.Trim(line, " \t\r")) == 0 }
