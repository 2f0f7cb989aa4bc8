package upgrade

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// tryWithin bounds each run of a candidate.
const tryWithin = 5 * time.Second

// Version runs the candidate with --version: it must print one line and exit
// with 0. The version is that line's last word. Errors wrap ErrRejected.
func (img *Image) Version() (string, error) {
	line, err := img.run([]string{"--version"})
	if err != nil {
		return "", rejectf("--version: %w", err)
	}
	words := strings.Fields(line)
	if len(words) == 0 {
		return "", rejectf("--version prints no version")
	}
	return words[len(words)-1], nil
}

// Preflight lets the candidate read the very state that it would be handed:
// `supervisor preflight STATE` must print exactly want. It runs without any
// descriptor but the state's. Errors wrap ErrRejected.
func (img *Image) Preflight(state *os.File, want string) error {
	line, err := img.run([]string{"preflight", "/proc/self/fd/3"}, state)
	if err != nil {
		return rejectf("preflight: %w", err)
	}
	if line != want {
		return rejectf("preflight: it says %q", line)
	}
	return nil
}

// run runs the sealed copy and returns the one line that it printed.
func (img *Image) run(args []string, files ...*os.File) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), tryWithin)
	defer cancel()
	var out, errs limited
	path := fmt.Sprintf("/proc/self/fd/%d", fdOf(img.file))
	cmd := exec.CommandContext(ctx, path, args...)
	cmd.Args[0] = "supervisor"
	cmd.Stdout, cmd.Stderr = &out, &errs
	cmd.ExtraFiles = files
	cmd.Dir = "/"
	cmd.Env = []string{"PATH=" + os.Getenv("PATH")}
	cmd.SysProcAttr = &unix.SysProcAttr{Setsid: true}
	cmd.Cancel = func() error { return unix.Kill(-cmd.Process.Pid, unix.SIGKILL) }
	cmd.WaitDelay = time.Second // a descendant may hold its output
	err := cmd.Run()
	switch {
	case ctx.Err() != nil:
		return "", fmt.Errorf("no end within %v", tryWithin)
	case err != nil:
		return "", fmt.Errorf("%w%s", err, errs.said())
	}
	line := strings.TrimSuffix(out.buf.String(), "\n")
	if strings.Contains(line, "\n") {
		return "", fmt.Errorf("it prints more than one line")
	}
	return line, nil
}

// limited keeps the beginning of what is written to it.
type limited struct{ buf bytes.Buffer }

func (l *limited) Write(p []byte) (int, error) {
	const most = 4096
	if room := most - l.buf.Len(); room > 0 {
		l.buf.Write(p[:min(room, len(p))])
	}
	return len(p), nil
}

// said is the first line, for an error.
func (l *limited) said() string {
	line, _, _ := strings.Cut(strings.TrimSpace(l.buf.String()), "\n")
	if line == "" {
		return ""
	}
	return ": " + line
}
