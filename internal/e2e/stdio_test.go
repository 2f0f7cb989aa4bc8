package e2e

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"supervisor/statemachine"
)

// pipes are an agent front over the agent's stdin and stdout.
type pipes struct {
	t       *testing.T
	in      io.WriteCloser
	lines   chan reply
	session string
	seq     float64 // of the last event
	asked   int
}

// startStdio starts an agent that speaks on its stdin and stdout.
func startStdio(t *testing.T, img image) (*agent, *pipes) {
	t.Helper()
	a := install(t, img)
	a.stop()
	a.args = []string{"--a2e", "stdio"}
	cmd := a.command()
	a.args = nil
	p := &pipes{t: t, lines: make(chan reply, 1<<16)} // all that can be under way when nobody takes any
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if p.in, err = cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	a.launch(cmd)
	go func() {
		defer close(p.lines)
		for scan := bufio.NewScanner(out); scan.Scan(); {
			var m reply
			if err := json.Unmarshal(scan.Bytes(), &m); err != nil {
				t.Errorf("a line is %q", scan.Text())
			}
			p.lines <- m
		}
	}()
	return a, p
}

// ask sends a request; what names its fields.
func (p *pipes) ask(kind, what string) (id string) {
	p.t.Helper()
	p.asked++
	id = fmt.Sprintf("r%d", p.asked)
	if _, err := fmt.Fprintf(p.in, `{"type":%q,"id":%q,%s}`+"\n", kind, id, what); err != nil {
		p.t.Fatal(err)
	}
	return id
}

// until reads messages to the one that fits.
func (p *pipes) until(what string, fits func(m reply) bool) reply {
	p.t.Helper()
	patience := time.After(30 * time.Second)
	for {
		select {
		case m, ok := <-p.lines:
			if !ok {
				p.t.Fatalf("never: %s", what)
			}
			if seq, ok := m["seq"].(float64); ok {
				if seq != p.seq+1 {
					p.t.Errorf("event %v comes after %v", seq, p.seq)
				}
				p.seq = seq
			}
			if fits(m) {
				return m
			}
		case <-patience:
			p.t.Fatalf("never: %s", what)
		}
	}
}

// answer is the reply to a request, which must be a success.
func (p *pipes) answer(id string) reply {
	p.t.Helper()
	m := p.until("the answer to "+id, func(m reply) bool { return m["req_id"] == id })
	if m["error"] != "" {
		p.t.Fatalf("%s is answered %v", id, m)
	}
	return m
}

// shakeHands opens the session, or goes on with it.
func (p *pipes) shakeHands() {
	p.t.Helper()
	m := p.answer(p.ask("handshake/req", fmt.Sprintf(`"session_id":%q,"last_seq":%v`, p.session, p.seq)))
	p.session = m["session_id"].(string)
}

// farewell waits for the end of the connection.
func (p *pipes) farewell() {
	p.t.Helper()
	p.until("a farewell", func(m reply) bool {
		said, _ := m["error"].(string)
		return m["type"] == "error" && m["req_id"] == "" && strings.HasPrefix(said, "upgrading: ")
	})
}

// echoes fails unless the process says what is written to it.
func (p *pipes) echoes(id, line string) {
	p.t.Helper()
	p.ask("proc/write/req", fmt.Sprintf(`"proc_id":%q,"data":"%s\n"`, id, line))
	p.until("got "+line, func(m reply) bool {
		data, _ := m["data"].(string)
		return m["type"] == "proc/read/event" && strings.Contains(data, "got "+line)
	})
}

// The agent front over stdin and stdout goes on when the agent was replaced, and
// when it was not: its end is told, since it cannot be seen, and whoever shakes
// hands again misses nothing.
func TestStdioOverUpgrades(t *testing.T) {
	a, p := startStdio(t, good(t, "1"))
	p.shakeHands()
	m := p.answer(p.ask("proc/spawn/req", `"cmd":["bash","-c","while read x; do echo got $x; done"]`))
	proc := m["proc_id"].(string)
	p.echoes(proc, "zero")
	for i, upgrade := range []func(){
		func() { a.upgrade(good(t, "2")) },
		func() { a.failsToExec(good(t, "1")) },
		func() {
			a.ask(bad(t, "sockets"))
			a.awaitEvent(statemachine.KindUpgradeRolledBack)
		},
		func() { a.upgrade(good(t, "1")) },
	} {
		upgrade()
		p.farewell()
		p.shakeHands()
		p.echoes(proc, fmt.Sprint("round ", i))
	}
	p.in.Close()
	if err := a.cmd.Wait(); err != nil {
		t.Errorf("the agent ended with %v\n%s", err, a.log())
	}
	a.Close()
	a.serve()
}

