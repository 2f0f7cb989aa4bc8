package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"supervisor/client"
	"supervisor/journal"
	"supervisor/statemachine"
)

// A namedPoint is a moment in the agent's work at which a crash is a case of its own,
// told by the system call that is next to it.
type namedPoint string

// The points of a commit: bbolt writes pages, syncs, writes one of the two meta
// pages, and syncs.
const (
	beforeTransaction namedPoint = "before the transaction" // no page is written: what there is of it is in memory
	beforeDataSync    namedPoint = "after the write, before the sync of data"
	betweenSyncs      namedPoint = "between the syncs, before the meta page"
	beforeMetaSync    namedPoint = "between the syncs, after the meta page"
	afterCommit       namedPoint = "after the commit, before the effects"
	afterSignal       namedPoint = "after a signal, before its reply"
	afterFork         namedPoint = "after a fork, before its record"
	beforeReply       namedPoint = "after the effects, before the reply"
)

// The points of recovery, beside those of its commits.
const (
	afterLock       namedPoint = "after the lock"
	afterCheck      namedPoint = "after the checks of the journal"
	afterAdoption   namedPoint = "after the adoption of a process"
	beforeListeners namedPoint = "before the listeners"
)

// metaPages is where the pages in use begin: behind bbolt's two meta pages.
const metaPages = 2 * 4096

// progress finds the points in the system calls of an agent.
type progress struct {
	written bool // pages of the commit under way are
	meta    bool // its meta page is
	opened  bool // the journal is, and locked
}

// reaches says which point a call is at, "" for none.
func (p *progress) reaches(c systemCall) namedPoint {
	switch c.nr {
	case unix.SYS_PWRITE64, unix.SYS_FDATASYNC:
		if c.isJournal() {
			return p.commits(c)
		}
	case unix.SYS_FLOCK:
		return p.locks(c)
	case unix.SYS_EPOLL_CREATE1:
		if p.opened && !c.made { // the reactor's: the table of processes comes behind the journal
			return afterCheck
		}
	case unix.SYS_PIDFD_OPEN:
		if p.opened && c.made && !c.err {
			return afterAdoption
		}
	case unix.SYS_BIND:
		if !c.made {
			return beforeListeners
		}
	case unix.SYS_PIDFD_SEND_SIGNAL:
		if c.made && !c.err && c.args[1] != 0 {
			return afterSignal
		}
	case unix.SYS_CLONE:
		if c.made && !c.err && c.args[0]&unix.CLONE_VFORK != 0 {
			return afterFork
		}
	case unix.SYS_WRITE:
		if !c.made && strings.HasPrefix(c.link(0), "socket:") {
			return beforeReply
		}
	}
	return ""
}

func (p *progress) commits(c systemCall) namedPoint {
	switch write := c.nr == unix.SYS_PWRITE64; {
	case c.made && p.meta && !write:
		*p = progress{opened: p.opened}
		return afterCommit
	case c.made:
	case write && int64(c.args[3]) < metaPages:
		p.meta = true
		return betweenSyncs
	case write && !p.written:
		p.written = true
		return beforeTransaction
	case write:
	case p.meta:
		return beforeMetaSync
	default:
		return beforeDataSync
	}
	return ""
}

func (p *progress) locks(c systemCall) namedPoint {
	if !c.made || c.err {
		return ""
	}
	switch filepath.Base(c.link(0)) {
	case "lock":
		return afterLock
	case "journal.db":
		p.opened = true
	}
	return ""
}

// crashAt kills the agent when it reaches the point for the nth time.
func crashAt(at namedPoint, nth int) func(systemCall) bool {
	p := &progress{}
	return func(c systemCall) bool {
		if p.reaches(c) == at {
			nth--
		}
		return nth <= 0
	}
}

// crashes is an agent that dies at one point after the other, with one journal,
// and what its client knows.
type crashes struct {
	*agent
	tr      *killer
	n       int
	running map[string]client.StartReply // acknowledged starts, by idempotency key
	killed  map[string]bool              // acknowledged kills, by handle
	asked   string                       // the key of a start, or
	killing string                       // the key of a kill, that nobody has answered
}

