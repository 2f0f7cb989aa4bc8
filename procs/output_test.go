package procs

import (
	"strings"
	"testing"
	"time"

	"supervisor/internal/testproc"
)

// C01: a character split over two writes comes through as its bytes.
func TestC01SplitCharacter(t *testing.T) {
	w := newWorld(t)
	r := w.run(sh(`printf '\342\202'; sleep .1; printf '\254\n'`))
	if r.stdout != "\xe2\x82\xac\n" {
		t.Errorf("%q", r.stdout)
	}
}

// C02: bytes that are no UTF-8 stop nothing.
func TestC02AnyBytes(t *testing.T) {
	w := newWorld(t)
	r := w.run(sh(`printf '\377\376\000\r\n\303\050\n'; sleep .1; echo later`))
	if r.stdout != "\xff\xfe\x00\r\n\xc3\x28\nlater\n" {
		t.Errorf("%q", r.stdout)
	}
}

// C03: the end of a terminal loses no byte and is no error.
func TestC03TerminalTail(t *testing.T) {
	w := newWorld(t)
	handles := make([]string, 200)
	for i := range handles {
		handles[i] = w.launch(onPTY(sh(`head -c 20480 /dev/zero | tr '\0' h`)))
	}
	for _, h := range handles {
		r := w.finish(h)
		if len(r.stdout) != 20480 || r.stderr != "" || r.exit.Status != (Status{Known: true}) {
			t.Errorf("%s: %d bytes, stderr %q, %+v", h, len(r.stdout), r.stderr, r.exit.Status)
		}
		w.Forget(h)
	}
}

// C05: the exit is seen at once although a descendant holds the pipe, and the
// pipe is read to its end, with no SIGPIPE for the descendant.
func TestC05GrandchildHoldsThePipe(t *testing.T) {
	w := newWorld(t)
	file := t.TempDir() + "/F"
	began := time.Now()
	h := w.begin(sh(`(for i in 1 2 3 4 5; do sleep .1; echo t$i || exit 9; done; touch ` + file + `) & exit 0`))
	await[Exited](w, h)
	if took := time.Since(began); took > 400*time.Millisecond {
		t.Errorf("the exit was seen after %v", took)
	}
	if _, closed := awaitOr[Closed](w, h, 0); closed {
		t.Error("closed before the descendant ended")
	}
	if r := w.finish(h); r.stdout != "t1\nt2\nt3\nt4\nt5\n" {
		t.Errorf("%q", r.stdout)
	}
	if !testproc.Eventually(patience, func() bool { return exists(file) }) {
		t.Error("the descendant did not get to its end")
	}
}

// A process may close both streams and run on: Closed comes first.
func TestClosedBeforeExited(t *testing.T) {
	w := newWorld(t)
	h := w.begin(sh(`echo x; exec >&- 2>&-; read line; exit 7`))
	c := await[Closed](w, h)
	if c.StdoutLen != 2 || string(c.StdoutTail) != "x\n" {
		t.Errorf("%+v", c)
	}
	if _, exited := awaitOr[Exited](w, h, 0); exited {
		t.Error("it has exited already")
	}
	w.Stdin(h, nil, true, func(int, error) {})
	if e := await[Exited](w, h); e.Status.Code != 7 {
		t.Errorf("%+v", e.Status)
	}
}

// Closed carries the last TailBytes of each stream.
func TestTails(t *testing.T) {
	w := newWorld(t)
	h := w.begin(Spec{Argv: testproc.Argv("burst", "1600")})
	c := await[Closed](w, h)
	want := testproc.Line(96) + testproc.Line(97) + testproc.Line(98) + testproc.Line(99)
	if string(c.StdoutTail) != want || c.StderrTail != nil || c.StderrLen != 0 {
		t.Errorf("%q", c.StdoutTail)
	}
}

