package e2e

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"supervisor/client"
	"supervisor/statemachine"
)

// image is a binary that can be staged.
type image struct {
	version, path, sha256 string
}

var images sync.Map // what builds an image, by name

// buildImage builds an image once.
func buildImage(t testing.TB, name, command, version, ldflags string, flags ...string) image {
	t.Helper()
	path := filepath.Join(built, name)
	once, _ := images.LoadOrStore(name, sync.OnceValue(func() error {
		return build(path, command, "-X main.version="+version+" "+ldflags, flags...)
	}))
	if err := once.(func() error)(); err != nil {
		t.Fatal(err)
	}
	return image{version, path, digest(t, path)}
}

// good is the agent itself under another version.
func good(t testing.TB, version string) image {
	return buildImage(t, "supervisor-"+version, "supervisor/cmd/supervisor", version, "")
}

// swift is good as it is released: static, and without the race detector, which
// makes each exit take a second.
func swift(t testing.TB, version string) image {
	return buildImage(t, "swift-"+version, "supervisor/cmd/supervisor", version, "", "-race=false", "-tags=netgo,osusergo")
}

// bad is an image that passes every check and then does something else.
func bad(t testing.TB, does string) image {
	return buildImage(t, "bad-"+does, "supervisor/internal/badimage", "bad-"+does, "-X main.does="+does)
}

func digest(t testing.TB, path string) string {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		t.Fatal(err)
	}
	return hex.EncodeToString(h.Sum(nil))
}

// upgradable starts an agent of version 1 in a folder of its own.
func upgradable(t testing.TB, args ...string) *agent {
	t.Helper()
	return install(t, good(t, "1"), args...)
}

func install(t testing.TB, img image, args ...string) *agent {
	t.Helper()
	exe := filepath.Join(t.TempDir(), "supervisor")
	copyFile(t, img.path, exe)
	return startInstalled(t, exe, args...)
}

