package wire

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

// stream is an Output that a test writes.
type stream struct {
	bytes []byte
	first int64 // oldest offset held
	over  bool
}

func (s *stream) End() int64               { return int64(len(s.bytes)) }
func (s *stream) Ended() bool              { return s.over }
func (s *stream) Changed() <-chan struct{} { return nil }
func (s *stream) ReadAt(dst []byte, off int64) (n int, first int64, err error) {
	return copy(dst, s.bytes[max(off, s.first):]), s.first, nil
}

// said is the data of a text event.
type said struct {
	Text    string `json:"text"`
	Base64  []byte `json:"base64"`
	Partial bool   `json:"partial"`
	Dropped int64  `json:"dropped"`
}

// raw are the bytes that an event stands for.
func (s said) raw() []byte {
	if s.Base64 != nil {
		return s.Base64
	}
	return []byte(s.Text)
}

// listener collects the events of one stream, at most batch at a pull.
type listener struct {
	t     testing.TB
	tap   tap
	buf   []byte
	said  []said
	batch int
}

func listening(t testing.TB) *listener {
	return &listener{t: t, buf: make([]byte, maxPiece), batch: 1 << 30}
}

func (l *listener) pull(s *stream, now time.Time, final bool) {
	for full := true; full; {
		room := l.batch
		full = !l.tap.pull(s, now, final, l.buf, func(data []byte) bool {
			var d said
			if err := json.Unmarshal(data, &d); err != nil {
				l.t.Fatalf("%q: %v", data, err)
			}
			l.said = append(l.said, d)
			room--
			return room > 0
		})
	}
}

func (l *listener) all() []byte {
	var out []byte
	for _, d := range l.said {
		out = append(out, d.raw()...)
	}
	return out
}

// drawOutput draws what programs print: lines, characters of every length,
// bytes that are none, and lines longer than a piece.
func drawOutput(t *rapid.T) []byte {
	parts := rapid.SliceOfN(rapid.SampledFrom([]string{
		"a", "line\n", "\n", "é", "日本語", "😀", "\xff", "\xe6\x97", "\r\n", "\x00", "\xed\xa0\x80",
		strings.Repeat("語", 30_000), strings.Repeat("y", maxPiece-1), strings.Repeat("\xff", 1000),
	}), 0, 12).Draw(t, "parts")
	return []byte(strings.Join(parts, ""))
}

// However the bytes of a stream come, and however small the batches are, the
// events are the same; together they are the bytes, and each is a line, a piece
// of a long one, or the end.
func TestAnySplitGivesTheSameEvents(t *testing.T) {
	start := time.Unix(1000, 0)
	rapid.Check(t, func(rt *rapid.T) {
		out := drawOutput(rt)
		whole := listening(t)
		whole.pull(&stream{bytes: out, over: true}, start, false)

		parts := listening(t)
		parts.batch = rapid.IntRange(1, 4).Draw(rt, "batch")
		cuts := rapid.SliceOfN(rapid.IntRange(0, len(out)), 0, 6).Draw(rt, "cuts")
		slices.Sort(cuts)
		for _, n := range cuts {
			parts.pull(&stream{bytes: out[:n]}, start, false)
		}
		parts.pull(&stream{bytes: out, over: true}, start, false)

		if diff := cmp.Diff(whole.said, parts.said); diff != "" {
			rt.Fatalf("whole, then in parts: %s", diff)
		}
		if !bytes.Equal(whole.all(), out) {
			rt.Fatal("the events are not the bytes")
		}
		for i, d := range whole.said {
			checkPiece(rt, d, i == len(whole.said)-1)
		}
		if !whole.tap.over {
			rt.Fatal("the stream has ended, and more is expected")
		}
	})
}

func checkPiece(t *rapid.T, d said, last bool) {
	b := d.raw()
	end := bytes.IndexByte(b, '\n')
	switch {
	case d.Partial || d.Dropped != 0:
		t.Fatalf("%+v: no quiet, no gap", d)
	case len(b) > maxPiece || len(b) == 0:
		t.Fatalf("a piece of %d bytes", len(b))
	case end >= 0 && end != len(b)-1:
		t.Fatalf("%q is more than a line", b)
	case end < 0 && !last && len(b) <= maxPiece-utf8.UTFMax:
		t.Fatalf("%d bytes, and no line", len(b))
	case (d.Base64 == nil) != utf8.Valid(b):
		t.Fatalf("base64 beside valid text, or none: %q", b)
	}
}

