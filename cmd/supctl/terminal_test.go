package main

import (
	"bytes"
	"errors"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/iotest"
	"time"

	"github.com/creack/pty"
	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
	"pgregory.net/rapid"

	"supervisor/internal/testproc"
)

// screen is a person's terminal with a command on it.
type screen struct {
	t      *testing.T
	master *os.File
	slave  *os.File // kept open, to look at its settings
	cmd    *exec.Cmd
	before unix.Termios
	over   chan struct{}

	mu   sync.Mutex
	seen bytes.Buffer
}

// onScreen starts a command on a terminal of a size.
func onScreen(t *testing.T, cmd *exec.Cmd, cols, rows uint16) *screen {
	t.Helper()
	master, slave, err := pty.Open()
	if err != nil {
		t.Fatal(err)
	}
	s := &screen{t: t, master: master, slave: slave, cmd: cmd, over: make(chan struct{})}
	s.resize(cols, rows)
	s.before = s.settings()
	cmd.Env = append(cmd.Env, "TERM=xterm")
	cmd.Stdin, cmd.Stdout, cmd.Stderr = slave, slave, slave
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(s.over)
		buf := make([]byte, 4096)
		for {
			n, err := master.Read(buf)
			s.mu.Lock()
			s.seen.Write(buf[:n])
			s.mu.Unlock()
			if err != nil {
				return
			}
		}
	}()
	t.Cleanup(func() {
		cmd.Process.Kill()
		cmd.Wait()
		slave.Close()
		<-s.over
		master.Close()
	})
	return s
}

func (s *screen) resize(cols, rows uint16) {
	s.t.Helper()
	if err := pty.Setsize(s.master, &pty.Winsize{Cols: cols, Rows: rows}); err != nil {
		s.t.Fatal(err)
	}
}

func (s *screen) settings() unix.Termios {
	s.t.Helper()
	settings, err := unix.IoctlGetTermios(int(s.slave.Fd()), unix.TCGETS)
	if err != nil {
		s.t.Fatal(err)
	}
	return *settings
}

func (s *screen) keys(keys string) {
	s.t.Helper()
	if _, err := s.master.WriteString(keys); err != nil {
		s.t.Fatal(err)
	}
}

func (s *screen) text() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.seen.String()
}

func (s *screen) shows(text string) {
	s.t.Helper()
	if !testproc.Eventually(10*time.Second, func() bool { return strings.Contains(s.text(), text) }) {
		seen := s.text()
		s.t.Fatalf("no %q on the screen, at last: %q", text, seen[max(0, len(seen)-2000):])
	}
}

// anyCode is an exit code that may be any.
const anyCode = -1

// ends waits for the command's end; then the terminal must be what it was.
func (s *screen) ends(code int) {
	s.t.Helper()
	done := make(chan struct{})
	go func() {
		s.cmd.Wait()
		close(done)
	}()
	select {
	case <-done:
	case <-time.After(20 * time.Second):
		s.t.Fatalf("it does not end: %q", s.text())
	}
	if got := s.cmd.ProcessState.ExitCode(); got != code && code != anyCode {
		s.t.Errorf("exit code %d, want %d: %q", got, code, s.text())
	}
	if diff := cmp.Diff(s.before, s.settings()); diff != "" {
		s.t.Errorf("the terminal was left in another mode:\n%s", diff)
	}
}

// output is what a supctl command prints.
func (a *agent) output(t *testing.T, args ...string) string {
	t.Helper()
	out, err := a.supctl(args...).Output()
	if err != nil {
		t.Fatalf("%v: %v", args, err)
	}
	return strings.TrimSpace(string(out))
}

const echoingShell = "stty -echo; echo ready; while read x; do echo got:$x; stty size; done; exit 7"

// What the ring holds is shown, keys and the size are passed on, and whoever
// leaves finds the process and the terminal as they were.
func TestAttach(t *testing.T) {
	a := newAgent(t)
	handle := a.output(t, "start", "--pty", "--", "sh", "-c", echoingShell)
	s := onScreen(t, a.supctl("attach", handle), 99, 33)
	s.shows("ready")
	s.keys("hello\r")
	s.shows("got:hello\r\n33 99")
	s.resize(70, 20)
	if !testproc.Eventually(10*time.Second, func() bool { // the size goes its own way, beside the keys
		s.keys("\r")
		return strings.Contains(s.text(), "20 70")
	}) {
		t.Errorf("the size does not follow: %q", s.text())
	}
	s.keys("\x10again\r") // ctrl-p alone is the process's
	s.shows("got:\x10again\r\n20 70")
	s.keys("last\r\x10\x11")
	s.ends(0)
	s.shows("left " + handle)
	if got := a.output(t, "ps"); !strings.Contains(got, handle) {
		t.Errorf("the process did not outlive its guest: %s", got)
	}
	if !testproc.Eventually(5*time.Second, func() bool { return strings.Contains(a.output(t, "logs", handle), "got:last") }) {
		t.Error("what was typed right before leaving is lost")
	}

	s = onScreen(t, a.supctl("attach", handle), 80, 24)
	s.shows("got:hello")
	s.keys("\x04")
	s.ends(7)
}