func copyFile(t testing.TB, from, to string) {
	t.Helper()
	b, err := os.ReadFile(from)
	if err == nil {
		err = os.WriteFile(to, b, 0o755)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// stage puts an image where the agent may consume it.
func (a *agent) stage(img image) string {
	a.t.Helper()
	path := filepath.Join(a.dir, "agent.new")
	_ = os.Remove(path) // of an attempt that was refused
	if err := os.Link(img.path, path); err != nil {
		a.t.Fatal(err)
	}
	return path
}

// ask requests an upgrade on a connection of its own.
func (a *agent) ask(img image) reply {
	a.t.Helper()
	c := a.raw()
	defer c.conn.Close()
	return c.call(fmt.Sprintf(`{"op":"agent_upgrade","path":%q,"sha256":%q}`, a.stage(img), img.sha256))
}

// upgrade replaces the agent and returns when the new image answers.
func (a *agent) upgrade(img image) {
	a.t.Helper()
	if m := a.ask(img); m["ok"] != true || m["agent_version"] != img.version {
		a.t.Fatalf("upgrade to %s: %v\n%s", img.version, m, a.log())
	}
	a.answers(img.version)
}

// answers waits until an image of that version does.
func (a *agent) answers(version string) {
	a.t.Helper()
	var info client.InfoReply
	eventually(a.t, "version "+version+" answers", func() bool {
		var err error
		info, err = a.Info(context.Background())
		return err == nil && info.AgentVersion == version
	})
	if info.PID != a.cmd.Process.Pid {
		a.t.Errorf("the pid is %d, was %d", info.PID, a.cmd.Process.Pid)
	}
}

// events reads the records of a kind from the live agent.
func (a *agent) events(kind statemachine.Kind) []map[string]any {
	a.t.Helper()
	found, err := a.tryEvents(kind)
	if err != nil {
		a.t.Fatal(err)
	}
	return found
}

// tryEvents is events of an agent that may be away.
func (a *agent) tryEvents(kind statemachine.Kind) (found []map[string]any, err error) {
	err = a.eachRecord(func(r record) {
		if r.Kind == kind {
			found = append(found, r.Data)
		}
	})
	return found, err
}

// record is one of the journal, as the live agent shows it.
type record struct {
	Seq    uint64
	Kind   statemachine.Kind
	Handle string
	Data   map[string]any
}

// eachRecord calls f with all that the live agent still has.
func (a *agent) eachRecord(f func(record)) error {
	for after, head := uint64(0), uint64(1); after < head; {
		r, err := a.JournalRead(a.context(20*time.Second), client.JournalReadRequest{AfterSeq: after})
		if err != nil {
			return err
		}
		head = r.HeadSeq
		for _, raw := range r.Records {
			var rec record
			if err := json.Unmarshal(raw, &rec); err != nil {
				return err
			}
			after = rec.Seq
			f(rec)
		}
	}
	return nil
}

// awaitEvent waits for the first record of a kind.
func (a *agent) awaitEvent(kind statemachine.Kind) map[string]any {
	a.t.Helper()
	var found []map[string]any
	eventually(a.t, string(kind), func() bool {
		var err error
		found, err = a.tryEvents(kind)
		return err == nil && len(found) > 0
	})
	return found[0]
}

// beside lists the folder of the installed binary.
func (a *agent) beside() []string {
	a.t.Helper()
	entries, err := os.ReadDir(filepath.Dir(a.exe))
	if err != nil {
		a.t.Fatal(err)
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

// company is a process of each kind, to be carried over upgrades.
type company struct {
	a                       *agent
	cat, tty, ended, doomed string
	before                  map[string]int // pid by handle
	written                 string         // to cat
	rounds                  int
}

func newCompany(a *agent) *company {
	a.t.Helper()
	c := &company{a: a, cat: a.start(client.StartRequest{Cmd: []string{"cat"}, Idem: "cat"}).Handle}
	c.tty = a.start(client.StartRequest{Cmd: []string{"/bin/sh", "-c", "stty -echo; while read x; do echo got $x; done"}, PTY: true}).Handle
	c.ended = a.sh("echo early; exit 6")
	a.wait(c.ended)
	c.doomed = a.start(client.StartRequest{Cmd: []string{"sleep", "600"}, TimeoutMS: 500_000}).Handle
	c.before = a.pids()
	return c
}

func (a *agent) pids() map[string]int {
	a.t.Helper()
	procs, err := a.List(a.context(20 * time.Second))
	if err != nil {
		a.t.Fatal(err)
	}
	pids := map[string]int{}
	for _, p := range procs {
		pids[p.Handle] = p.PID
	}
	return pids
}

// thrives fails unless all of them are there and go on.
func (c *company) thrives() {
	a := c.a
	a.t.Helper()
	if now := a.pids(); fmt.Sprint(now) != fmt.Sprint(c.before) {
		a.t.Fatalf("processes are %v, were %v", now, c.before)
	}
	c.rounds++
	line := fmt.Sprintf("line %d\n", c.rounds)
	c.written += line
	for _, h := range []string{c.cat, c.tty} {
		if _, err := a.Stdin(a.context(20*time.Second), h, []byte(line)); err != nil {
			a.t.Fatal(err)
		}
	}
	c.shows(c.cat, c.written)
	c.shows(c.tty, fmt.Sprintf("got line %d\r\n", c.rounds))
	c.shows(c.ended, "early\n")
	if e := a.wait(c.ended); e.ExitCode != 6 {
		a.t.Errorf("ended as %+v", e)
	}
	again := a.start(client.StartRequest{Cmd: []string{"cat"}, Idem: "cat"})
	if again.Handle != c.cat {
		a.t.Errorf("the idempotency key starts %s, not %s", again.Handle, c.cat)
	}
}

func (c *company) shows(handle, output string) {
	c.a.t.Helper()
	eventually(c.a.t, "the output of "+handle+" ends in "+output, func() bool {
		m, err := c.a.Logs(context.Background(), client.LogsRequest{Handle: handle})
		return err == nil && strings.HasSuffix(string(m.Stdout), output)
	})
}

// An upgrade and the way back to the older version.
func TestUpgradeAndDowngrade(t *testing.T) {
	a := upgradable(t)
	c := newCompany(a)
	for i, version := range []string{"2", "1", "2"} {
		a.upgrade(good(t, version))
		c.thrives()
		if names := a.beside(); !slices.Equal(names, []string{"supervisor", "supervisor.prev"}) {
			t.Errorf("beside the binary are %v", names)
		}
		if digest(t, a.exe) != good(t, version).sha256 {
			t.Error("another image is installed")
		}
		if n := len(a.events(statemachine.KindUpgradeAdopted)); n != i+1 {
			t.Errorf("%d adoptions are recorded after %d", n, i+1)
		}
	}
	a.awaitEvent(statemachine.KindUpgradeVerified)
}

// Whatever step of taking over fails, the agent is back on the old version with
// every process, and a later upgrade works.
func TestRollBack(t *testing.T) {
	for does, says := range map[string]string{
		"state":   "the state cannot be read",
		"sockets": "the sockets are gone",
		"journal": "rings: mkdir",
		"process": "epoll_ctl",
	} {
		t.Run(does, func(t *testing.T) {
			a := upgradable(t)
			c := newCompany(a)
			if m := a.ask(bad(t, does)); m["ok"] != true {
				t.Fatal(m)
			}
			back := a.awaitEvent(statemachine.KindUpgradeRolledBack)
			if back["from"] != "bad-"+does || back["to"] != "1" || !strings.Contains(back["error"].(string), says) {
				t.Errorf("recorded is %v", back)
			}
			a.answers("1")
			c.thrives()
			if names := a.beside(); !slices.Equal(names, []string{"supervisor"}) || digest(t, a.exe) != good(t, "1").sha256 {
				t.Errorf("beside the binary are %v", names)
			}
			a.upgrade(good(t, "2"))
			c.thrives()
		})
	}
}

// The way back leads to the image that ran, also where a package manager had
// replaced its file before the upgrade.
func TestRollBackToWhatRan(t *testing.T) {
	a := upgradable(t)
	c := newCompany(a)
	replacement := filepath.Join(a.dir, "of-a-package")
	copyFile(t, bad(t, "exit").path, replacement)
	if err := os.Rename(replacement, a.exe); err != nil {
		t.Fatal(err)
	}
	if m := a.ask(bad(t, "state")); m["ok"] != true {
		t.Fatal(m)
	}
	a.awaitEvent(statemachine.KindUpgradeRolledBack)
	a.answers("1")
	c.thrives()
	if digest(t, a.exe) != good(t, "1").sha256 {
		t.Error("another image is installed")
	}
}

// An image that ends at once is beyond rollback. The next start finds every
// process.
func TestImageThatExits(t *testing.T) {
	a := upgradable(t)
	h := a.sh("sleep 600")
	if m := a.ask(bad(t, "exit")); m["ok"] != true {
		t.Fatal(m)
	}
	_ = a.cmd.Wait() // exit status 3
	a.Close()
	copyFile(t, good(t, "1").path, a.exe)
	a.serve()
	if r := a.row(h); !r.Running {
		t.Errorf("the process is %+v", r)
	}
}

// While one upgrade is under way another is refused, and both leave the staged
// file alone if they are.
func TestOneUpgradeAtATime(t *testing.T) {
	a := upgradable(t)
	slow := bad(t, "slow")
	c := a.raw()
	c.send(fmt.Sprintf(`{"op":"agent_upgrade","path":%q,"sha256":%q}`, a.stage(slow), slow.sha256))
	a.awaitEvent(statemachine.KindUpgradeRequested)
	if m := a.raw().call(`{"op":"agent_upgrade","path":"/no/such/file","sha256":"x"}`); m["code"] != "upgrading" {
		t.Errorf("the second is answered %v", m)
	}
	if m := c.reply(); m["ok"] != true {
		t.Error(m)
	}
	a.awaitEvent(statemachine.KindUpgradeRolledBack)
	if m := a.raw().call(`{"op":"agent_upgrade","path":"/no/such/file","sha256":"x"}`); m["code"] != "upgrade_rejected" {
		t.Errorf("a later one is answered %v", m)
	}
	a.awaitEvent(statemachine.KindUpgradeRejected)
}
