package e2e

import (
	"context"
	"encoding/base64"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"supervisor/client"
	"supervisor/statemachine"
)

// links lists what the agent's descriptors are, by number.
func (a *agent) links() map[string]string {
	a.t.Helper()
	dir := fmt.Sprintf("/proc/%d/fd", a.cmd.Process.Pid)
	entries, err := os.ReadDir(dir)
	if err != nil {
		a.t.Fatal(err)
	}
	found := map[string]string{}
	for _, e := range entries {
		if link, err := os.Readlink(filepath.Join(dir, e.Name())); err == nil {
			found[e.Name()] = link
		}
	}
	return found
}

// settled counts those that do not come and go, as the tests' connections do.
func (a *agent) settled() (n int) {
	for _, link := range a.links() {
		if !strings.HasPrefix(link, "socket:") && !strings.HasPrefix(link, "/proc") && !strings.HasSuffix(link, "journal.db") {
			n++
		}
	}
	return n
}

// environ is what the running image was executed with.
func (a *agent) environ() string {
	a.t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", a.cmd.Process.Pid))
	if err != nil {
		a.t.Fatal(err)
	}
	return string(b)
}

// C24, C27: upgrade after upgrade the agent has the same descriptors and the
// same environment, and no handle comes twice.
func TestC24NothingLeaks(t *testing.T) {
	a := upgradable(t, "--max-procs", "1000")
	c := newCompany(a)
	versions := []image{good(t, "2"), good(t, "1")}
	c.thrives() // so that rings are open
	a.upgrade(versions[0])
	before, environ := a.settled(), len(a.environ())
	handles := map[string]bool{}
	for i := 1; i <= upgrades(100); i++ {
		a.upgrade(versions[i%2])
		h := a.sh("exec ls -l /proc/self/fd")
		if handles[h] {
			t.Fatalf("handle %s came again", h)
		}
		handles[h] = true
		out, _ := a.output(h)
		if strings.Count(out, " -> ") != 4 { // ls itself opens one
			t.Errorf("a child has\n%s", out)
		}
		c.before[h] = a.row(h).PID
	}
	c.thrives()
	eventually(t, "as many descriptors as after the first upgrade", func() bool { return a.settled() == before })
	for number, link := range a.links() {
		if strings.Contains(link, "memfd") {
			t.Errorf("descriptor %s is %s", number, link)
		}
	}
	if now := len(a.environ()); now > environ+2 || strings.Count(a.environ(), "PT_AGENT_HANDOFF") > 1 { // the number of the state
		t.Errorf("the environment has %d bytes, had %d", now, environ)
	}
}

// C25: a link that flips between a good and an evil image never runs the evil.
func TestC25SwappedAfterTheCheck(t *testing.T) {
	a := upgradable(t)
	marker := filepath.Join(t.TempDir(), "ran")
	evil := buildImage(t, "evil", "supervisor/internal/badimage", "evil", "-X main.marker="+marker)
	versions := []image{good(t, "2"), good(t, "1")}
	var current atomic.Pointer[image]
	current.Store(&versions[0])
	link, stop := filepath.Join(a.dir, "staged"), make(chan struct{})
	var flipping sync.WaitGroup
	flipping.Go(func() {
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			default:
			}
			target := current.Load().path
			if i%2 == 1 {
				target = evil.path
			}
			if os.Symlink(target, link+".next") == nil {
				_ = os.Rename(link+".next", link)
			}
		}
	})
	taken := 0
	for range upgrades(200) {
		img := current.Load()
		conn := a.raw()
		m := conn.call(fmt.Sprintf(`{"op":"agent_upgrade","path":%q,"sha256":%q}`, link, img.sha256))
		conn.conn.Close()
		if m["ok"] != true {
			continue
		}
		a.answers(img.version)
		taken++
		current.Store(&versions[taken%2])
	}
	close(stop)
	flipping.Wait()
	if _, err := os.Stat(marker); err == nil {
		t.Error("the evil image ran")
	}
	if taken == 0 {
		t.Error("no upgrade was taken")
	}
	for _, img := range append(versions, evil) {
		if _, err := os.Stat(img.path); err != nil {
			t.Error("a target of the link was consumed: ", err)
		}
	}
}

// C26: while the agent is upgraded the socket is there, with its mode, and
// nobody is refused.
func TestC26SocketStays(t *testing.T) {
	a := upgradable(t)
	path := filepath.Join(a.dir, "agent.sock")
	before, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	stop := make(chan struct{})
	var knocking sync.WaitGroup
	knocking.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
			}
			info, err := os.Stat(path)
			if err != nil || info.Mode() != before.Mode() || !os.SameFile(info, before) {
				t.Errorf("the socket is %v, %v", info, err)
				return
			}
			conn, err := net.Dial("unix", path)
			if err != nil {
				t.Error(err)
				return
			}
			conn.Close()
			time.Sleep(time.Millisecond) // else it fills the backlog alone
		}
	})
	versions := []image{good(t, "1"), good(t, "2")}
	for i := 1; i <= upgrades(50); i++ {
		a.upgrade(versions[i%2])
	}
	close(stop)
	knocking.Wait()
}

