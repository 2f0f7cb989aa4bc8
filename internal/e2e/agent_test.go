package e2e

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"log"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"supervisor/client"
	"supervisor/internal/testproc"
	"supervisor/journal"
	"supervisor/statemachine"
)

// binary is the agent under test.
var binary string

func TestMain(m *testing.M) {
	testproc.Main()
	var err error
	if built, err = os.MkdirTemp("", "e2e-"); err != nil {
		log.Fatal(err)
	}
	binary = filepath.Join(built, "supervisor")
	if err := build(binary, "supervisor/cmd/supervisor", ""); err != nil {
		log.Fatal(err)
	}
	code := m.Run()
	os.RemoveAll(built)
	os.Exit(code)
}

// built is where binaries are.
var built string

// build links a command of this module, as the tests themselves are built.
func build(path, command, ldflags string, flags ...string) error {
	args := slices.Concat([]string{"build", "-o", path, "-ldflags", ldflags}, buildFlags, flags, []string{command})
	if out, err := exec.Command("go", args...).CombinedOutput(); err != nil {
		return fmt.Errorf("building %s: %w\n%s", command, err, out)
	}
	return nil
}

// agent is a running supervisor with a state directory of its own.
type agent struct {
	*client.Client
	t    testing.TB
	dir  string
	exe  string // the installed binary
	args []string
	cmd  *exec.Cmd
}

// start runs an agent until the end of the test; then its journal must verify
// and fold, and nothing of what it started may be left.
func start(t testing.TB, args ...string) *agent {
	t.Helper()
	return startInstalled(t, binary, args...)
}

// startInstalled is start with a binary of its own, which may be replaced.
func startInstalled(t testing.TB, exe string, args ...string) *agent {
	t.Helper()
	a := &agent{t: t, dir: t.TempDir(), exe: exe, args: args}
	a.serve()
	t.Cleanup(func() {
		a.killAll()
		a.stop()
		a.checkJournal()
	})
	return a
}

func (a *agent) addr() string { return "unix:" + filepath.Join(a.dir, "agent.sock") }
func (a *agent) path() string { return filepath.Join(a.dir, "state", "journal.db") }

// serve starts the agent and connects to it.
func (a *agent) serve() {
	a.t.Helper()
	a.launch(a.command())
}

// command is what runs the agent.
func (a *agent) command() *exec.Cmd {
	return exec.Command(a.exe, append([]string{
		"serve", "--listen", a.addr(), "--state-dir", filepath.Join(a.dir, "state"),
	}, a.args...)...)
}

// launch runs a command that becomes the agent, and connects to it.
func (a *agent) launch(cmd *exec.Cmd) {
	a.t.Helper()
	if !a.begin(cmd) {
		a.t.Fatalf("the agent does not answer\n%s", a.log())
	}
}

// begin is launch for an agent that may fail to start.
func (a *agent) begin(cmd *exec.Cmd) (answers bool) {
	a.t.Helper()
	a.Client = nil
	logFile, err := os.OpenFile(filepath.Join(a.dir, "log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		a.t.Fatal(err)
	}
	defer logFile.Close()
	a.cmd, cmd.Stderr = cmd, logFile
	if err := a.cmd.Start(); err != nil {
		a.t.Fatal(err)
	}
	for end := time.Now().Add(20 * time.Second); time.Now().Before(end) && stat(fmt.Sprint(a.cmd.Process.Pid))[0] != "Z"; {
		// A child that the last agent was just forking holds its socket for a
		// moment: only an answer shows that this one is there.
		if c, err := client.Dial(context.Background(), a.addr()); err == nil {
			if _, err = c.Info(a.context(20 * time.Second)); err == nil {
				a.Client = c
				return true
			}
			c.Close()
		}
		time.Sleep(5 * time.Millisecond) // polls: nothing tells when a socket is there
	}
	return false
}

func (a *agent) log() string {
	b, _ := os.ReadFile(filepath.Join(a.dir, "log"))
	return string(b[max(0, len(b)-4000):])
}

// kill9 ends the agent as a crash does, and waits until it is gone.
func (a *agent) kill9() {
	a.t.Helper()
	a.Client.Close()
	if err := a.cmd.Process.Kill(); err != nil {
		a.t.Fatal(err)
	}
	_ = a.cmd.Wait() // says that it was killed
}

// stop ends the agent in order.
func (a *agent) stop() {
	a.t.Helper()
	a.Client.Close()
	if err := a.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		a.t.Fatal(err)
	}
	if err := a.cmd.Wait(); err != nil {
		a.t.Fatalf("the agent ended with %v\n%s", err, a.log())
	}
	if l := a.log(); strings.Contains(l, "DATA RACE") || strings.Contains(l, "goroutine ") {
		a.t.Error(l)
	}
}

// killAll ends what the agent runs, and waits for it.
func (a *agent) killAll() {
	ctx := a.context(20 * time.Second)
	procs, err := a.List(ctx)
	if err != nil {
		a.t.Error(err)
	}
	for _, p := range procs {
		_ = a.Kill(ctx, p.Handle) // ended already, with nothing left in its group
		if _, err := a.Wait(ctx, p.Handle); err != nil && !errors.Is(err, client.ErrUnknownHandle) {
			a.t.Error(err)
		}
	}
}

