package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"supervisor/client"
	"supervisor/internal/testproc"
)

// supervisor is the agent's binary, built once.
var supervisor string

// suite builds what the tests need before it runs them.
type suite struct{ *testing.M }

func (s suite) Run() int {
	dir, err := os.MkdirTemp("", "supctl-test-")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(dir)
	supervisor = filepath.Join(dir, "supervisor")
	if out, err := exec.Command("go", "build", "-o", supervisor, "supervisor/cmd/supervisor").CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "go build: %v\n%s", err, out)
		return 1
	}
	catchIgnored()
	return s.M.Run()
}

// catchIgnored gives the supctl under test the default of the signals that
// whoever runs the tests ignores, as nohup(1) and a background job do: supctl
// leaves ignored ones alone.
func catchIgnored() {
	for _, s := range forwarded {
		if signal.Ignored(s) {
			signal.Notify(make(chan os.Signal, 1), s)
		}
	}
}

func TestMain(m *testing.M) {
	testscript.Main(suite{m}, map[string]func(){"supctl": main})
}

// noRaceSleep is a GORACE with which an instrumented supctl ends at once.
const noRaceSleep = "atexit_sleep_ms=0"

// The scripts talk to real agents with the real supctl. Beside testscript's
// own commands they have:
//
//	agent [FLAG...]     starts an agent in $WORK and sets SUPERVISOR_ADDR; stops it at the end
//	                    ($SUPERVISOR is its image)
//	handle NAME         sets NAME to what the last command printed
//	code N CMD ARG...   runs CMD, which must exit with N
func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Setup: func(e *testscript.Env) error {
			e.Setenv("GORACE", noRaceSleep)
			e.Setenv("SUPERVISOR", supervisor)
			return nil
		},
		Dir:                 "testdata/script",
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"agent":  scriptAgent,
			"handle": scriptHandle,
			"code":   scriptCode,
		},
	})
}

func scriptAgent(ts *testscript.TestScript, _ bool, flags []string) {
	a := startAgent(ts, ts.Getenv("WORK"), flags...)
	ts.Setenv("SUPERVISOR_ADDR", a.addr)
	ts.Defer(a.stop)
}

func scriptHandle(ts *testscript.TestScript, _ bool, args []string) {
	ts.Setenv(args[0], strings.TrimSpace(ts.ReadFile("stdout")))
}

func scriptCode(ts *testscript.TestScript, _ bool, args []string) {
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	got := 0
	if err := ts.Exec(args[1], args[2:]...); err != nil {
		var exit *exec.ExitError
		if !errors.As(err, &exit) {
			ts.Fatalf("%v", err)
		}
		got = exit.ExitCode()
	}
	if got != want {
		ts.Fatalf("exit code %d, want %d", got, want)
	}
}

// failer is a test or a script.
type failer interface {
	Fatalf(format string, args ...any)
}

// agent is a real agent.
type agent struct {
	addr, dir string
	cmd       *exec.Cmd
}

// startAgent starts an agent that keeps its files in dir, and waits until it
// answers.
func startAgent(f failer, dir string, flags ...string) *agent {
	a := &agent{addr: "unix:" + filepath.Join(dir, "agent.sock"), dir: dir}
	flags = append([]string{"serve", "--listen", a.addr, "--state-dir", filepath.Join(dir, "state")}, flags...)
	a.cmd = exec.Command(supervisor, flags...)
	var log bytes.Buffer
	a.cmd.Stderr = &log
	if err := a.cmd.Start(); err != nil {
		f.Fatalf("%v", err)
	}
	if !testproc.Eventually(10*time.Second, a.answers) {
		a.stop()
		f.Fatalf("the agent does not answer: %s", log.String())
	}
	return a
}

func (a *agent) answers() bool {
	c, err := client.Dial(context.Background(), a.addr)
	if err != nil {
		return false
	}
	defer c.Close()
	_, err = c.Info(context.Background())
	return err == nil
}

// stop kills what still runs and stops the agent, which may be dead already.
func (a *agent) stop() {
	if c, err := client.Dial(context.Background(), a.addr); err == nil {
		defer c.Close()
		procs, _ := c.List(context.Background())
		for _, p := range procs {
			c.Kill(context.Background(), p.Handle)
			c.Wait(context.Background(), p.Handle)
		}
	}
	a.cmd.Process.Signal(syscall.SIGTERM)
	a.cmd.Wait()
}

