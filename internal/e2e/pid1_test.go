package e2e

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"supervisor/client"
	"supervisor/internal/testproc"
	"supervisor/statemachine"
)

// startAsInit runs an agent as PID 1 of a namespace of its own. pid is its
// number outside; end waits for the end of the namespace, and returns the
// signal that tells how: see reboot(2), "Behavior inside PID namespaces".
func startAsInit(t *testing.T) (a *agent, pid int, end func() os.Signal) {
	t.Helper()
	return startAsInitWith(t, "", nil)
}

// startAsInitWith is startAsInit with a redirection, as a shell has them, of the
// agent's descriptors. Its descriptor 3 is file.
func startAsInitWith(t *testing.T, redirection string, file *os.File) (a *agent, pid int, end func() os.Signal) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root for a PID namespace")
	}
	a = &agent{t: t, dir: t.TempDir()}
	cmd := exec.Command("/bin/sh", "-c", `exec "$@" `+redirection, "sh", "unshare", "--pid", "--fork", "--mount-proc", binary,
		"serve", "--listen", a.addr(), "--state-dir", filepath.Join(a.dir, "state"), "--max-procs", "100")
	if file != nil {
		cmd.ExtraFiles = []*os.File{file}
	}
	a.launch(cmd)
	children, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%[1]d/children", a.cmd.Process.Pid))
	if err != nil {
		t.Fatal(err)
	}
	if pid, err = strconv.Atoi(strings.TrimSpace(string(children))); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Kill(pid, unix.SIGKILL) }) // gone, if the test did its work
	return a, pid, func() os.Signal {
		a.Client.Close()
		_ = a.cmd.Wait() // what it says is in the state
		status := a.cmd.ProcessState.Sys().(syscall.WaitStatus)
		if !status.Signaled() {
			t.Errorf("the namespace ended with %v\n%s", a.cmd.ProcessState, a.log())
		}
		return status.Signal()
	}
}

// C21: PID 1 reaps every orphan and steals no status, beside exec, and leaves
// no zombie for two seconds.
func TestC21AsInit(t *testing.T) {
	a, pid, end := startAsInit(t)
	n := 1000
	if testing.Short() {
		n = 100
	}
	const script = `(sleep .05 &); (true &); exit 42`
	each(t, n, 30, func(i int) error {
		if i%5 == 0 {
			reply := a.raw().call(fmt.Sprintf(`{"op":"exec","cmd":["/bin/sh","-c",%q]}`, script))
			if reply["exit_code"] != 42.0 {
				return fmt.Errorf("exec answers %v", reply)
			}
		}
		p, err := a.Start(context.Background(), client.StartRequest{Cmd: []string{"/bin/sh", "-c", script}})
		if err != nil {
			return err
		}
		e, err := a.Wait(context.Background(), p.Handle)
		if err != nil || e.ExitCode != 42 || e.Reason != "exited" {
			return fmt.Errorf("ended as %+v, %v", e, err)
		}
		return nil
	})
	if !testproc.Eventually(2*time.Second, func() bool { return zombiesOf(t, pid) == 0 }) {
		t.Errorf("%d zombies", zombiesOf(t, pid))
	}
	info, err := a.Info(context.Background())
	if err != nil || info.PID != 1 || info.Reaped < int64(n) {
		t.Errorf("%+v, %v", info, err)
	}
	if err := unix.Kill(pid, unix.SIGTERM); err != nil {
		t.Error(err)
	}
	end()
	a.checkJournal()
}

// PID 1 stops its processes and strays, those that listen and those that do
// not, and records it all.
func TestInitStopsEverything(t *testing.T) {
	a, pid, end := startAsInit(t)
	dir := t.TempDir()
	polite := a.sh("trap 'echo bye; exit 7' TERM; echo ready; while :; do sleep .1; done")
	deaf := a.sh("trap '' TERM; echo ready; while :; do sleep .1; done")
	stray := a.sh("setsid sh -c 'trap \"touch " + dir + "/stray; exit\" TERM; echo ready; while :; do sleep .1; done' & sleep .1")
	for _, h := range []string{polite, deaf, stray} {
		if _, err := a.Logs(context.Background(), client.LogsRequest{Handle: h, WaitMS: 20_000}); err != nil {
			t.Fatal(err)
		}
	}
	if err := unix.Kill(pid, unix.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if how := end(); how != unix.SIGINT {
		t.Errorf("it was not powered off: %v", how)
	}
	if _, err := os.Stat(dir + "/stray"); err != nil {
		t.Error("a stray was not asked: ", err)
	}
	ends := map[string]int{}
	var last statemachine.Kind
	for _, r := range a.records() {
		if e, ok := r.Event.(*statemachine.Exited); ok {
			ends[r.Handle] = e.ExitCode
		}
		last = r.Event.Kind()
	}
	if ends[polite] != 7 || ends[deaf] != 137 || last != statemachine.KindAgentStopped {
		t.Errorf("ends %v, last record %s", ends, last)
	}
}

// SIGINT, which the kernel sends for ctrl-alt-del, is answered by a reboot.
func TestInitReboots(t *testing.T) {
	a, pid, end := startAsInit(t)
	h := a.sh("trap 'exit 7' TERM; echo ready; while :; do sleep .1; done")
	if _, err := a.Logs(context.Background(), client.LogsRequest{Handle: h, WaitMS: 20_000}); err != nil {
		t.Fatal(err)
	}
	if err := unix.Kill(pid, unix.SIGINT); err != nil {
		t.Fatal(err)
	}
	if how := end(); how != unix.SIGHUP {
		t.Errorf("it did not reboot: %v", how)
	}
	for _, r := range a.records() {
		if e, ok := r.Event.(*statemachine.Exited); ok && e.ExitCode != 7 {
			t.Errorf("the process ended as %+v", e)
		}
	}
}

// --kill-on-exit does the same for any agent.
func TestKillOnExit(t *testing.T) {
	a := start(t, "--kill-on-exit")
	h := a.sh("trap 'exit 7' TERM; echo ready; while :; do sleep .1; done")
	if _, err := a.Logs(context.Background(), client.LogsRequest{Handle: h, WaitMS: 20_000}); err != nil {
		t.Fatal(err)
	}
	a.stop()
	a.serve()
	if e := a.wait(h); e.ExitCode != 7 || e.Reason != "exited" {
		t.Errorf("ended as %+v", e)
	}
}

// Orphans come to an agent that is not PID 1 as well.
func TestSubreaper(t *testing.T) {
	a := start(t)
	for range 50 {
		a.wait(a.sh("(sleep .1 &); exit 0"))
	}
	eventually(t, "no zombie", func() bool { return zombiesOf(t, a.cmd.Process.Pid) == 0 })
	eventually(t, "50 are reaped", func() bool {
		info, err := a.Info(context.Background())
		return err == nil && info.Reaped == 50
	})
}
