package upgrade

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"strings"
	"time"
)

// tryWithin bounds each run of a candidate.
const tryWithin = 5 * time.Second

// Runner runs a program until it has exited, or kills it and all of its group
// when ctx ends. The error says how it ended if not by itself with code 0. It
// is the caller's, who reaps every child of the process.
type Runner func(ctx context.Context, argv []string, stdout, stderr io.Writer) error

// Version runs the candidate with --version: it must print one line and exit
// with 0. The version is that line's last word. Errors wrap ErrRejected.
func (img *Image) Version(run Runner) (string, error) {
	line, err := img.run(run, "--version")
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
// `supervisor preflight STATE` must print exactly want. Errors wrap ErrRejected.
func (img *Image) Preflight(run Runner, state *os.File, want string) error {
	line, err := img.run(run, "preflight", visible(state))
	if err != nil {
		return rejectf("preflight: %w", err)
	}
	if line != want {
		return rejectf("preflight: it says %q", line)
	}
	return nil
}

// visible names an open file of this process for others.
func visible(f *os.File) string { return fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), fdOf(f)) }

// run runs the sealed copy and returns the one line that it printed.
func (img *Image) run(run Runner, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), tryWithin)
	defer cancel()
	var out, errs limited
	err := run(ctx, append([]string{visible(img.file)}, args...), &out, &errs)
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