// The terminal is restored whatever ends attach.
func TestAttachRestores(t *testing.T) {
	for name, test := range map[string]struct {
		happens func(*agent, *screen)
		code    int
	}{
		"SIGTERM": {func(_ *agent, s *screen) { s.cmd.Process.Signal(syscall.SIGTERM) }, 143},
		"SIGHUP":  {func(_ *agent, s *screen) { s.cmd.Process.Signal(syscall.SIGHUP) }, 129},
		"the agent crashes": {func(a *agent, s *screen) {
			a.cmd.Process.Kill()
			a.cmd.Wait()
			a.cmd = startAgent(t, a.dir).cmd // a terminal does not outlive its agent
		}, anyCode}, // of SIGHUP, or unknown
	} {
		t.Run(name, func(t *testing.T) {
			a := newAgent(t)
			handle := a.output(t, "start", "--pty", "--", "sh", "-c", echoingShell)
			s := onScreen(t, a.supctl("attach", handle), 80, 24)
			s.shows("ready")
			test.happens(a, s)
			s.ends(test.code)
		})
	}
}

func TestRawModeEndsWithAPanic(t *testing.T) {
	master, slave, err := pty.Open()
	if err != nil {
		t.Fatal(err)
	}
	defer master.Close()
	defer slave.Close()
	s := &screen{t: t, slave: slave}
	before, during := s.settings(), unix.Termios{}
	func() {
		defer func() { recover() }()
		(&app{stdin: slave}).inRawMode(func() error {
			during = s.settings()
			panic("a bug")
		})
	}()
	if cmp.Equal(before, during) || !cmp.Equal(before, s.settings()) {
		t.Errorf("before %v, during %v, after %v", before, during, s.settings())
	}
}

// On a terminal a process is run on one of the same size, and its end is
// supctl's.
func TestRunOnATerminal(t *testing.T) {
	a := newAgent(t)
	s := onScreen(t, a.supctl("run", "-t", "--", "sh", "-c", "stty size; read x; echo got:$x; exit 5"), 101, 31)
	s.shows("31 101")
	s.keys("hello\r")
	s.shows("got:hello")
	s.ends(5)
}

func TestAttachNeedsATerminal(t *testing.T) {
	a := newAgent(t)
	handle := a.output(t, "start", "--", "sleep", "1000")
	out, err := a.supctl("attach", handle).CombinedOutput()
	if want := "supctl: " + handle + " has no terminal: use logs -f and stdin\n"; err == nil || string(out) != want {
		t.Errorf("%q, %v", out, err)
	}
}

// Top shows what there is within the screen, goes with its size, and leaves no
// trace.
func TestTop(t *testing.T) {
	a := newAgent(t)
	for range 3 {
		a.output(t, "start", "--", "sleep", "1000")
	}
	noisy := a.output(t, "start", "--", "sh", "-c", "while :; do echo 0123456789; sleep 0.01; done")
	s := onScreen(t, a.supctl("top", "--every", "100ms"), 80, 6)
	s.shows("4 running, 0 ended")
	s.shows("journal ok, head ")
	s.shows("1 to 2 of 4: arrows move")
	if strings.Contains(s.text(), noisy) {
		t.Errorf("more than 6 lines: %q", s.text())
	}
	s.keys("j")
	s.keys("j")
	s.shows("3 to 4 of 4")
	s.shows(noisy)
	s.resize(120, 24)
	s.shows("while :; do echo 0123456789; sleep 0.01; done")
	s.keys("q")
	s.ends(0)
	s.shows(leaveScreen)
	if text := s.text(); !strings.HasPrefix(text, enterScreen) || !strings.HasSuffix(text, leaveScreen) {
		t.Errorf("not on a screen of its own: %q", text)
	}
	out, err := a.supctl("top").CombinedOutput()
	if err == nil || string(out) != "supctl: top needs a terminal: see ps\n" {
		t.Errorf("without a terminal: %q, %v", out, err)
	}
}

// An upgrade shows how far it has got, on a terminal alone.
func TestUpgradeShowsProgress(t *testing.T) {
	a := newAgent(t)
	s := onScreen(t, a.supctl("upgrade", supervisor), 80, 24)
	s.ends(0)
	s.shows("upgraded from dev to dev")
	if text := s.text(); !strings.Contains(text, "[##############################]") {
		t.Errorf("no full bar: %q", text)
	}
	out, err := a.supctl("upgrade", supervisor).CombinedOutput()
	if err != nil || string(out) != "upgraded from dev to dev\n" {
		t.Errorf("off a terminal: %q, %v", out, err)
	}
}

// However keys come in pieces, only ctrl-p ctrl-q is not passed on.
func TestLeavable(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		keys := rapid.StringMatching(`[a\x10\x11]{0,12}`).Draw(t, "keys")
		var source io.Reader = strings.NewReader(keys)
		if rapid.Bool().Draw(t, "one by one") {
			source = iotest.OneByteReader(source)
		}
		want, _, left := strings.Cut(keys, "\x10\x11")
		if !left { // a last ctrl-p still waits for the key after it
			want = strings.TrimSuffix(want, "\x10")
		}
		got, err := io.ReadAll(&leavable{keys: source})
		if left != errors.Is(err, errLeft) || string(got) != want {
			t.Fatalf("%q, %v, want %q", got, err, want)
		}
	})
}
