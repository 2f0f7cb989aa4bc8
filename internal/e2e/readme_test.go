package e2e

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// shown is what a section of README.md shows to type, in its order, for a shell
// that ends with the first command that fails and runs in dir, where the three
// binaries are.
func shown(t *testing.T, title, dir string) *exec.Cmd {
	t.Helper()
	readme, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, found := strings.Cut(string(readme), "\n## "+title+"\n")
	section, _, _ = strings.Cut(section, "\n## ")
	if !found || !strings.Contains(section, "\n    ") {
		t.Fatalf("README.md shows nothing in %q", title)
	}
	script, here := "set -eu\n", strings.NewReplacer("/var/tmp/", dir+"/", "/tmp/", dir+"/")
	for line := range strings.Lines(section) {
		command, shown := strings.CutPrefix(line, "    ")
		if !shown {
			continue
		}
		command = here.Replace(strings.TrimPrefix(command, "sudo "))
		script += command
		if _, addr, serves := strings.Cut(command, "supervisor serve --listen "); serves { // a person is slower
			addr, _, _ = strings.Cut(addr, " ")
			script += "for try in $(seq 500); do bin/supctl --addr " + addr + " info >/dev/null 2>&1 && break; sleep 0.02; done\n"
		}
	}
	bin := filepath.Join(dir, "bin")
	args := append([]string{"build"}, buildFlags...)
	args = append(args, "-o", bin+"/", "supervisor/cmd/supervisor", "supervisor/cmd/supctl", "supervisor/tools/replay")
	if out, err := exec.Command("go", args...).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	cmd := exec.Command("bash", "-c", "trap 'kill $agent 2>/dev/null || :' EXIT\n"+script)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "PATH="+bin+":"+os.Getenv("PATH"), "GORACE=atexit_sleep_ms=0", "agent=")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	return cmd
}

// says fails unless a command succeeds and its output holds these, in order.
func says(t *testing.T, cmd *exec.Cmd, wants ...string) {
	t.Helper()
	out, err := cmd.Output()
	if err != nil {
		var exit *exec.ExitError
		errors.As(err, &exit)
		t.Fatalf("%v\n%s\n%s", err, out, exit.Stderr)
	}
	rest := string(out)
	for _, want := range wants {
		_, after, found := strings.Cut(rest, want)
		if !found {
			t.Fatalf("no %q in\n%s\nof\n%s", want, rest, out)
		}
		rest = after
	}
}

// README.md's tour is true: every command of it succeeds, and says what the
// text around it promises.
func TestTour(t *testing.T) {
	says(t, shown(t, "A tour", t.TempDir()),
		"running", "got hello\n", "HELLO\n", "upgraded from ", "got hello\ngot again\n", "\n10\n", "it exited with 3\n",
		"exited 3", "got again\n", "exit 3")
}

// So is what it shows of an agent that is PID 1.
func TestShownAsInit(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root for a PID namespace")
	}
	says(t, shown(t, "As PID 1", t.TempDir()), " 1 ?", "supervisor\n")
}
