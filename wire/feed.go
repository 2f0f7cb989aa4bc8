package wire

import (
	"strconv"
	"time"
)

// Times of the events of the agent front.
const (
	quietFor  = 100 * time.Millisecond // after which an unfinished line is a prompt
	lateAfter = 2 * time.Second        // an exit waits so long for streams that a descendant holds
)

var streamTypes = [2]string{"stdout", "stderr"}

// feed makes events of one process.
type feed struct {
	proc  SessionProc
	row   SessionRow // as it was last looked at
	taps  [2]tap
	ended time.Time // when the exit was first seen
	told  bool      // the backend knows that the exit is on its way
}

// tap reads one stream at its own offset.
type tap struct {
	offset int64     // everything before it was made into events
	end    int64     // of the stream, when it was last looked at
	grew   time.Time // when end was seen to move
	late   bool      // end stays: what comes after it is not sent
	over   bool      // nothing more will be read
	wake   time.Time // when what is held back becomes a prompt; zero: never
}

// cursor is how far the feed is.
func (f *feed) cursor(done bool) ProcCursor {
	return ProcCursor{f.row.ProcID, [2]int64{f.taps[0].offset, f.taps[1].offset}, done}
}

// settled tells whether the registry knows that the exit was delivered, or has
// forgotten the process.
func (f *feed) settled() bool {
	row := f.proc.Row()
	select {
	case <-row.Replaced:
		newer := f.proc.Row()
		return newer.Delivered || newer.Replaced == row.Replaced
	default:
		return row.Delivered
	}
}

// sink takes the events of a feed. It reports whether it takes another.
type sink func(f *feed, stream string, data []byte) bool

// pull makes events of what there is, with buf as memory for the bytes. It
// reports false when the sink was full before the end; done is true when the
// last event, the exit, was among them.
func (f *feed) pull(now time.Time, buf []byte, to sink) (drained, done bool) {
	f.row = f.proc.Row() // before the streams: what it says is over, is
	if !f.row.Running && f.ended.IsZero() {
		f.ended = now
	}
	late := !f.ended.IsZero() && now.Sub(f.ended) >= lateAfter
	over := true
	for i := range f.taps {
		t := &f.taps[i]
		if !t.pull(f.proc.Output(i), now, late, buf, func(data []byte) bool { return to(f, streamTypes[i], data) }) {
			return false, false
		}
		over = over && t.over
	}
	if f.row.Running || !over {
		return true, false
	}
	to(f, f.exitStream(), f.exitData())
	return true, true
}

// wakeAt is the earliest time at which pull has something to do although
// nothing happened; zero is never.
func (f *feed) wakeAt() time.Time {
	at := earlier(f.taps[0].wake, f.taps[1].wake)
	if !f.ended.IsZero() {
		at = earlier(at, f.ended.Add(lateAfter))
	}
	return at
}

// earlier is the earlier one of two times, of which a zero one is never.
func earlier(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

// exitStream and exitData are the event of the exit.
func (f *feed) exitStream() string {
	switch f.row.status() {
	case statusKilled, statusTimedOut:
		return "killed"
	case statusCompleted:
		return streamTypes[0]
	}
	return streamTypes[1]
}

func (f *feed) exitData() []byte {
	if f.exitStream() == "killed" {
		return []byte("{}")
	}
	return append(strconv.AppendInt([]byte(`{"code":`), int64(f.row.ExitCode), 10), '}')
}

// pull makes events of what there is of a stream. With final nothing is read
// of it that comes later, however long it takes to send what there is. It
// reports false when to was full before the end.
func (t *tap) pull(out Output, now time.Time, final bool, buf []byte, to func(data []byte) bool) bool {
	if t.over {
		return true
	}
	ended := out.Ended() || final // before its end is looked at
	if !t.late {
		t.look(out.End(), now)
	}
	t.late = t.late || final
	quiet := now.Sub(t.grew) >= quietFor
	t.wake = time.Time{}
	for t.offset < t.end {
		b, ok := t.read(out, buf, to)
		if !ok {
			return false
		}
		atEnd := t.offset+int64(len(b)) >= t.end
		n, more := t.cut(b, ended && atEnd, quiet && atEnd, to)
		if !more {
			return false
		}
		if n == 0 && atEnd {
			if !quiet {
				t.wake = t.grew.Add(quietFor)
			}
			break
		}
	}
	t.over = ended && t.offset >= t.end
	return true
}

// look notes where the stream ends by now.
func (t *tap) look(end int64, now time.Time) {
	if end != t.end || t.grew.IsZero() {
		t.end, t.grew = end, now
	}
}

// read takes bytes from the offset on. Those that were lost are told of first;
// a stream that cannot be read is lost to its end.
func (t *tap) read(out Output, buf []byte, to func(data []byte) bool) (b []byte, ok bool) {
	n, first, err := out.ReadAt(buf[:min(int64(len(buf)), t.end-t.offset)], t.offset)
	if err != nil || n == 0 || first >= t.end {
		n, first = 0, t.end
	}
	dropped := first - t.offset
	if dropped <= 0 {
		return buf[:n], true
	}
	t.offset = first
	n = int(min(int64(n), t.end-first))
	data := append(strconv.AppendInt([]byte(`{"text":"","dropped":`), dropped, 10), '}')
	return buf[:n], to(data)
}

// cut makes events of the bytes at the offset, and moves it. n is how many
// bytes that were.
func (t *tap) cut(b []byte, ended, quiet bool, to func(data []byte) bool) (n int, ok bool) {
	for n < len(b) {
		size, partial := nextPiece(b[n:], ended, quiet)
		if size == 0 {
			break
		}
		piece := b[n : n+size]
		n += size
		t.offset += int64(size)
		if !to(textData(piece, partial)) {
			return n, false
		}
	}
	return n, true
}

// textData is the data of an event that carries text.
func textData(piece []byte, partial bool) []byte {
	text, valid := textOf(piece)
	e := encoder{dst: append(make([]byte, 0, len(text)+32), '{')}
	e.text("text", &text, always)
	if !valid {
		e.base64("base64", &piece, always)
	}
	e.flag("partial", &partial, nonzero)
	return append(e.dst, '}')
}