// Whoever never pauses is not left without an answer by an upgrade: what comes
// after the farewell is answered.
func TestStdioFlooded(t *testing.T) {
	versions := []image{swift(t, "2"), swift(t, "1")}
	a, p := startStdio(t, versions[1])
	p.shakeHands()
	for i := range 10 {
		stop, stopped := make(chan struct{}), make(chan struct{})
		go func() {
			defer close(stopped)
			for {
				select {
				case <-stop:
					return
				default:
					fmt.Fprintln(p.in, `{"type":"proc/status/req","id":"flood","proc_id":""}`)
				}
			}
		}()
		img := versions[i%2]
		conn := a.raw()
		conn.send(fmt.Sprintf(`{"op":"agent_upgrade","path":%q,"sha256":%q}`, a.stage(img), img.sha256))
		p.farewell()
		close(stop)
		<-stopped
		p.shakeHands()
		a.answers(img.version)
	}
	p.in.Close()
	_ = a.cmd.Wait()
	a.Close()
	a.serve()
}

// The Python client goes on over pipes as over sockets.
func TestPythonOverUpgrade(t *testing.T) {
	a := upgradable(t)
	a.stop()
	img := good(t, "2")
	got := python(t, "-c", `
import json, socket, sys, time
from a2e import Disconnected, Session, launch
address, staged, sha256, argv = sys.argv[1], sys.argv[2], sys.argv[3], sys.argv[4:]
def ask(**request):
    with socket.socket(socket.AF_UNIX) as s:
        s.connect(address)
        s.sendall(json.dumps(request).encode() + b"\n")
        return json.loads(s.makefile().readline())
session = Session(lambda: launch(argv))
p = session.spawn(["bash", "-c", "while read x; do echo got $x; done; exit 4"])
p.write("one\n")
print(p.read_line(timeout=20), end="")
ask(op="agent_upgrade", path=staged, sha256=sha256)
while ask(op="agent_info")["agent_version"] != "2":
    time.sleep(0.01)
while True:
    try:
        p.write("two\n", eof=True)
        break
    except Disconnected:  # it was sent before the handshake
        pass
print(p.read_line(timeout=20), end="")
print(p.wait(timeout=20).code)
session.close()
`, filepath.Join(a.dir, "agent.sock"), a.stage(img), img.sha256,
		a.exe, "serve", "--listen", a.addr(), "--state-dir", filepath.Join(a.dir, "state"), "--a2e", "stdio", "--log-level", "error")
	if got != "got one\ngot two\n4\n" {
		t.Errorf("it printed %q", got)
	}
	a.serve()
}

// failsToExec has a handover fail at the last moment.
func (a *agent) failsToExec(img image) {
	a.t.Helper()
	a.hold()
	if m := a.ask(img); m["ok"] != true {
		a.t.Fatal(m)
	}
	if err := os.Chmod(a.exe, 0o644); err != nil {
		a.t.Fatal(err)
	}
	a.awaitEvent(statemachine.KindUpgradeRejected)
}

// What was asked over stdio is answered, also when stdin ends right behind it.
func TestStdioAnswersAll(t *testing.T) {
	for range 20 {
		dir := t.TempDir()
		cmd := exec.Command(binary, "serve", "--a2e", "stdio", "--state-dir", dir, "--listen", "unix:"+filepath.Join(dir, "s"))
		cmd.Stdin = strings.NewReader(`{"type":"handshake/req","id":"a"}` + "\n" + `{"type":"proc/status/req","id":"b"}` + "\n")
		out, err := cmd.Output()
		if err != nil {
			t.Fatal(err)
		}
		if got := string(out); strings.Count(got, "\n") != 2 || !strings.Contains(got, `"req_id":"b"`) {
			t.Fatalf("answered was %q", got)
		}
	}
}