// hold connects a peer that reads nothing of a reply that is too large for its
// socket: the handover gives it a moment, in which a test can do something.
func (a *agent) hold() {
	a.t.Helper()
	h := a.sh("head -c 200000 /dev/zero")
	a.wait(h)
	c := a.raw()
	for range 20 {
		c.send(fmt.Sprintf(`{"op":"proc_logs","handle":%q,"limit":200000}`, h))
	}
}

// A peer that never reads delays no handover for long.
func TestPeerThatNeverReads(t *testing.T) {
	a := upgradable(t)
	a.hold()
	a.upgrade(good(t, "2"))
	if us := a.awaitEvent(statemachine.KindUpgradeAdopted)["blackout_us"].(float64); us > 3e6 {
		t.Errorf("the blackout was %v us", us)
	}
}

// What is not UTF-8 in the path of the installed image survives upgrades.
func TestOddInstallPath(t *testing.T) {
	folder := filepath.Join(t.TempDir(), "caf\xe9 [x]")
	if err := os.Mkdir(folder, 0o755); err != nil {
		t.Fatal(err)
	}
	exe := filepath.Join(folder, "the agent")
	copyFile(t, good(t, "1").path, exe)
	a := startInstalled(t, exe)
	for _, version := range []string{"2", "1"} {
		a.upgrade(good(t, version))
		if names := a.beside(); !slices.Equal(names, []string{"the agent", "the agent.prev"}) {
			t.Errorf("beside the binary are %q", names)
		}
	}
}

// An execve that fails loses nothing: the old image goes on and is installed.
func TestExecveFails(t *testing.T) {
	a := upgradable(t)
	c := newCompany(a)
	a.failsToExec(good(t, "2"))
	c.before = a.pids()
	rejected := a.awaitEvent(statemachine.KindUpgradeRejected)
	if !strings.Contains(rejected["error"].(string), "permission denied") || rejected["to"] != "2" {
		t.Errorf("recorded is %v", rejected)
	}
	a.answers("1")
	c.thrives()
	if digest(t, a.exe) != good(t, "1").sha256 || !slices.Equal(a.beside(), []string{"supervisor"}) {
		t.Errorf("beside the binary are %v", a.beside())
	}
	a.upgrade(good(t, "2"))
	c.thrives()
}