// With pauses anywhere, a prompt is sent early, its rest later, nothing twice.
func TestPausesLoseNothing(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		out, l, now := drawOutput(rt), listening(t), time.Unix(1000, 0)
		cuts := rapid.SliceOfN(rapid.IntRange(0, len(out)), 0, 6).Draw(rt, "cuts")
		slices.Sort(cuts)
		for _, n := range cuts {
			now = now.Add(time.Duration(rapid.IntRange(0, 150).Draw(rt, "ms")) * time.Millisecond)
			l.pull(&stream{bytes: out[:n]}, now, false)
		}
		l.pull(&stream{bytes: out, over: true}, now, false)
		if !bytes.Equal(l.all(), out) {
			rt.Fatal("the events are not the bytes")
		}
		if utf8.Valid(out) && slices.ContainsFunc(l.said, func(d said) bool { return d.Base64 != nil }) {
			rt.Fatal("a character was split")
		}
	})
}

func TestPrompt(t *testing.T) {
	l, now := listening(t), time.Unix(1000, 0)
	s := &stream{bytes: []byte("ready\n>>> \xe6")}
	l.pull(s, now, false)
	if len(l.said) != 1 || l.tap.wake != now.Add(quietFor) {
		t.Fatalf("%+v, to be looked at %v", l.said, l.tap.wake)
	}
	now = now.Add(quietFor)
	l.pull(s, now, false)
	if d := l.said[1]; d.Text != ">>> " || !d.Partial || !l.tap.wake.IsZero() {
		t.Fatalf("a prompt: %+v, to be looked at %v", d, l.tap.wake)
	}
	s.bytes = append(s.bytes, "\x97\xa5\n"...)
	l.pull(s, now, false)
	if d := l.said[2]; d.Text != "日\n" || d.Partial {
		t.Fatalf("its rest: %+v", d)
	}
}

func TestBadBytes(t *testing.T) {
	l := listening(t)
	l.pull(&stream{bytes: []byte("a\xff\xfeb\n\xe6\x97"), over: true}, time.Unix(1000, 0), false)
	want := []said{
		{Text: "a\ufffd\ufffdb\n", Base64: []byte("a\xff\xfeb\n")},
		{Text: "\ufffd\ufffd", Base64: []byte("\xe6\x97")},
	}
	if diff := cmp.Diff(want, l.said); diff != "" {
		t.Error(diff)
	}
}

// A reader that fell behind is told how many bytes it lost.
func TestGap(t *testing.T) {
	l := listening(t)
	l.pull(&stream{bytes: []byte("gone\nhere\n"), first: 5, over: true}, time.Unix(1000, 0), false)
	want := []said{{Dropped: 5}, {Text: "here\n"}}
	if diff := cmp.Diff(want, l.said); diff != "" {
		t.Error(diff)
	}
}

// What a descendant holds open is not waited for longer than that.
func TestLateStream(t *testing.T) {
	l := listening(t)
	l.pull(&stream{bytes: []byte("no end")}, time.Unix(1000, 0), true)
	if !l.tap.over || len(l.said) != 1 || l.said[0].Text != "no end" || l.said[0].Partial {
		t.Errorf("%+v, over: %v", l.said, l.tap.over)
	}
}

// A descendant that writes faster than anybody reads does not hold back the
// end: what came after it is not sent, nor counted as lost.
func TestLateStreamThatGrows(t *testing.T) {
	l, s := listening(t), &stream{bytes: []byte("one\ntwo\n")}
	for pulls := 0; !l.tap.over; pulls++ {
		if pulls == 10 {
			t.Fatalf("it does not end: %+v", l.said)
		}
		l.tap.pull(s, time.Unix(1000, 0), true, l.buf, func(data []byte) bool {
			l.said = append(l.said, said{Text: string(data)})
			return false
		})
		s.bytes = append(s.bytes, "more\n"...)
		if pulls == 0 {
			s.first = int64(len(s.bytes)) // the ring is overrun
		}
	}
	want := []said{{Text: `{"text":"one\n"}`}, {Text: `{"text":"","dropped":4}`}}
	if diff := cmp.Diff(want, l.said); diff != "" {
		t.Error(diff)
	}
}
