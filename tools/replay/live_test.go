package main

import (
	"bufio"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"supervisor/client"
	"supervisor/internal/testproc"
	"supervisor/journal"
)

// agent is a running agent.
type agent struct {
	binary, state, addr string
	flags               []string
	cmd                 *exec.Cmd
}

// newAgent builds the agent and starts it.
func newAgent(t *testing.T, flags ...string) *agent {
	t.Helper()
	dir := t.TempDir()
	a := &agent{
		binary: filepath.Join(dir, "supervisor"), state: filepath.Join(dir, "state"), addr: "unix:" + filepath.Join(dir, "sock"),
		flags: flags,
	}
	if out, err := exec.Command("go", "build", "-o", a.binary, "supervisor/cmd/supervisor").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	t.Cleanup(a.kill)
	a.start(t)
	return a
}

// start starts the agent and waits until it answers.
func (a *agent) start(t *testing.T) {
	t.Helper()
	a.cmd = exec.Command(a.binary, append([]string{"serve", "--listen", a.addr, "--state-dir", a.state}, a.flags...)...)
	if err := a.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	answers := func() bool {
		c, err := client.Dial(context.Background(), a.addr)
		if err != nil {
			return false
		}
		defer c.Close()
		_, err = c.Info(context.Background())
		return err == nil
	}
	if !testproc.Eventually(10*time.Second, answers) {
		t.Fatal("the agent does not answer")
	}
}

// kill ends the agent as a crash would.
func (a *agent) kill() {
	a.cmd.Process.Kill()
	a.cmd.Wait()
}

// file is the agent's journal.
func (a *agent) file() string { return filepath.Join(a.state, "journal.db") }

// runs starts a process and waits for its end.
func (a *agent) runs(t *testing.T, cmd ...string) (handle string) {
	t.Helper()
	c, err := client.Dial(context.Background(), a.addr)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	started, err := c.Start(context.Background(), client.StartRequest{Cmd: cmd})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Wait(context.Background(), started.Handle); err != nil {
		t.Fatal(err)
	}
	return started.Handle
}

// A live agent's journal is read by its address; its file is refused
// meanwhile with a hint, and says the same once the agent is gone. C28
func TestLiveAgent(t *testing.T) {
	testproc.NoLeaks(t)
	a := newAgent(t)
	handle := a.runs(t, "sh", "-c", "echo out; exit 3")
	if stdout, stderr, code := invoke("verify", a.addr); code != exitOK || !strings.HasPrefix(stdout, "ok: records 1..") || stderr != "" {
		t.Errorf("verify: exit %d, %q, %q", code, stdout, stderr)
	}
	if stdout, _, _ := invoke("state", a.addr); !strings.Contains(stdout, handle) || !strings.Contains(stdout, "exit 3 (exited)") {
		t.Errorf("state: %s", stdout)
	}
	if _, stderr, code := invoke("state", a.file()); code != exitFailed || !strings.Contains(stderr, "read a live agent's journal by its address") {
		t.Errorf("the file: exit %d, %q", code, stderr)
	}
	live, _, _ := invoke("events", "--json", "--kind", "proc", a.addr)
	liveRaw, _, _ := invoke("events", "--raw", a.addr)
	a.kill()
	if file, stderr, code := invoke("events", "--json", "--kind", "proc", a.file()); code != exitOK || file != live || !strings.Contains(live, handle) {
		t.Errorf("exit %d, %q; by address:\n%s\nfrom the file:\n%s", code, stderr, live, file)
	}
	if fileRaw, _, _ := invoke("events", "--raw", a.file()); !strings.HasPrefix(fileRaw, liveRaw) || liveRaw == "" {
		t.Error("the raw records by address are not those of the file")
	}
	if stdout, stderr, code := invoke("logs", a.file(), handle); code != exitOK || stdout != "out\n" || stderr != "" {
		t.Errorf("logs: exit %d, %q, %q", code, stdout, stderr)
	}
}

// Of a live agent that has pruned, what is left is checked and folded from the
// snapshot that it serves.
func TestLiveAgentThatHasPruned(t *testing.T) {
	testproc.NoLeaks(t)
	a := newAgent(t, "--journal-max-bytes", "65536")
	for first := uint64(1); first == 1; {
		a.runs(t, "true")
		src, err := dial(a.addr)
		if err != nil {
			t.Fatal(err)
		}
		if first, _, err = src.extent(); err != nil {
			t.Fatal(err)
		}
		src.close()
	}
	stdout, stderr, code := invoke("verify", a.addr)
	if code != exitOK || !strings.HasPrefix(stdout, "ok: records ") || stderr != "" {
		t.Errorf("verify: exit %d, %q, %q", code, stdout, stderr)
	}
	stdout, stderr, code = invoke("state", a.addr)
	if code != exitOK || !strings.Contains(stdout, "true") || stderr != "" {
		t.Errorf("state: exit %d, %q, %q", code, stdout, stderr)
	}
	a.kill()
	if stdout, stderr, code := invoke("verify", a.file()); code != exitOK || stderr != "" {
		t.Errorf("the file: exit %d, %q, %q", code, stdout, stderr)
	}
}

// A follower sees records as they are made, also after the agent was killed
// and started again. C34
func TestFollowOverARestart(t *testing.T) {
	testproc.NoLeaks(t)
	a := newAgent(t)
	follower := exec.Command(linkTo(t, os.Args[0], "replay"), "events", "-f", "--kind", "proc.exited,agent.started", a.addr)
	out, err := follower.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := follower.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		follower.Process.Kill()
		follower.Wait()
	})
	lines := bufio.NewScanner(out)
	next := func(want string) {
		t.Helper()
		timer := time.AfterFunc(20*time.Second, func() { follower.Process.Kill() })
		defer timer.Stop()
		for lines.Scan() {
			if strings.Contains(lines.Text(), want) {
				return
			}
		}
		t.Fatalf("the follower ended before %q", want)
	}
	next("agent.started")
	next(a.runs(t, "true"))
	a.kill()
	a.start(t)
	next("agent.started")
	next(a.runs(t, "true"))
}

// linkTo gives a program another name: this one runs as the command that it is
// called by, see TestMain.
func linkTo(t *testing.T, program, name string) string {
	t.Helper()
	link := filepath.Join(t.TempDir(), name)
	if err := os.Symlink(program, link); err != nil {
		t.Fatal(err)
	}
	return link
}

// What an agent sends is checked against the chain.
func TestLiveRecordsAreChecked(t *testing.T) {
	path := place(t)
	write(t, path, journal.Options{}, busyDay().payloads())
	src, err := openFile(path)
	if err != nil {
		t.Fatal(err)
	}
	defer src.close()
	rs, err := src.page(0)
	if err != nil {
		t.Fatal(err)
	}
	for _, start := range []int{0, 7} {
		var live liveSource
		for i := range rs[start:] {
			if err := live.check(&rs[start+i]); err != nil {
				t.Errorf("from %d: %v", start, err)
			}
		}
	}
	rs[9].Payload[5] ^= 1
	var live liveSource
	for i := range rs {
		err := live.check(&rs[i])
		if (err != nil) != (i == 9) {
			t.Errorf("record %d: %v", rs[i].Seq, err)
		}
		if err != nil {
			break
		}
	}
}