// What is in flight at a handover is answered upgrading, and journaled so. What
// a process has taken of its input by then is counted.
func TestInFlight(t *testing.T) {
	a := upgradable(t)
	reader := a.sh("while [ ! -e " + a.dir + "/go ]; do sleep .05; done; wc -c")
	wait, logs, write := a.raw(), a.raw(), a.raw()
	wait.send(fmt.Sprintf(`{"op":"proc_wait","handle":%q}`, reader))
	logs.send(fmt.Sprintf(`{"op":"proc_logs","handle":%q,"wait_ms":60000}`, reader))
	write.send(fmt.Sprintf(`{"op":"proc_stdin","handle":%q,"data":%q}`, reader,
		base64.StdEncoding.EncodeToString(make([]byte, 1<<20))))
	pid := a.row(reader).PID
	eventually(t, "the pipe is full", func() bool { return pipeFull(t, pid) })
	a.upgrade(good(t, "2"))
	for name, c := range map[string]*raw{"wait": wait, "logs": logs, "write": write} {
		m := c.reply()
		if m["ok"] != false || m["code"] != "upgrading" || name == "write" && m["written"] != 65536.0 {
			t.Errorf("%s is answered %v", name, m)
		}
	}
	refused := map[string]bool{}
	for _, v := range a.events(statemachine.KindVerb) {
		if v["code"] == "upgrading" {
			refused[v["op"].(string)] = true
		}
	}
	if len(refused) != 3 {
		t.Errorf("refused are %v", refused)
	}
	if e := a.events(statemachine.KindStdin); len(e) != 1 || e[0]["bytes"] != 65536.0 {
		t.Errorf("recorded are %v", e)
	}
	if err := os.WriteFile(filepath.Join(a.dir, "go"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := a.CloseStdin(context.Background(), reader); err != nil {
		t.Fatal(err)
	}
	if out, _ := a.output(reader); strings.TrimSpace(out) != "65536" {
		t.Errorf("the process read %q", out)
	}
}

// Deadlines and retention run on over two upgrades as if there were none.
func TestClocksRunOn(t *testing.T) {
	a := upgradable(t, "--proc-retain-sec", "4")
	ended := a.sh("exit 1")
	a.wait(ended)
	began := time.Now()
	doomed := a.start(client.StartRequest{Cmd: []string{"sleep", "600"}, TimeoutMS: 3000}).Handle
	for _, version := range []string{"2", "1"} {
		a.upgrade(good(t, version))
	}
	e := a.wait(doomed)
	if took := time.Since(began); !e.TimedOut || took < 2900*time.Millisecond {
		t.Errorf("ended as %+v after %v", e, took)
	}
	eventually(t, "the record is collected", func() bool { _, there := a.pids()[ended]; return !there })
	if took := time.Since(began); took < 3500*time.Millisecond {
		t.Errorf("it was after %v", took)
	}
}

// A pipe whose record was collected is pumped on by the next image: whoever
// holds it can write.
func TestCollectedIsPumped(t *testing.T) {
	a := upgradable(t, "--max-procs", "1")
	done := filepath.Join(a.dir, "done")
	left := a.sh("(while [ ! -e " + a.dir + "/go ]; do sleep .05; done; head -c 1000000 /dev/zero && touch " + done + ") & exit 0")
	a.wait(left)
	a.wait(a.sh("exit 0")) // takes its place
	if _, there := a.pids()[left]; there {
		t.Fatal("the record was not collected")
	}
	a.upgrade(good(t, "2"))
	if err := os.WriteFile(filepath.Join(a.dir, "go"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	eventually(t, "a megabyte is written", func() bool { _, err := os.Stat(done); return err == nil })
}

// A process that was found again after a crash is carried like others.
func TestOrphanIsCarried(t *testing.T) {
	a := upgradable(t)
	h := a.sh("i=0; while [ $i -lt 300 ]; do i=$((i+1)); echo $i; sleep .01; done; exit 9")
	a.kill9()
	a.serve()
	for _, version := range []string{"2", "1"} {
		a.upgrade(good(t, version))
	}
	out, _ := a.output(h)
	var want strings.Builder
	for i := range 300 {
		fmt.Fprintln(&want, i+1)
	}
	if out != want.String() {
		t.Errorf("%d bytes of %d", len(out), want.Len())
	}
	if e := a.wait(h); e.Running || e.ExitCode != 9 && e.ExitCode != -1 {
		t.Errorf("ended as %+v", e)
	}
}

// With a journal that commits later nothing is lost by a handover.
func TestUpgradeWithLateCommits(t *testing.T) {
	for _, mode := range []string{"batch", "off"} {
		a := upgradable(t, "--journal-sync", mode)
		for i := range 4 {
			a.wait(a.sh("exit 0"))
			before := a.pids()
			a.upgrade(good(t, []string{"2", "1"}[i%2]))
			if now := a.pids(); fmt.Sprint(now) != fmt.Sprint(before) {
				t.Errorf("%s: processes are %v, were %v", mode, now, before)
			}
		}
		if n := len(a.events(statemachine.KindUpgradeHandoff)); n != 4 {
			t.Errorf("%s: %d handoffs are recorded", mode, n)
		}
	}
}

// Asked to stop at any moment of a handover, the agent does, as the one image or
// the other, and leaves its processes alone.
func TestStoppedInAHandover(t *testing.T) {
	a := install(t, swift(t, "1"))
	a.sh("exec sleep 600")
	before := a.pids()
	versions := map[string]image{swift(t, "1").sha256: swift(t, "2"), swift(t, "2").sha256: swift(t, "1")}
	for i := range 40 {
		if m := a.ask(versions[digest(t, a.exe)]); m["ok"] != true {
			t.Fatal(m)
		}
		time.Sleep(time.Duration(i) * time.Millisecond) // from before the execve to behind it
		if err := a.cmd.Process.Signal(syscall.SIGTERM); err != nil {
			t.Fatal(err)
		}
		a.Client.Close()
		ended := make(chan error, 1)
		go func() { ended <- a.cmd.Wait() }()
		select {
		case err := <-ended:
			if err != nil && err.Error() != "signal: terminated" {
				t.Fatalf("round %d: %v\n%s", i, err, a.log())
			}
		case <-time.After(20 * time.Second):
			t.Fatalf("round %d: it does not stop\n%s", i, a.log())
		}
		a.serve()
		if now := a.pids(); fmt.Sprint(now) != fmt.Sprint(before) {
			t.Fatalf("round %d: processes are %v, were %v", i, now, before)
		}
	}
}

// Killed at any moment of a handover, the agent comes back, as the one image or
// the other, with every process that was acknowledged.
func TestKilledInAHandover(t *testing.T) {
	a := upgradable(t, "--max-procs", "500")
	c := newCompany(a)
	next := map[string]string{digest(t, good(t, "1").path): "2", digest(t, good(t, "2").path): "1"}
	for i := range upgrades(24) {
		h := a.sh("sleep 600")
		c.before[h] = a.row(h).PID
		if i%4 == 0 {
			a.hold() // widens the moment between installation and execve
			c.before = a.pids()
		}
		conn := a.raw()
		img := good(t, next[digest(t, a.exe)])
		conn.send(fmt.Sprintf(`{"op":"agent_upgrade","path":%q,"sha256":%q}`, a.stage(img), img.sha256))
		if i%3 > 0 { // else before it is installed
			conn.reply()
		}
		time.Sleep(time.Duration(rand.IntN(30)) * time.Millisecond) // when it dies is up to chance
		a.kill9()
		a.serve()
		if now := a.pids(); fmt.Sprint(now) != fmt.Sprint(c.before) {
			t.Fatalf("round %d: processes are %v, were %v", i, now, c.before)
		}
	}
}
