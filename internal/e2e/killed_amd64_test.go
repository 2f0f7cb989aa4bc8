package e2e

import (
	"context"
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"supervisor/client"
	"supervisor/internal/testproc"
)

// moments of an upgrade, each told by the system call that comes next.
var moments = []struct {
	name string
	next point
}{
	{"before the image is taken", point{"", "memfd_create", 1}},
	{"before the image is sealed", point{"", "seal", 1}},
	{"before the version is asked for", point{"", "fork", 1}},
	{"before the state is rehearsed", point{"", "memfd_create", 2}},
	{"before the preflight", point{"", "fork", 2}},
	{"before the copy is made", point{"fork", "fchmod", 1}},
	{"in the copy", point{"seal", "write", 100}},
	{"before the copy is synced", point{"", "fsync", 1}},
	{"before the installed image is kept", point{"", "linkat", 1}},
	{"before the new image is installed", point{"", "renameat", 1}},
	{"between the renames", point{"", "renameat", 2}},
	{"before the folder is synced", point{"", "fsync", 2}},
	{"before the staged file is consumed", point{"renameat", "unlinkat", 3}},
	{"before the answer is recorded", point{"unlinkat", "pwrite", 1}},
	{"before the answer is durable", point{"unlinkat", "fdatasync", 2}},
	{"before the last verbs are durable", point{"unlinkat", "fdatasync", 4}},
	{"before the handoff is recorded", point{"unlinkat", "fdatasync", 5}},
	{"before the handoff is durable", point{"unlinkat", "fdatasync", 6}},
	{"before the state is written", point{"unlinkat", "memfd_create", 1}},
	{"before the state is sealed", point{"unlinkat", "seal", 1}},
	{"before the descriptors are kept", point{"unlinkat", "keep", 1}},
	{"before the execve", point{"unlinkat", "execve", 1}},
	{"before the state is validated", point{"exec", "pread", 1}},
	{"before a process is adopted", point{"exec", "dup", 3}},
	{"before the adoption is recorded", point{"exec", "pwrite", 1}},
	{"before the adoption is durable", point{"exec", "fdatasync", 2}},
	{"before a connection is accepted", point{"exec", "accept", 1}},
}

// Killed at any moment of an upgrade, the agent comes back with every process
// and its output. What is installed then is the one image or the other, whole,
// and nothing else lies beside it but the one before.
func TestKilledAtEachMoment(t *testing.T) {
	a := install(t, swift(t, "1"), "--max-procs", "500")
	c := newCaravan(a)
	for _, moment := range moments {
		if t.Log(moment.name); !c.killedAt(moment.next) {
			t.Errorf("%v never came", moment.next)
		}
	}
}

// The same at every call of these kinds.
func TestKilledAtEachCall(t *testing.T) {
	a := install(t, swift(t, "1"), "--max-procs", "500")
	c := newCaravan(a)
	n := 1
	for c.killedAt(point{"", "any", n}) {
		n += times(37, 1)
	}
	t.Logf("an upgrade makes fewer than %d calls", n)
}

// caravan is what an agent has with it through upgrades that go wrong.
type caravan struct {
	*agent
	digests map[string]image // by SHA-256
	before  map[string]int
	counts  string // the handle of a process that counts
}

func newCaravan(a *agent) *caravan {
	c := &caravan{agent: a, digests: map[string]image{}}
	for _, version := range []string{"1", "2"} {
		img := swift(a.t, version)
		c.digests[img.sha256] = img
	}
	c.counts = a.start(client.StartRequest{Cmd: testproc.Argv("paced", "100000000", "0")}).Handle
	a.sh("exec sleep 600")
	a.wait(a.sh("exit 3"))
	return c
}

// other is the image that is not installed.
func (c *caravan) other() image {
	c.t.Helper()
	installed, ok := c.digests[digest(c.t, c.exe)]
	if !ok {
		c.t.Fatal("what is installed is no image")
	}
	for _, img := range c.digests {
		if img != installed {
			return img
		}
	}
	panic("there are two")
}

// killedAt asks for an upgrade in which the agent is killed, and checks what is
// found afterwards.
func (c *caravan) killedAt(p point) (killed bool) {
	c.t.Helper()
	c.before = c.pids()
	img, conn := c.other(), c.raw().conn
	request := fmt.Sprintf(`{"op":"agent_upgrade","path":%q,"sha256":%q}`+"\n", c.stage(img), img.sha256)
	m := c.meddle(p, deadly)
	_, _ = conn.Write([]byte(request)) // which fails if it is dead already
	c.awaitEnd(img.version)
	killed = m.end(c.t) != ""
	conn.Close()
	if killed {
		c.Close()
		_ = c.cmd.Wait() // says that it was killed
		c.serve()
	}
	c.isWhole()
	return killed
}

// awaitEnd waits until the agent is dead, or the other image answers.
func (c *caravan) awaitEnd(version string) {
	c.t.Helper()
	eventually(c.t, "an end of the upgrade", func() bool {
		if stat(fmt.Sprint(c.cmd.Process.Pid))[0] == "Z" {
			return true
		}
		info, err := c.Info(c.context(time.Second))
		return err == nil && info.AgentVersion == version
	})
}

// isWhole fails unless everything is there that was before.
func (c *caravan) isWhole() {
	t := c.t
	t.Helper()
	if now := c.pids(); fmt.Sprint(now) != fmt.Sprint(c.before) {
		t.Fatalf("processes are %v, were %v", now, c.before)
	}
	m, err := c.Logs(context.Background(), client.LogsRequest{Handle: c.counts, Limit: 4 << 20})
	if err != nil {
		t.Fatal(err)
	}
	if string(m.Stdout) != linesAt(m.StdoutDropped, len(m.Stdout)) || len(m.Stdout) == 0 || !m.Running {
		t.Fatalf("%d bytes from %d are not what was written", len(m.Stdout), m.StdoutDropped)
	}
	for _, name := range c.beside() {
		path := filepath.Join(filepath.Dir(c.exe), name)
		if _, ok := c.digests[digest(t, path)]; !ok || name != "supervisor" && name != "supervisor.prev" {
			t.Errorf("beside the installed image is %s", name)
		}
	}
}
