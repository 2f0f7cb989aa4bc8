package e2e

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// tour is what README.md shows to type, in its order, for a shell that ends
// with the first command that fails.
func tour(t *testing.T) string {
	readme, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, found := strings.Cut(string(readme), "\n## A tour\n")
	section, _, _ = strings.Cut(section, "\n## ")
	if !found || !strings.Contains(section, "\n    ") {
		t.Fatal("README.md shows no tour")
	}
	script := "set -eu\n"
	for line := range strings.Lines(section) {
		command, shown := strings.CutPrefix(line, "    ")
		if !shown {
			continue
		}
		script += command
		if strings.HasPrefix(command, "supervisor serve") { // a person is slower
			script += "until supctl --addr unix:/tmp/tour.sock info >/dev/null 2>&1; do sleep 0.02; done\n"
		}
	}
	return script
}

// README.md's tour is true: every command of it succeeds, and says what the
// text around it promises.
func TestTour(t *testing.T) {
	dir := t.TempDir()
	bin := filepath.Join(dir, "bin")
	args := append([]string{"build"}, buildFlags...)
	args = append(args, "-o", bin+"/", "supervisor/cmd/supervisor", "supervisor/cmd/supctl", "supervisor/tools/replay")
	if out, err := exec.Command("go", args...).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	script := "trap 'kill $agent 2>/dev/null || :' EXIT\n" + tour(t)
	cmd := exec.Command("bash", "-c", strings.ReplaceAll(script, "/tmp/tour", filepath.Join(dir, "tour")))
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "PATH="+bin+":"+os.Getenv("PATH"), "GORACE=atexit_sleep_ms=0")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v\n%s\n%s", err, out, err.(*exec.ExitError).Stderr)
	}
	rest := string(out)
	for _, want := range []string{
		"running", "got hello\n", "HELLO\n", "upgraded from ", "got hello\ngot again\n", "\n10\n", "it exited with 3\n",
		"exited 3", "got again\n", "exit 3",
	} {
		before, after, found := strings.Cut(rest, want)
		if !found {
			t.Fatalf("no %q in\n%s\nof\n%s", want, rest, out)
		}
		_, rest = before, after
	}
}