func never(systemCall) bool { return false }

// lives starts an agent that dies where it is told, and says whether it came to
// answering.
func (c *crashes) lives(at func(systemCall) bool) bool {
	c.t.Helper()
	log, err := os.OpenFile(filepath.Join(c.dir, "log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		c.t.Fatal(err)
	}
	defer log.Close()
	c.cmd, c.Client = c.command(), nil
	c.cmd.Stderr = log
	c.tr = traced(c.t, c.cmd, at)
	for {
		if conn, err := client.Dial(c.context(20*time.Second), c.addr(), client.WithPatience(0)); err == nil {
			c.Client = conn
			return true
		}
		select {
		case <-c.tr.ended:
			return false
		case <-time.After(2 * time.Millisecond): // between two tries
		}
	}
}

// dies waits for the end of an agent.
func (c *crashes) dies(at namedPoint) {
	c.t.Helper()
	if c.Client != nil {
		c.Client.Close()
	}
	select {
	case <-c.tr.ended:
	case <-time.After(20 * time.Second):
		_ = kill(c.tr.pid)
		c.t.Fatalf("never reached: %s\n%s", at, c.log())
	}
}

// works starts and kills processes until the agent has died.
func (c *crashes) works() {
	for range 100 {
		if c.start() != nil || c.kill() != nil {
			return
		}
	}
}

func (c *crashes) start() error {
	if c.asked == "" {
		c.n++
		c.asked = fmt.Sprintf("key-%d", c.n)
	}
	p, err := c.Start(c.context(20*time.Second), client.StartRequest{
		Cmd: []string{"sleep", "60"}, Env: []string{"POINT=" + c.dir + c.asked}, Idem: c.asked,
	})
	if err == nil {
		c.running[c.asked], c.asked = p, ""
	}
	return err
}

// kill ends a process, but leaves two for the next agent to adopt.
func (c *crashes) kill() error {
	for key, p := range c.running {
		if c.killing == "" && len(c.running) > 2 {
			c.killing = key
		}
		if key != c.killing {
			continue
		}
		err := c.Kill(c.context(20*time.Second), p.Handle)
		if err == nil {
			delete(c.running, key)
			c.killed[p.Handle], c.killing = true, ""
		}
		return err
	}
	return nil
}

// check compares what the client was told with the journal that a crash has
// left, and with what runs.
func (c *crashes) check() {
	c.t.Helper()
	eventually(c.t, "a child that was just forked gives up the lock, by its execve", func() bool {
		r, err := journal.OpenReadOnly(c.path())
		if err == nil {
			r.Close()
		}
		return err == nil
	})
	started, signalled := map[string]int{}, map[string]bool{}
	for _, r := range c.records() {
		switch e := r.Event.(type) {
		case *statemachine.Started:
			started[r.Handle] = e.PID
		case *statemachine.Signalled:
			signalled[r.Handle] = true
		}
	}
	for key, p := range c.running {
		if started[p.Handle] != p.PID {
			c.t.Errorf("start of %s: acknowledged pid %d, journaled %d", p.Handle, p.PID, started[p.Handle])
		}
		if key != c.killing && !alive(p.PID) {
			c.t.Errorf("%s, pid %d, is not running", p.Handle, p.PID)
		}
	}
	for handle := range c.killed {
		if !signalled[handle] {
			c.t.Errorf("the kill of %s is not journaled", handle)
		}
	}
}

// goesOn has the next agent answer for what the earlier ones did, and for what
// was not answered yet.
func (c *crashes) goesOn() {
	c.t.Helper()
	if !c.lives(never) {
		c.t.Fatalf("the next agent does not answer\n%s", c.log())
	}
	if c.killing != "" {
		p := c.running[c.killing]
		delete(c.running, c.killing)
		c.killing = ""
		_ = c.Kill(c.context(20*time.Second), p.Handle) // has perhaps come through
		c.killed[p.Handle] = true
	}
	if c.asked != "" {
		if err := c.start(); err != nil {
			c.t.Errorf("the start that nobody answered: %v", err)
		}
	}
	c.stillRun()
	for handle := range c.killed {
		if e := c.wait(handle); e.ExitCode != 137 && e.Reason != "lost" {
			c.t.Errorf("%s was killed, and ended as %+v", handle, e)
		}
		delete(c.killed, handle)
	}
	c.nothingElse()
}

// stillRun: what was acknowledged runs, and its key still names it.
func (c *crashes) stillRun() {
	c.t.Helper()
	for key, p := range c.running {
		if row := c.row(p.Handle); !row.Running || row.PID != p.PID {
			c.t.Errorf("%s, of pid %d, is shown as %+v", p.Handle, p.PID, row)
		}
		again, err := c.Start(c.context(20*time.Second), client.StartRequest{
			Cmd: []string{"sleep", "60"}, Env: []string{"POINT=" + c.dir + key}, Idem: key,
		})
		if err != nil || again != p {
			c.t.Errorf("the key of %+v: %+v, %v", p, again, err)
		}
	}
}

// nothingElse: of each start one process runs at the most, and it has a row.
func (c *crashes) nothingElse() {
	c.t.Helper()
	known := map[int]bool{}
	for _, p := range c.running {
		known[p.PID] = true
	}
	environs, _ := filepath.Glob("/proc/[0-9]*/environ")
	for _, name := range environs {
		var pid int
		fmt.Sscanf(name, "/proc/%d/", &pid)
		if b, _ := os.ReadFile(name); strings.Contains(string(b), "POINT="+c.dir) && !known[pid] && alive(pid) {
			c.t.Errorf("pid %d runs, and nobody knows it", pid)
			_ = kill(pid)
		}
	}
}

// A SIGKILL at each point of the commits of starts and kills, and of recovery:
// what was acknowledged is in the journal, which verifies and folds; what runs
// is found again, and what nobody answered can be asked again.
func TestSIGKILLAtNamedPoints(t *testing.T) {
	c := &crashes{
		agent:   &agent{t: t, dir: t.TempDir(), exe: binary},
		running: map[string]client.StartReply{}, killed: map[string]bool{},
	}
	if !c.lives(never) {
		t.Fatal(c.log())
	}
	for range 3 {
		if err := c.start(); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() {
		c.t = t
		c.killAll()
		_ = unix.Kill(c.tr.pid, unix.SIGTERM)
		c.dies("a stop")
		c.checkJournal()
	})
	commit := []namedPoint{beforeTransaction, beforeDataSync, betweenSyncs, beforeMetaSync, afterCommit}
	for _, at := range append(commit, afterFork, afterSignal, beforeReply) {
		for nth := range times(2, 6) {
			t.Run(fmt.Sprintf("%s %d", at, nth+1), func(t *testing.T) { c.diesAtWork(t, at, nth+1) })
		}
	}
	for _, at := range append(commit, afterAdoption) {
		for nth := range 2 { // the agent's own start, and what it has found
			t.Run(fmt.Sprintf("recovery, %s %d", at, nth+1), func(t *testing.T) { c.diesRecovering(t, at, nth+1) })
		}
	}
	for _, at := range []namedPoint{afterLock, afterCheck, beforeListeners} {
		t.Run("recovery, "+string(at), func(t *testing.T) { c.diesRecovering(t, at, 1) })
	}
}

func (c *crashes) diesAtWork(t *testing.T, at namedPoint, nth int) {
	c.t = t
	die := crashAt(at, nth)
	c.tr.at.Store(&die)
	c.works()
	c.dies(at)
	c.check()
	c.goesOn()
}

func (c *crashes) diesRecovering(t *testing.T, at namedPoint, nth int) {
	c.t = t
	_ = kill(c.tr.pid)
	c.dies("a kill")
	if c.lives(crashAt(at, nth)) {
		t.Error("it answers")
	}
	c.dies(at)
	c.check()
	c.goesOn()
}
