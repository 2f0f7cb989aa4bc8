package procs

import (
	"fmt"
	"syscall"
	"testing"

	"supervisor/internal/testproc"
)

func TestExitStatus(t *testing.T) {
	w := newWorld(t)
	for _, c := range []struct {
		script string
		want   Status
	}{
		{"exit 0", Status{Known: true}},
		{"exit 1", Status{Known: true, Code: 1}},
		{"exit 255", Status{Known: true, Code: 255}},
		{"kill -TERM $$", Status{Known: true, Signal: syscall.SIGTERM}},
		{"kill -KILL $$", Status{Known: true, Signal: syscall.SIGKILL}},
		{"exit 143", Status{Known: true, Code: 143}},
		{"ulimit -c 0; kill -SEGV $$", Status{Known: true, Signal: syscall.SIGSEGV}},
	} {
		for _, pty := range []bool{false, true} {
			s := sh(c.script)
			s.PTY = pty
			if got := w.run(s).exit.Status; got != c.want {
				t.Errorf("%s, pty %v: %+v, want %+v", c.script, pty, got, c.want)
			}
		}
	}
}

// Every byte and every code of many processes that end at once.
func TestFastExitsLoseNothing(t *testing.T) {
	w := newWorld(t)
	handles := make([]string, 300)
	for i := range handles {
		handles[i] = w.launch(sh(fmt.Sprintf("echo out %d; echo err %d >&2; exit %d", i, i, i%256)))
	}
	for i, h := range handles {
		r := w.finish(h)
		want := result{r.exit, fmt.Sprintf("out %d\n", i), fmt.Sprintf("err %d\n", i)}
		if r != want || r.exit.Status.Code != i%256 {
			t.Errorf("process %d: %+v", i, r)
		}
	}
}

func TestBurst(t *testing.T) {
	w := newWorld(t)
	r := w.run(Spec{Argv: testproc.Argv("burst", "200000")})
	if len(r.stdout) != 200000 || r.stdout[16*7777:16*7778] != testproc.Line(7777) {
		t.Errorf("%d bytes, line 7777 %q", len(r.stdout), r.stdout[16*7777:16*7778])
	}
}
