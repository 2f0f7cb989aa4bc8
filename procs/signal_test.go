package procs

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"supervisor/internal/testproc"
)

// onBothKernels runs a test with group signals by pidfd and without, as below
// Linux 6.9.
func onBothKernels(t *testing.T, test func(t *testing.T, w *world)) {
	for _, pidfd := range []bool{true, false} {
		t.Run(fmt.Sprintf("pidfd=%v", pidfd), func(t *testing.T) {
			w := newWorld(t)
			if pidfd && !w.sys.groupSignals {
				t.Skip("this kernel has no group signals by pidfd")
			}
			w.sys.groupSignals = pidfd
			test(t, w)
		})
	}
}

func alive(pid int) bool {
	st, err := readStat(pid)
	return err == nil && st.state != 'Z'
}

// numbers reads pids that a script has printed, one a line.
func (w *world) numbers(h string, n int) []int {
	w.t.Helper()
	var pids []int
	ok := testproc.Eventually(patience, func() bool {
		pids = pids[:0]
		for _, word := range strings.Fields(w.read(h, Stdout)) {
			pid, _ := strconv.Atoi(word)
			pids = append(pids, pid)
		}
		return len(pids) == n
	})
	if !ok {
		w.t.Fatalf("%d pids, want %d", len(pids), n)
	}
	return pids
}

// C31: SIGKILL to the group reaches all that stayed in it; who left the
// session keeps the streams open and hangs nothing.
func TestC31KillGroup(t *testing.T) {
	onBothKernels(t, func(t *testing.T, w *world) {
		h := w.begin(sh(`setsid sh -c 'echo $$; exec sleep 301' & sleep 302 & echo $!; (sleep 303 & echo $!); sleep 304`))
		pids := w.numbers(h, 3)
		if err := w.Signal(h, syscall.SIGKILL, true); err != nil {
			t.Fatal(err)
		}
		if e := await[Exited](w, h); e.Status.Signal != syscall.SIGKILL {
			t.Errorf("%+v", e.Status)
		}
		left := func() int {
			n := 0
			for _, pid := range pids {
				if alive(pid) {
					n++
				}
			}
			return n
		}
		if !testproc.Eventually(patience, func() bool { return left() == 1 }) {
			t.Errorf("%d live on", left())
		}
		if _, closed := awaitOr[Closed](w, h, 50*time.Millisecond); closed {
			t.Error("closed although a descendant holds the streams")
		}
		for _, pid := range pids {
			_ = syscall.Kill(pid, syscall.SIGKILL) // of our own session's making
		}
		await[Closed](w, h)
	})
}

// A group is reached when its leader was reaped, and only then has leftovers.
func TestLeftovers(t *testing.T) {
	onBothKernels(t, func(t *testing.T, w *world) {
		h := w.begin(sh(`sleep 300 & echo $!; read x`))
		pid := w.numbers(h, 1)[0]
		if w.Leftovers(h) {
			t.Error("leftovers of a leader that lives")
		}
		w.say(h, "", true)
		await[Exited](w, h)
		if !w.Leftovers(h) {
			t.Error("no leftovers")
		}
		if err := w.Signal(h, syscall.SIGKILL, false); !errors.Is(err, ErrNotRunning) {
			t.Errorf("the leader alone: %v", err)
		}
		if err := w.Signal(h, syscall.SIGKILL, true); err != nil {
			t.Error(err)
		}
		if !testproc.Eventually(patience, func() bool { return !alive(pid) && !w.Leftovers(h) }) {
			t.Error("the leftover lives on")
		}
		if err := w.Signal(h, syscall.SIGKILL, true); !errors.Is(err, ErrNotRunning) {
			t.Errorf("an empty group: %v", err)
		}
	})
}

// Without group signals by pidfd: a group of the same number whose members
// are all younger than the last proof is a stranger's.
func TestRecycledGroupIsAStranger(t *testing.T) {
	w := newWorld(t)
	w.sys.groupSignals = false
	h := w.begin(sh(`sleep 300 & echo $!; read x`))
	pid := w.numbers(h, 1)[0]
	w.say(h, "", true)
	await[Exited](w, h)
	p := w.lookup(h)
	p.mu.Lock()
	p.provenAt = p.ticks - 1 // as if all of it had come later
	p.mu.Unlock()
	if w.Leftovers(h) || !alive(pid) {
		t.Error("a stranger was taken for a leftover")
	}
	_ = syscall.Kill(pid, syscall.SIGKILL)
}

