package e2e

import (
	"fmt"
	"net"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"supervisor/client"
)

// An agent that has no descriptor left says so to who starts something, lets
// connections wait, loses no output, and does not spin; when it has some again
// it goes on as if nothing had been.
func TestDescriptorsRunOut(t *testing.T) {
	a := start(t, "--proc-buf-bytes", "4194304") // in segments of 1 MiB
	const n = 300_000                            // lines: 2 MB
	h := a.sh(fmt.Sprintf("read x; seq %d; exit 7", n))
	c := a.raw()
	c.call(`{"op":"agent_info"}`)
	restore := a.withoutDescriptors()
	if m := c.call(`{"op":"proc_start","cmd":["true"]}`); m["code"] != "spawn_failed" {
		t.Errorf("a start is answered %v", m)
	}
	if m := c.call(`{"op":"exec","cmd":["true"]}`); m["ok"] != false {
		t.Errorf("exec is answered %v", m)
	}
	if m := c.call(fmt.Sprintf(`{"op":"proc_stdin","handle":%q,"data":"Z28K"}`, h)); m["written"] != 3.0 {
		t.Errorf("a write is answered %v", m)
	}
	waiting, err := net.Dial("unix", filepath.Join(a.dir, "agent.sock"))
	if err != nil {
		t.Fatal(err)
	}
	defer waiting.Close()
	before := a.cpu()
	time.Sleep(time.Second) // it is what is measured
	if used := a.cpu() - before; used > 300*time.Millisecond {
		t.Errorf("it used %v of a second", used)
	}
	restore()
	if _, err := fmt.Fprintln(waiting, `{"op":"agent_info"}`); err != nil {
		t.Fatal(err)
	}
	waiting.SetReadDeadline(time.Now().Add(20 * time.Second))
	if n, err := waiting.Read(make([]byte, 100)); n == 0 {
		t.Error("the connection that waited is not answered: ", err)
	}
	if e := a.wait(a.start(client.StartRequest{Cmd: []string{"true"}}).Handle); e.ExitCode != 0 {
		t.Errorf("a later process ended as %+v", e)
	}
	if e := a.wait(h); e.ExitCode != 7 || e.Reason != "exited" {
		t.Errorf("ended as %+v", e)
	}
	if out, _ := a.output(h); out != counted(n) {
		t.Errorf("%d bytes of output, not %d", len(out), len(counted(n)))
	}
}

// withoutDescriptors takes the agent's limit below what it has open, until
// restore.
func (a *agent) withoutDescriptors() (restore func()) {
	a.t.Helper()
	var old unix.Rlimit
	limit := func(to, was *unix.Rlimit) {
		a.t.Helper()
		if err := unix.Prlimit(a.cmd.Process.Pid, unix.RLIMIT_NOFILE, to, was); err != nil {
			a.t.Fatal(err)
		}
	}
	limit(nil, &old)
	limit(&unix.Rlimit{Cur: 3, Max: old.Max}, nil)
	return func() { limit(&old, nil) }
}

// cpu is what the agent has used: utime and stime of proc_pid_stat(5).
func (a *agent) cpu() (used time.Duration) {
	a.t.Helper()
	fields := stat(strconv.Itoa(a.cmd.Process.Pid))
	for _, ticks := range fields[11:13] {
		n, err := strconv.Atoi(ticks)
		if err != nil {
			a.t.Fatal(strings.Join(fields, " "), err)
		}
		used += time.Duration(n) * 10 * time.Millisecond
	}
	return used
}
