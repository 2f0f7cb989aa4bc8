package procs

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"supervisor/internal/testproc"
)

// attended runs a program and returns what it wrote.
func (w *world) attended(ctx context.Context, s Spec, stdin []byte) (Status, string, string) {
	w.t.Helper()
	if s.Env == nil {
		s.Env = os.Environ()
	}
	var out [2]bytes.Buffer
	status, err := w.Run(ctx, s, stdin, [2]io.Writer{&out[0], &out[1]})
	if err != nil {
		w.t.Fatal(err)
	}
	return status, out[0].String(), out[1].String()
}

func TestRun(t *testing.T) {
	w := newWorld(t)
	ctx := context.Background()
	status, stdout, stderr := w.attended(ctx, sh("cat; echo e >&2; exit 3"), []byte("in\n"))
	if status != (Status{Known: true, Code: 3}) || stdout != "in\n" || stderr != "e\n" {
		t.Errorf("%+v, %q, %q", status, stdout, stderr)
	}
	if status, _, _ := w.attended(ctx, sh("kill -9 $$"), nil); status.Signal != syscall.SIGKILL {
		t.Errorf("killed by itself: %+v", status)
	}
	var failed *StartError
	_, err := w.Run(ctx, Spec{Argv: []string{"/no/such"}}, nil, [2]io.Writer{io.Discard, io.Discard})
	if !errors.As(err, &failed) {
		t.Errorf("no such program: %v", err)
	}
}

// Every byte that was written before the exit is there, however much it is.
func TestRunIsWhole(t *testing.T) {
	w := newWorld(t)
	for range 50 {
		if _, stdout, _ := w.attended(context.Background(), sh("head -c 300000 /dev/zero"), nil); len(stdout) != 300_000 {
			t.Fatalf("%d bytes", len(stdout))
		}
	}
}

// Nothing that the program does or leaves undone makes Run hang.
func TestRunNeverHangs(t *testing.T) {
	w := newWorld(t)
	for _, script := range []string{
		"exit 0", // takes no stdin
		"exec <&- >&- 2>&-; exit 0",
		"sleep 61 & exit 0",                 // a member holds the pipes
		"setsid sleep 61 & echo $!; exit 0", // a stranger does
		"setsid yes & echo $!; exit 0",      // and fills them
		"trap '' TERM HUP; sleep 61 & exit 0",
		"yes | head -c 10000000; yes | head -c 10000000 >&2",
	} {
		began := time.Now()
		_, stdout, _ := w.attended(context.Background(), sh(script), make([]byte, 1<<20))
		if took := time.Since(began); took > 10*time.Second {
			t.Errorf("%s took %v", script, took)
		}
		if strings.Contains(script, "setsid") {
			pid, _, _ := strings.Cut(stdout[strings.IndexAny(stdout, "0123456789"):], "\n")
			n, err := strconv.Atoi(pid)
			if err != nil {
				t.Fatal(err)
			}
			_ = syscall.Kill(n, syscall.SIGKILL) // yes has a broken pipe
		}
	}
}

// Run ends with its context, and takes the group with it.
func TestRunIsCancelled(t *testing.T) {
	w := newWorld(t)
	ctx, cancel := context.WithTimeout(context.Background(), 200*time.Millisecond)
	defer cancel()
	status, stdout, _ := w.attended(ctx, sh("sleep 62 & echo $!; wait"), nil)
	if status.Signal != syscall.SIGKILL {
		t.Errorf("ended with %+v", status)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(stdout))
	if err != nil {
		t.Fatal(err)
	}
	if !testproc.Eventually(patience, func() bool {
		st, err := readStat(pid)
		return err != nil || st.state == 'Z'
	}) {
		t.Error("a member of the group lives on")
	}
}

func TestAttendedTerminal(t *testing.T) {
	w := newWorld(t)
	s := onPTY(sh("stty size; read x; echo got $x; exit 0"))
	s.Env = os.Environ()
	c, err := w.Attend(s)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := c.Write([]byte("hello\n")); err != nil {
		t.Error(err)
	}
	all, err := io.ReadAll(c)
	if err != nil || !strings.Contains(string(all), "24 80\r\n") || !strings.Contains(string(all), "got hello\r\n") {
		t.Errorf("%q, %v", all, err)
	}
}

// orphansRole is a subreaper that starts processes in both ways, each of which
// leaves orphans, and says what went wrong.
func orphansRole(args []string) int {
	w, fail := newBareWorld(args[0])
	if err := w.ReapOrphans(); err != nil {
		return fail(err)
	}
	const n = 100
	script := sh("(sleep .05 &); (true &); (sleep .02; exit 7) & exit 42")
	for i := range n {
		w.launch(script)
		if i%4 == 0 {
			status, err := w.Run(context.Background(), script, nil, [2]io.Writer{io.Discard, io.Discard})
			if err != nil || status.Code != 42 {
				return fail(status, err)
			}
		}
	}
	for i := range n {
		handle := handleOf(i + 1)
		if o, ok := awaitOr[Exited](w, handle, patience); !ok || o.Status != (Status{Known: true, Code: 42}) {
			return fail(handle, o)
		}
	}
	if !testproc.Eventually(patience, func() bool { return len(testproc.Children()) == 0 }) {
		return fail("left behind:", testproc.Children())
	}
	if got := w.Reaped(); got < 2*n {
		return fail("orphans reaped:", got)
	}
	if err := w.Close(); err != nil {
		return fail(err)
	}
	return 0
}

// C21: the orphans are reaped, and no status is stolen.
func TestC21OrphansAreReaped(t *testing.T) {
	w := newWorld(t)
	s := Spec{Argv: testproc.Argv("orphans", t.TempDir())}
	if r := w.run(s); r.exit.Status.Code != 0 {
		t.Error(r.stdout, r.stderr)
	}
}
