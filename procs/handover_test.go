package procs

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"supervisor/internal/testproc"
)

// handOver parks w and gives what it carries to another Table, as an execve
// would: descriptors under other numbers, which w may close then.
func handOver(t *testing.T, w *world) *world {
	t.Helper()
	w.Park()
	heir := anotherWorld(t, func(o *Options) { o.Dir = w.opt.Dir })
	heir.Park()
	for _, c := range w.Carried() {
		for _, fd := range []*int{&c.PidFD, &c.Stdin, &c.Output[Stdout], &c.Output[Stderr]} {
			if *fd < 0 {
				continue
			}
			var err error
			if *fd, err = unix.FcntlInt(uintptr(*fd), unix.F_DUPFD_CLOEXEC, 3); err != nil {
				t.Fatal(err)
			}
		}
		if err := heir.Inherit(c); err != nil {
			t.Fatal(err)
		}
	}
	return heir
}

// What a process wrote, how far its streams are and how it ends pass from one
// Table to the next, also what happened in between.
func TestHandOver(t *testing.T) {
	w := newWorld(t)
	w.Start("a", Spec{Argv: []string{"/bin/sh", "-c", "echo one; read x; echo $x; exit 7"}, Cwd: "/"})
	await[Spawned](w, "a")
	testproc.Eventually(patience, func() bool { return w.Output("a", Stdout).End() == 4 })
	heir := handOver(t, w)
	heir.Resume()
	heir.Stdin("a", []byte("two\n"), false, nil)
	if e := await[Exited](heir, "a"); e.Status.Code != 7 {
		t.Errorf("ended as %+v", e)
	}
	if c := await[Closed](heir, "a"); c.StdoutLen != 8 || string(c.StdoutTail) != "one\ntwo\n" || strings.Trim(c.StdoutSHA256, "0123456789abcdef") != "" {
		t.Errorf("closed with %+v", c)
	}
	if n := len(heir.orphans.own); n != 0 {
		t.Errorf("%d children have an owner", n)
	}
}

// The end of a stream is carried where its files do not tell it, because what
// came was lost to a full disk.
func TestHandOverAfterLoss(t *testing.T) {
	w := newWorld(t)
	w.Start("a", Spec{Argv: []string{"/bin/sh", "-c", "read x; echo two"}, Cwd: "/"})
	await[Spawned](w, "a")
	w.lookup("a").rings[Stdout].skip(1000)
	heir := handOver(t, w)
	if end, first := heir.Output("a", Stdout).End(), heir.Output("a", Stdout).First(); end != 1000 || first != 1000 {
		t.Errorf("the stream begins at %d and ends at %d", first, end)
	}
	heir.Resume()
	heir.Stdin("a", []byte("x\n"), false, nil)
	if c := await[Closed](heir, "a"); c.StdoutLen != 1004 || string(c.StdoutTail) != "two\n" {
		t.Errorf("closed with %+v", c)
	}
	await[Exited](heir, "a")
}

// A descriptor that is not what it should be fails, and closes nothing.
func TestInheritFails(t *testing.T) {
	w := newWorld(t)
	w.Park()
	null, err := unix.Open("/dev/null", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(null)
	c := Carried{Handle: "a", PidFD: -1, Stdin: -1, Output: [2]int{null, -1}}
	if err := w.Inherit(c); !errors.Is(err, unix.EPERM) { // epoll_ctl(2): a file that cannot be waited for
		t.Errorf("inherited with %v", err)
	}
	if _, err := unix.FcntlInt(uintptr(null), unix.F_GETFD, 0); err != nil {
		t.Error("it was closed: ", err)
	}
	w.lookup("a").streams[Stdout] = nil
	w.Resume()
}

// Output that cannot be read is not given up: whoever handed it over may be able
// to go on.
func TestInheritUnreadable(t *testing.T) {
	w := newWorld(t)
	ring := w.newProcess("a").rings[Stdout]
	if err := os.MkdirAll(filepath.Dir(ring.path(0)), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(ring.path(0), ring.path(0)); err != nil {
		t.Fatal(err)
	}
	w.Park()
	c := Carried{Handle: "a", PidFD: -1, Stdin: -1, Output: [2]int{-1, -1}, End: [2]int64{5, 0}}
	if err := w.Inherit(c); !errors.Is(err, unix.ELOOP) {
		t.Errorf("inherited with %v", err)
	}
	if err := w.Reopen("b"); err != nil {
		t.Errorf("output that is not there: %v", err)
	}
	w.Resume()
}

// A write that waits for its reader is answered with what it has written, a
// later one at once, and a Table that goes on lets them wait again.
func TestHoldStdin(t *testing.T) {
	w := newWorld(t)
	w.Start("a", Spec{Argv: []string{"/bin/sh", "-c", "sleep 60"}, Cwd: "/"})
	await[Spawned](w, "a")
	type result struct {
		written int
		err     error
	}
	done := make(chan result, 3)
	write := func() {
		w.Stdin("a", make([]byte, 1<<20), false, func(n int, err error) { done <- result{n, err} })
	}
	write()
	write()
	w.HoldStdin()
	w.Park()
	write()
	for _, want := range []int{65536, 0, 0} {
		select {
		case r := <-done:
			if r.written != want || !errors.Is(r.err, ErrParked) {
				t.Errorf("answered with %+v, not %d", r, want)
			}
		case <-time.After(patience):
			t.Fatal("no answer")
		}
	}
	w.ReleaseStdin()
	w.Resume()
	write()
	if err := w.Signal("a", 9, true); err != nil {
		t.Error(err)
	}
	await[Exited](w, "a")
	if r := <-done; !errors.Is(r.err, ErrNotRunning) && !errors.Is(r.err, ErrStdinClosed) {
		t.Errorf("answered with %+v", r)
	}
}