// supctl makes a command that talks to the agent.
func (a *agent) supctl(args ...string) *exec.Cmd {
	cmd := exec.Command("supctl", args...)
	cmd.Env = append(os.Environ(), "SUPERVISOR_ADDR="+a.addr, "GORACE="+noRaceSleep)
	return cmd
}

func newAgent(t *testing.T) *agent {
	testproc.NoLeaks(t)
	a := startAgent(t, t.TempDir())
	t.Cleanup(a.stop)
	return a
}

// Signals reach the process group, and its answer becomes supctl's.
func TestRunForwardsSignals(t *testing.T) {
	a := newAgent(t)
	for name, number := range map[string]syscall.Signal{
		"INT": syscall.SIGINT, "TERM": syscall.SIGTERM, "HUP": syscall.SIGHUP,
		"QUIT": syscall.SIGQUIT, "USR1": syscall.SIGUSR1, "USR2": syscall.SIGUSR2,
	} {
		cmd := a.supctl("run", "--", "sh", "-c", "trap 'echo got "+name+"; exit 9' "+name+"; echo up; while :; do sleep 0.02; done")
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		up := make([]byte, 3)
		if _, err := io.ReadFull(out, up); err != nil || string(up) != "up\n" {
			t.Fatalf("%q, %v", up, err)
		}
		if err := cmd.Process.Signal(number); err != nil {
			t.Fatal(err)
		}
		rest, _ := io.ReadAll(out)
		cmd.Wait()
		if code := cmd.ProcessState.ExitCode(); code != 9 || string(rest) != "got "+name+"\n" {
			t.Errorf("%s: exit code %d and %q", name, code, rest)
		}
	}
}

// A reader that ends ends the process too, as in a local pipeline.
func TestRunIntoAClosedPipe(t *testing.T) {
	a := newAgent(t)
	cmd := a.supctl("run", "--", "yes")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	io.ReadFull(out, make([]byte, 2))
	out.Close()
	cmd.Wait()
	if code := cmd.ProcessState.ExitCode(); code != 128+int(syscall.SIGPIPE) {
		t.Errorf("exit code %d: %s", code, stderr.String())
	}
	if strings.Contains(stderr.String(), "pipe") {
		t.Errorf("not quiet: %s", stderr.String())
	}
	if !testproc.Eventually(5*time.Second, func() bool {
		running, err := a.supctl("ps", "--json").Output()
		return err == nil && strings.TrimSpace(string(running)) == "[]"
	}) {
		t.Error("the process lives on")
	}
}

// What follows a process outlives a crash of the agent.
func TestLogsFollowOverACrash(t *testing.T) {
	a := newAgent(t)
	pipe := filepath.Join(a.dir, "pipe")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	handle, err := a.supctl("start", "--", "sh", "-c", "echo before; cat "+pipe+"; exec sleep 1000 <&- >&- 2>&-").Output()
	if err != nil {
		t.Fatal(err)
	}
	cmd := a.supctl("logs", "-f", strings.TrimSpace(string(handle)))
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	before := make([]byte, len("before\n"))
	if _, err := io.ReadFull(out, before); err != nil {
		t.Fatal(err)
	}
	a.cmd.Process.Kill()
	a.cmd.Wait()
	a.cmd = startAgent(t, a.dir).cmd
	if err := os.WriteFile(pipe, []byte("after\n"), 0); err != nil {
		t.Fatal(err)
	}
	after, _ := io.ReadAll(out)
	if err := cmd.Wait(); err != nil || string(before)+string(after) != "before\nafter\n" {
		t.Errorf("%q then %q, %v: %s", before, after, err, stderr.String())
	}
}

// Every command says what it does, with an example.
func TestHelp(t *testing.T) {
	for _, cmd := range (&app{}).root().Commands() {
		if cmd.Hidden {
			continue
		}
		if cmd.Short == "" || !strings.HasPrefix(cmd.Example, "  ") || !strings.Contains(cmd.Example, "supctl "+cmd.Name()) {
			t.Errorf("%s: %q with the example %q", cmd.Name(), cmd.Short, cmd.Example)
		}
	}
}