// C18: signals that glibc uses for itself are signals like others.
func TestC18AllSignals(t *testing.T) {
	w := newWorld(t)
	for _, sig := range []syscall.Signal{32, 33, 34, 64} {
		h := w.begin(sh("exec sleep 60"))
		sibling := w.begin(sh("exec sleep 60"))
		if err := w.Signal(h, sig, true); err != nil {
			t.Error(err)
		}
		if e := await[Exited](w, h); e.Status.Signal != sig {
			t.Errorf("signal %d: %+v", int(sig), e.Status)
		}
		if err := w.Signal(sibling, syscall.SIGKILL, false); err != nil {
			t.Errorf("the sibling: %v", err)
		}
	}
	h := w.begin(sh("exec sleep 60"))
	for _, sig := range []syscall.Signal{-1, 65, 1000} {
		if err := w.Signal(h, sig, true); !errors.Is(err, unix.EINVAL) {
			t.Errorf("signal %d: %v", int(sig), err)
		}
	}
	if err := w.Signal(h, 0, true); err != nil {
		t.Errorf("it was touched: %v", err)
	}
}

// C19 at this level: SIGTERM ignored by the whole group, SIGKILL not.
func TestIgnoredTerm(t *testing.T) {
	w := newWorld(t)
	h := w.begin(Spec{Argv: testproc.Argv("ignoreterm")})
	w.awaitOutput(h, "ready")
	if err := w.Signal(h, syscall.SIGTERM, true); err != nil {
		t.Error(err)
	}
	if _, exited := awaitOr[Exited](w, h, 50*time.Millisecond); exited {
		t.Error("SIGTERM was not ignored")
	}
	_ = w.Signal(h, syscall.SIGKILL, true)
	if e := await[Exited](w, h); e.Status.Signal != syscall.SIGKILL {
		t.Errorf("%+v", e.Status)
	}
}

// Signals, resizes and exits that race never reach a stranger or crash.
func TestSignalRacesWithExit(t *testing.T) {
	w := newWorld(t)
	for range 100 {
		h := w.launch(onPTY(sh("exit 0")))
		for {
			err := w.Signal(h, syscall.SIGCONT, true)
			_ = w.Resize(h, 100, 50)
			if err != nil && !errors.Is(err, ErrNotRunning) {
				t.Error(err)
			}
			if _, ended := awaitOr[Closed](w, h, 0); ended {
				break
			}
		}
	}
}

// C17: a new size raises one SIGWINCH, the same again none.
func TestC17Resize(t *testing.T) {
	w := newWorld(t)
	h := w.begin(onPTY(Spec{Argv: testproc.Argv("winch")}))
	w.awaitOutput(h, "ready")
	for range 2 {
		if err := w.Resize(h, 65535, 41); err != nil {
			t.Fatal(err)
		}
		w.awaitOutput(h, "winch 65535x41")
	}
	if err := w.Resize(h, 81, 42); err != nil {
		t.Fatal(err)
	}
	w.awaitOutput(h, "winch 81x42")
	if n := strings.Count(w.read(h, Stdout), "winch"); n != 2 {
		t.Errorf("%d SIGWINCH, want 2: %q", n, w.read(h, Stdout))
	}
	pipes := w.begin(sh("exec sleep 60"))
	if err := w.Resize(pipes, 80, 24); !errors.Is(err, ErrNotAPTY) {
		t.Errorf("without a terminal: %v", err)
	}
	_ = w.Signal(h, syscall.SIGKILL, true)
	await[Exited](w, h)
	if err := w.Resize(h, 80, 24); !errors.Is(err, ErrNotRunning) {
		t.Errorf("after the exit: %v", err)
	}
}

// Sweep has delivered every exit that was there when it was called.
func TestSweep(t *testing.T) {
	w := newWorld(t)
	for range 50 {
		h := w.begin(sh("exit 5"))
		pid := await[Spawned](w, h).PID
		for alive(pid) {
			time.Sleep(100 * time.Microsecond)
		}
		w.Sweep()
		if e, ok := awaitOr[Exited](w, h, 0); !ok || e.Status.Code != 5 {
			t.Fatalf("not swept: %+v", e)
		}
	}
}
