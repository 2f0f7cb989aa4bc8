package procs

import (
	"strings"
	"testing"

	"supervisor/internal/testproc"
)

// A process goes from one Table to the next with its output, its stdin and its
// exit, and is nobody's once it was reaped.
func TestHandover(t *testing.T) {
	from := newWorld(t)
	h := from.begin(Spec{Argv: []string{"/bin/sh", "-c", "echo before; read x; echo got:$x; exit 7"}})
	testproc.Eventually(patience, func() bool { return from.Output(h, Stdout).End() == int64(len("before\n")) })
	from.Park()
	to := newWorld(t, func(o *Options) { o.Dir = from.opt.Dir })
	for _, c := range from.Carried() {
		if !c.Running || len(c.FDs()) != 4 {
			t.Errorf("carried: %+v", c)
		}
		to.Inherit(duplicate(t, c))
	}
	to.Stdin(h, []byte("hi\n"), true, func(int, error) {})
	if e := await[Exited](to, h); e.Status.Code != 7 || e.Rusage.MaxRSSKiB == 0 {
		t.Errorf("exited: %+v", e)
	}
	if c := await[Closed](to, h); string(c.StdoutTail) != "before\ngot:hi\n" || strings.Trim(c.StdoutSHA256, "0123456789abcdef") != "" {
		t.Errorf("closed: %+v", c)
	}
	if n := len(to.orphans.own); n != 0 {
		t.Errorf("%d children have an owner", n)
	}
}

// duplicate gives another Table descriptors of its own, as an execve would.
func duplicate(t *testing.T, c Carried) Carried {
	t.Helper()
	for _, fd := range []*int{&c.PidFD, &c.Stdin, &c.Output[Stdout], &c.Output[Stderr]} {
		if *fd < 0 {
			continue
		}
		another, err := dup(*fd)
		if err != nil {
			t.Fatal(err)
		}
		*fd = another
	}
	return c
}