// A reader that waits gets the next byte at once: it ends the pump's rest,
// which would last an hour here.
func TestReaderIsNotDelayedByTheRest(t *testing.T) {
	w := newWorld(t)
	h := w.begin(sh(`while read line; do echo $line; done`))
	p := w.lookup(h)
	p.mu.Lock()
	p.streams[Stdout].rest = time.Hour
	p.mu.Unlock()
	r := w.Output(h, Stdout)
	w.say(h, "one\n", false)
	if !testproc.Eventually(patience, func() bool { return r.End() == 4 }) {
		t.Fatal("no output")
	}
	w.say(h, "two\n", false)
	select {
	case <-r.Changed():
	case <-time.After(patience):
		t.Error("the reader waits for the rest")
	}
	if got := w.read(h, Stdout); got != "one\ntwo\n" {
		t.Errorf("%q", got)
	}
}

// One flooding process starves no other.
func TestFloodStarvesNobody(t *testing.T) {
	w := newWorld(t)
	for range 4 {
		w.begin(Spec{Argv: testproc.Argv("flood")})
	}
	h := w.begin(sh(`for i in 1 2 3 4 5 6 7 8 9 10; do echo $i; sleep .01; done`))
	r := w.finish(h)
	if r.stdout != "1\n2\n3\n4\n5\n6\n7\n8\n9\n10\n" {
		t.Errorf("%q", r.stdout)
	}
}

// What a slow reader gets while the window runs away from it is right, or it
// is told exactly what it lost.
func TestReaderBehindTheWindow(t *testing.T) {
	w := newWorld(t)
	h := w.begin(Spec{Argv: testproc.Argv("flood")})
	r := w.Output(h, Stdout)
	buf := make([]byte, 4096)
	off := int64(0)
	for gaps := 0; gaps < 20; {
		n, first, err := r.ReadAt(buf, off)
		if err != nil {
			t.Fatal(err)
		}
		at := max(off, first)
		if first > off {
			gaps++
		}
		want := linesAt(at, n)
		if string(buf[:n]) != want {
			t.Fatalf("at %d: %q, want %q", at, buf[:n], want)
		}
		off = at + int64(n)
	}
	_ = w.Signal(h, 9, true)
}

// A collected record's descendants still write to their end: nothing fills up.
func TestForgottenPipesArePumped(t *testing.T) {
	w := newWorld(t)
	file := t.TempDir() + "/F"
	h := w.begin(sh(`(head -c 1000000 /dev/zero; read x </dev/null; head -c 1000000 /dev/zero; touch ` + file + `) & echo x`))
	await[Exited](w, h)
	w.Forget(h)
	if !testproc.Eventually(patience, func() bool { return exists(file) }) {
		t.Error("the descendant hangs at a full pipe")
	}
	gone := func() bool { return !exists(w.opt.Dir + "/" + h) }
	if !testproc.Eventually(patience, gone) {
		t.Error("rings of a forgotten process are left")
	}
	if _, closed := awaitOr[Closed](w, h, 0); closed {
		t.Error("something was observed after Forget")
	}
}

// linesAt is what burst and flood write at an offset.
func linesAt(off int64, n int) string {
	var b strings.Builder
	for i := off / 16; b.Len() < n+16; i++ {
		b.WriteString(testproc.Line(i))
	}
	return b.String()[off%16:][:n]
}

// A full disk costs the readers the bytes that could not be stored, exactly
// counted, and the process goes on.
func TestFullDisk(t *testing.T) {
	w := newWorld(t, func(o *Options) { o.Dir = smallDisk(t, "64k") })
	h := w.begin(Spec{Argv: testproc.Argv("burst", "1000000")})
	c := await[Closed](w, h)
	r := w.Output(h, Stdout)
	if c.StdoutLen != 1000000 || r.End() != 1000000 {
		t.Errorf("%d bytes were seen, the ring ends at %d", c.StdoutLen, r.End())
	}
	if got := w.read(h, Stdout); got != linesAt(r.First(), int(r.End()-r.First())) {
		t.Errorf("from %d: %d bytes, not those that were written", r.First(), len(got))
	}
	if c.StdoutSHA256 != "" || c.StderrSHA256 != digestOf("") {
		t.Errorf("digests %q and %q", c.StdoutSHA256, c.StderrSHA256)
	}
	if got := r.First(); got <= 1000000-262144 {
		t.Errorf("the disk was not full: first is %d", got)
	}
}
