package wire

import (
	"bytes"
	"errors"
	"io"
	"os"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/iotest"

	"pgregory.net/rapid"

	"supervisor/internal/testproc"
)

func readLines(r *LineReader) (lines []string, err error) {
	for {
		line, err := r.Next()
		if err != nil {
			return lines, err
		}
		lines = append(lines, string(line))
	}
}

func TestLineReader(t *testing.T) {
	const limit = 10
	ten := strings.Repeat("x", limit)
	for _, c := range []struct {
		name, in string
		want     []string
		err      error
	}{
		{"empty", "", nil, io.EOF},
		{"LF", "a\nb\n", []string{"a", "b"}, io.EOF},
		{"CRLF", "a\r\nb\r\n", []string{"a", "b"}, io.EOF},
		{"blank lines", "\n\r\n \t\na\n\n", []string{"a"}, io.EOF},
		{"cut off", "a\nb", []string{"a"}, io.ErrUnexpectedEOF},
		{"blank rest", "a\n \r", []string{"a"}, io.EOF},
		{"only CR", "a\rb\n", []string{"a\rb"}, io.EOF},
		{"at the limit", ten + "\n" + ten + "\r\n", []string{ten, ten}, io.EOF},
		{"over the limit", "a\n" + ten + "x\nb\n", []string{"a"}, ErrLineTooLong},
		{"over the limit, no end", "a\n" + ten + "xx", []string{"a"}, ErrLineTooLong},
	} {
		t.Run(c.name, func(t *testing.T) {
			for _, src := range []io.Reader{strings.NewReader(c.in), iotest.OneByteReader(strings.NewReader(c.in)), iotest.DataErrReader(strings.NewReader(c.in))} {
				lines, err := readLines(NewLineReader(src, limit))
				if !slices.Equal(lines, c.want) || err != c.err {
					t.Errorf("got %q, %v; want %q, %v", lines, err, c.want, c.err)
				}
			}
		})
	}
}

// What is cut out of a stream does not depend on how it arrives.
func TestLineReaderPieces(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		lines := rapid.SliceOf(rapid.Map(rapid.IntRange(1, 9000), func(n int) string {
			return strings.Repeat("ab c", n/4) + "abcd"[:1+n%4]
		})).Draw(t, "lines")
		in := []byte(strings.Join(append(lines, ""), "\n"))
		src := &pieces{t, in}
		got, err := readLines(NewLineReader(src, 9004))
		if !slices.Equal(got, lines) || err != io.EOF {
			t.Fatalf("got %d lines, %v; want %d", len(got), err, len(lines))
		}
	})
}

// pieces is a reader that gives a few bytes, sometimes none and a timeout.
type pieces struct {
	t    *rapid.T
	rest []byte
}

func (p *pieces) Read(b []byte) (int, error) {
	if len(p.rest) == 0 {
		return 0, io.EOF
	}
	n := copy(b, p.rest[:min(len(p.rest), rapid.IntRange(1, 5000).Draw(p.t, "n"))])
	p.rest = p.rest[n:]
	return n, nil
}

// A deadline in the middle of a line loses nothing of it.
func TestLineReaderGoesOnAfterDeadline(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	defer w.Close()
	lines := NewLineReader(&lateReader{r: r}, 100)
	w.WriteString("ab")
	if _, err := lines.Next(); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatal(err)
	}
	w.WriteString("c\n")
	if line, err := lines.Next(); string(line) != "abc" || err != nil {
		t.Fatalf("%q, %v", line, err)
	}
}

// lateReader fails every second read with a passed deadline.
type lateReader struct {
	r    io.Reader
	late bool
}

func (l *lateReader) Read(p []byte) (int, error) {
	l.late = !l.late
	if !l.late {
		return 0, os.ErrDeadlineExceeded
	}
	return l.r.Read(p)
}

// An endless line costs no more than the limit and its last doubling.
func TestLineReaderMemory(t *testing.T) {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	_, err := NewLineReader(endless{}, 1<<20).Next()
	runtime.ReadMemStats(&after)
	if got := after.TotalAlloc - before.TotalAlloc; err != ErrLineTooLong || got > 7<<19 {
		t.Fatalf("%v after %d bytes allocated", err, got)
	}
}

type endless struct{}

func (endless) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = 'x'
	}
	return len(p), nil
}

func FuzzFrame(f *testing.F) {
	f.Add([]byte("a\r\n\n{}\nrest"))
	f.Fuzz(func(t *testing.T, in []byte) {
		const limit = 64
		var lines []string
		var err error
		testproc.AllocatesLike(t, in, 64, func() {
			lines, err = readLines(NewLineReader(iotest.HalfReader(bytes.NewReader(in)), limit))
		})
		if err != io.EOF && err != io.ErrUnexpectedEOF && err != ErrLineTooLong {
			t.Fatal(err)
		}
		for _, line := range lines {
			if len(line) > limit || strings.Contains(line, "\n") || !bytes.Contains(in, []byte(line)) {
				t.Fatalf("line %q", line)
			}
		}
	})
}
