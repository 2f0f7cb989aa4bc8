package procs

import (
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"supervisor/internal/testproc"
)

// answer is what a stdin write was answered.
type answer struct {
	written int
	err     error
}

// say writes to stdin and returns where the answer will come.
func (w *world) say(handle, data string, closeAfter bool) <-chan answer {
	c := make(chan answer, 1)
	w.Stdin(handle, []byte(data), closeAfter, func(n int, err error) { c <- answer{n, err} })
	return c
}

func shortDeadline(o *Options) { o.StdinDeadline = 300 * time.Millisecond }

// C15: a process that does not read costs its writer the deadline, and nobody
// else anything. Writes behind it have their own deadline.
func TestC15StdinDeadline(t *testing.T) {
	w := newWorld(t, shortDeadline)
	deaf := w.begin(sh("exec sleep 60"))
	other := w.begin(sh("cat"))
	began := time.Now()
	first := w.say(deaf, strings.Repeat("x", 1<<20), false)
	second := w.say(deaf, "y", false)
	if a := <-w.say(other, "hello\n", true); a.written != 6 || a.err != nil {
		t.Errorf("the other process: %+v", a)
	}
	if took := time.Since(began); took > 200*time.Millisecond {
		t.Errorf("the other process was delayed by %v", took)
	}
	if a := <-first; a.written != 65536 || !errors.Is(a.err, os.ErrDeadlineExceeded) {
		t.Errorf("first: %+v", a)
	}
	if took := time.Since(began); took < 300*time.Millisecond {
		t.Errorf("the first deadline came after %v", took)
	}
	if a := <-second; a.written != 0 || !errors.Is(a.err, os.ErrDeadlineExceeded) {
		t.Errorf("second: %+v", a)
	}
	if took := time.Since(began); took < 600*time.Millisecond {
		t.Errorf("the second deadline came after %v", took)
	}
}

// C15: a process that closed its stdin is an error at once.
func TestC15StdinClosedByTheProcess(t *testing.T) {
	w := newWorld(t)
	h := w.begin(sh("exec <&-; echo ready; exec sleep 60"))
	w.awaitOutput(h, "ready")
	for range 2 {
		if a := <-w.say(h, "x", false); a.written != 0 || !errors.Is(a.err, ErrStdinClosed) {
			t.Errorf("%+v", a)
		}
	}
}

// A write that waits is answered when the process closes its stdin, and when it ends.
func TestStdinBreaksWhileWaiting(t *testing.T) {
	w := newWorld(t)
	for script, want := range map[string]error{
		"sleep .2; exec <&-; exec sleep 60": ErrStdinClosed,
		"sleep .2":                          ErrNotRunning,
	} {
		h := w.begin(sh(script))
		a := <-w.say(h, strings.Repeat("x", 100_000), false)
		// A dying process closes its descriptors before it can be reaped.
		if a.written != 65536 || !errors.Is(a.err, want) && !errors.Is(a.err, ErrStdinClosed) {
			t.Errorf("%s: %+v", script, a)
		}
	}
}

func TestStdinErrors(t *testing.T) {
	w := newWorld(t)
	null := sh("exec sleep 60")
	null.StdinNull = true
	h := w.begin(null)
	if a := <-w.say(h, "x", false); !errors.Is(a.err, ErrStdinClosed) {
		t.Errorf("without stdin: %+v", a)
	}
	h = w.begin(sh("cat; sleep 60"))
	if a := <-w.say(h, "x", true); a.written != 1 || a.err != nil {
		t.Errorf("close: %+v", a)
	}
	if a := <-w.say(h, "", true); !errors.Is(a.err, ErrStdinClosed) {
		t.Errorf("after close: %+v", a)
	}
	_ = w.Signal(h, 9, true)
	w.finish(h)
	for _, h := range []string{h, "p_unknown"} {
		if a := <-w.say(h, "x", false); !errors.Is(a.err, ErrNotRunning) {
			t.Errorf("%s: %+v", h, a)
		}
	}
}

// Many writes arrive whole and in order, though the reader is slower.
func TestStdinOrder(t *testing.T) {
	w := newWorld(t, func(o *Options) { o.RingBytes = 8 << 20 })
	h := w.begin(sh("sleep .1; cat"))
	var want strings.Builder
	for i := range int64(200) {
		piece := strings.Repeat(testproc.Line(i), 1000)
		want.WriteString(piece)
		w.say(h, piece, i == 199)
	}
	if r := w.finish(h); r.stdout != want.String() {
		t.Errorf("%d bytes came back of %d, or in another order", len(r.stdout), want.Len())
	}
}

// C16: a line longer than the terminal takes hangs nothing.
func TestC16LongTerminalLine(t *testing.T) {
	w := newWorld(t)
	h := w.begin(onPTY(sh("stty -echo; echo ready; head -n 1 | wc -c")))
	w.awaitOutput(h, "ready")
	if a := <-w.say(h, strings.Repeat("a", 5000)+"\n", false); a.written != 5001 || a.err != nil {
		t.Errorf("%+v", a)
	}
	if r := w.finish(h); !strings.HasSuffix(r.stdout, "\r\n4096\r\n") { // 4095 and the line end
		t.Errorf("%q", r.stdout)
	}
}

// C16: in raw mode every byte arrives that was said to be written.
func TestC16RawTerminal(t *testing.T) {
	w := newWorld(t, shortDeadline, func(o *Options) { o.RingBytes = 8 << 20 })
	const n = 500_000
	h := w.begin(onPTY(sh("stty raw -echo; echo ready; sleep .05; head -c 500000")))
	w.awaitOutput(h, "ready")
	if a := <-w.say(h, strings.Repeat("b", n), false); a.written != n || a.err != nil {
		t.Errorf("%+v", a)
	}
	if r := w.finish(h); strings.Count(r.stdout, "b") != n {
		t.Errorf("%d bytes came back", strings.Count(r.stdout, "b"))
	}
	h = w.begin(onPTY(sh("stty raw -echo; echo ready; exec sleep 60")))
	w.awaitOutput(h, "ready")
	if a := <-w.say(h, strings.Repeat("b", n), false); a.written >= n || !errors.Is(a.err, os.ErrDeadlineExceeded) {
		t.Errorf("nobody reads, but %+v", a)
	}
}

// On a terminal closeAfter is the end-of-file character, and closes nothing.
func TestTerminalEndOfFile(t *testing.T) {
	w := newWorld(t)
	for _, data := range []string{"line\n", "unfinished", ""} {
		h := w.begin(onPTY(sh("stty -echo; echo ready; cat; cat; cat; cat; echo end")))
		w.awaitOutput(h, "ready")
		if a := <-w.say(h, data, true); a.written != len(data) || a.err != nil {
			t.Errorf("%q: %+v", data, a)
		}
		if a := <-w.say(h, "more\n", true); a.written != 5 || a.err != nil {
			t.Errorf("%q: %+v", data, a)
		}
		for range 2 { // one each: no more than a cat is ended
			w.say(h, "", true)
		}
		want := "ready\r\n" + strings.ReplaceAll(data, "\n", "\r\n") + "more\r\nend\r\n"
		if r := w.finish(h); r.stdout != want {
			t.Errorf("%q: %q", data, r.stdout)
		}
	}
}