func (a *agent) context(d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), d)
	a.t.Cleanup(cancel)
	return ctx
}

// records reads the journal of a stopped or killed agent, and checks the chain
// and, after every record, the registry on the way.
func (a *agent) records() []statemachine.Record {
	a.t.Helper()
	r, err := journal.OpenReadOnly(a.path())
	if err != nil {
		a.t.Fatal(err)
	}
	defer r.Close()
	var out []statemachine.Record
	var d statemachine.Decoder
	registry := statemachine.NewRegistry()
	if s, ok, err := r.Snapshot(); err != nil {
		a.t.Fatal(err)
	} else if ok && r.FirstSeq() > 1 {
		if registry, err = statemachine.DecodeSnapshot(s.Blob); err != nil {
			a.t.Fatal(err)
		}
	}
	err = r.Verify(func(stored journal.Record) error {
		rec, err := d.Decode(stored.Seq, stored.Payload)
		if err == nil && rec.Seq > registry.Seq() {
			err = errors.Join(registry.Apply(&rec), registry.Check())
		}
		out = append(out, rec)
		return err
	})
	if err != nil {
		a.t.Fatal(err)
	}
	return out
}

func (a *agent) checkJournal() { a.records() }

func (a *agent) start(r client.StartRequest) client.StartReply {
	a.t.Helper()
	reply, err := a.Start(a.context(30*time.Second), r)
	if err != nil {
		a.t.Fatal(err)
	}
	return reply
}

func (a *agent) sh(script string) string {
	a.t.Helper()
	return a.start(client.StartRequest{Cmd: []string{"/bin/sh", "-c", script}}).Handle
}

func (a *agent) wait(handle string) client.Exit {
	a.t.Helper()
	e, err := a.Wait(a.context(60*time.Second), handle)
	if err != nil {
		a.t.Fatal(err)
	}
	return e
}

// output reads both streams to their end, and fails on a gap.
func (a *agent) output(handle string) (stdout, stderr string) {
	a.t.Helper()
	out, err := output(a.context(60*time.Second), a.Client, handle)
	if err != nil {
		a.t.Fatal(err)
	}
	return out[client.Stdout], out[client.Stderr]
}

func output(ctx context.Context, c *client.Client, handle string) (out [2]string, err error) {
	var bufs [2]bytes.Buffer
	for chunk, err := range c.Follow(ctx, handle, client.Position{}) {
		if err != nil {
			return out, err
		}
		if chunk.Dropped != 0 {
			return out, fmt.Errorf("%v of %s: %d bytes dropped", chunk.Stream, handle, chunk.Dropped)
		}
		bufs[chunk.Stream].Write(chunk.Data)
	}
	return [2]string{bufs[0].String(), bufs[1].String()}, nil
}

// raw is a connection that speaks lines, for what a client would not do.
type raw struct {
	t    testing.TB
	conn net.Conn
	dec  *json.Decoder
}

func (a *agent) raw() *raw {
	a.t.Helper()
	conn, err := net.Dial("unix", filepath.Join(a.dir, "agent.sock"))
	if err != nil {
		a.t.Fatal(err)
	}
	a.t.Cleanup(func() { conn.Close() })
	return &raw{t: a.t, conn: conn, dec: json.NewDecoder(conn)}
}

func (r *raw) send(line string) {
	r.t.Helper()
	if _, err := r.conn.Write([]byte(line + "\n")); err != nil {
		r.t.Fatal(err)
	}
}

type reply map[string]any

func (r *raw) reply() reply {
	r.t.Helper()
	r.conn.SetReadDeadline(time.Now().Add(30 * time.Second))
	var m reply
	if err := r.dec.Decode(&m); err != nil {
		r.t.Fatal(err)
	}
	return m
}

func (r *raw) call(line string) reply {
	r.t.Helper()
	r.send(line)
	return r.reply()
}

// bytes decodes a stream of a proc_logs reply.
func (m reply) bytes(t testing.TB, stream string) string {
	t.Helper()
	b, err := base64.StdEncoding.DecodeString(m[stream].(string))
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// status reads a number of the agent's /proc/PID/status, in KiB or threads.
func (a *agent) status(name string) int {
	a.t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", a.cmd.Process.Pid))
	if err != nil {
		a.t.Fatal(err)
	}
	for line := range strings.Lines(string(b)) {
		if value, ok := strings.CutPrefix(line, name+":"); ok {
			var n int
			if _, err := fmt.Sscan(value, &n); err != nil {
				a.t.Fatal(err)
			}
			return n
		}
	}
	a.t.Fatalf("no %s in /proc/PID/status", name)
	return 0
}

// descriptors counts the agent's.
func (a *agent) descriptors() int {
	a.t.Helper()
	entries, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", a.cmd.Process.Pid))
	if err != nil {
		a.t.Fatal(err)
	}
	return len(entries)
}

// eventually polls a condition until it holds.
func eventually(t testing.TB, what string, holds func() bool) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); !holds(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("never: %s", what)
		}
	}
}
