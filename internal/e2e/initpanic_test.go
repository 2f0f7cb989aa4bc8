package e2e

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"supervisor/client"
	"supervisor/statemachine"
)

// A panic of PID 1 would be the machine's. It executes its image again instead
// and adopts what runs, whatever becomes of what it has to say about it.
func TestInitSurvivesItsPanic(t *testing.T) {
	if _, err := exec.LookPath("strace"); err != nil {
		t.Skip("needs strace")
	}
	for _, stderr := range []struct{ name, redirection string }{
		{"a file", ""},
		{"closed", "2>&- 3>&-"},
		{"a full pipe that nobody reads", "2>&3 3>&-"},
	} {
		t.Run(stderr.name, func(t *testing.T) {
			a, pid, end := startAsInitWith(t, stderr.redirection, fullPipe(t))
			h := a.sh("for i in $(seq 300); do echo $i; sleep .01; done; exit 7")
			before := a.row(h).PID
			a.panics(pid)
			eventually(t, "the agent works again", a.works)
			if row := a.row(h); row.PID != before || !row.Running {
				t.Errorf("the process is %+v, was %d", row, before)
			}
			if out, _ := a.output(h); out != counted(300) {
				t.Errorf("its output is %q", out)
			}
			if e := a.wait(h); e.ExitCode != 7 || e.Reason != "exited" {
				t.Errorf("ended as %+v", e)
			}
			if err := unix.Kill(pid, unix.SIGTERM); err != nil {
				t.Error(err)
			}
			if how := end(); how != unix.SIGINT {
				t.Errorf("it was not powered off: %v", how)
			}
			if starts := a.starts(); starts != 2 {
				t.Errorf("%d agents are in the journal", starts)
			}
			if stderr.redirection == "" && !strings.Contains(a.log(), "panic: ") {
				t.Errorf("it told nothing of the panic: %s", a.log())
			}
		})
	}
}

// fullPipe is the end of a pipe whose every write blocks.
func fullPipe(t *testing.T) *os.File {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Close(); w.Close() })
	size, err := unix.FcntlInt(w.Fd(), unix.F_GETPIPE_SZ, 0) // and makes it blocking
	if err == nil {
		_, err = w.Write(make([]byte, size))
	}
	if err != nil {
		t.Fatal(err)
	}
	return w
}

// panics has the agent, process pid, panic: strace lets its clock fail once in
// a turn of the loop, which a start brings about.
func (a *agent) panics(pid int) {
	a.t.Helper()
	seen := filepath.Join(a.t.TempDir(), "seen")
	said, err := os.Create(filepath.Join(a.t.TempDir(), "said"))
	if err != nil {
		a.t.Fatal(err)
	}
	defer said.Close()
	strace := exec.Command("strace", "-f", "-p", fmt.Sprint(pid), "-o", seen, "-e", "trace=clock_gettime", "-e", "inject=clock_gettime:error=EPERM:when=1")
	strace.Stderr = said
	if err := strace.Start(); err != nil {
		a.t.Fatal(err)
	}
	eventually(a.t, "strace watches", func() bool { return holds(said.Name(), "attached") })
	a.raw().send(`{"op":"proc_start","cmd":["/bin/true"]}`)
	eventually(a.t, "the clock has failed", func() bool { return holds(seen, "(INJECTED)") })
	if err := strace.Process.Signal(unix.SIGTERM); err != nil { // the agent waits a second before it begins again
		a.t.Error(err)
	}
	_ = strace.Wait() // says that it was told to end
}

// holds tells whether a file holds a text by now.
func holds(path, text string) bool {
	b, _ := os.ReadFile(path)
	return bytes.Contains(b, []byte(text))
}

// works tells whether the loop turns, on a new connection.
func (a *agent) works() bool {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	c, err := client.Dial(ctx, a.addr())
	if err != nil {
		return false
	}
	if _, err := c.Start(ctx, client.StartRequest{Cmd: []string{"/bin/true"}}); err != nil {
		c.Close()
		return false
	}
	a.Client.Close()
	a.Client = c
	return true
}

// starts counts the agents that a stopped one's journal tells of.
func (a *agent) starts() (n int) {
	for _, r := range a.records() {
		if r.Event.Kind() == statemachine.KindAgentStarted {
			n++
		}
	}
	return n
}
