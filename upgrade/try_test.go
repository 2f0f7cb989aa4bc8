package upgrade

import (
	"context"
	"errors"
	"io"
	"os/exec"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"supervisor/internal/testproc"
)

// runHere is a Runner like the agent's.
func runHere(ctx context.Context, argv []string, stdout, stderr io.Writer) error {
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.Stdout, cmd.Stderr = stdout, stderr
	cmd.SysProcAttr = &unix.SysProcAttr{Setsid: true}
	cmd.Cancel = func() error { return unix.Kill(-cmd.Process.Pid, unix.SIGKILL) }
	cmd.WaitDelay = time.Second // a descendant may hold its output
	return cmd.Run()
}

// A candidate that does not say its version in one line, in time, is refused.
func TestVersion(t *testing.T) {
	testproc.NoLeaks(t)
	for name, says := range map[string]string{
		"hangs":     "no end within 5s",
		"floods":    "no end within 5s",
		"silent":    "prints no version",
		"two lines": "more than one line",
		"fails":     "exit status 3: cannot read that",
		"dies":      "signal: killed",
		"escapes":   "WaitDelay",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			began := time.Now()
			v, err := take(t, name).Version(runHere)
			if v != "" || !errors.Is(err, ErrRejected) || !strings.Contains(err.Error(), says) {
				t.Errorf("%q, %v", v, err)
			}
			if took := time.Since(began); took > 20*time.Second {
				t.Errorf("it took %v", took)
			}
		})
	}
}

// The preflight gets the state and no other descriptor, and must say the line.
func TestPreflight(t *testing.T) {
	testproc.NoLeaks(t)
	state, err := State([]byte("STATE"))
	if err != nil {
		t.Fatal(err)
	}
	defer state.Close()
	const line = "preflight read STATE, open [], <nil>"
	for _, c := range []struct{ name, want, says string }{
		{"good", line, ""},
		{"good", "another line", `it says "preflight read STATE`},
		{"silent", line, `it says ""`},
		{"fails", line, "exit status 3: cannot read that"},
		{"dies", line, "signal: killed"},
	} {
		err := take(t, c.name).Preflight(runHere, state, c.want)
		refused := errors.Is(err, ErrRejected) && strings.Contains(err.Error(), c.says)
		if c.says == "" && err != nil || c.says != "" && !refused {
			t.Errorf("%s: %v", c.name, err)
		}
	}
}
