package e2e

import (
	"bufio"
	"encoding/json"
	"fmt"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"supervisor/client"
)

// startFront is start with an agent front.
func startFront(t testing.TB, args ...string) *agent {
	t.Helper()
	return start(t, append([]string{"--a2e", "unix:" + filepath.Join(t.TempDir(), "a2e.sock")}, args...)...)
}

// front is the path of the agent front's socket.
func (a *agent) front() string { return strings.TrimPrefix(a.args[1], "unix:") }

// session is a connection of the agent front. Events are collected while it
// waits for replies.
type session struct {
	t      testing.TB
	conn   net.Conn
	lines  *bufio.Reader
	id     string
	asked  int
	events []event
	ended  map[string]bool // whose exit is among the events
}

type event struct {
	Seq    int    `json:"seq"`
	ProcID string `json:"proc_id"`
	Stream string `json:"stream_type"`
	ReqID  string `json:"req_id"`
	Data   string `json:"data"`
	text   string
	exit   bool
}

// open connects. The error is the handshake's.
func (a *agent) open(id string, fields string) (*session, error) {
	a.t.Helper()
	conn, err := net.Dial("unix", a.front())
	if err != nil {
		a.t.Fatal(err)
	}
	return handshake(a.t, conn, id, fields)
}

// handshake makes a session of a connection.
func handshake(t testing.TB, conn net.Conn, id, fields string) (*session, error) {
	t.Helper()
	t.Cleanup(func() { conn.Close() })
	s := &session{t: t, conn: conn, lines: bufio.NewReader(conn), id: id, ended: map[string]bool{}}
	r := s.ask(fmt.Sprintf(`"type":"handshake/req","session_id":%q%s`, id, fields))
	if r["error"] != "" {
		return nil, fmt.Errorf("%v", r["error"])
	}
	s.id = r["session_id"].(string)
	return s, nil
}

func (a *agent) session() *session {
	a.t.Helper()
	s, err := a.open("", "")
	if err != nil {
		a.t.Fatal(err)
	}
	return s
}

// onlyRow is the one process that there is.
func (a *agent) onlyRow() client.Proc {
	a.t.Helper()
	procs, err := a.List(a.context(10 * time.Second))
	if err != nil || len(procs) != 1 {
		a.t.Fatal(err, procs)
	}
	return procs[0]
}

func (a *agent) resume(old *session, fields string) *session {
	a.t.Helper()
	s, err := a.open(old.id, fields)
	if err != nil {
		a.t.Fatal(err)
	}
	return s
}

// ask sends a message with these fields and waits for its reply.
func (s *session) ask(fields string) reply {
	s.t.Helper()
	s.asked++
	id := fmt.Sprint("k", s.asked)
	if _, err := fmt.Fprintf(s.conn, "{\"id\":%q,%s}\n", id, fields); err != nil {
		s.t.Fatal(err)
	}
	for {
		if m := s.next(); m["req_id"] == id && m["type"] != "proc/read/event" {
			return m
		}
	}
}

// next reads a message; an event is kept.
func (s *session) next() reply {
	s.t.Helper()
	m, err := s.read()
	if err != nil {
		s.t.Fatal(err)
	}
	return m
}

func (s *session) read() (reply, error) {
	s.conn.SetReadDeadline(time.Now().Add(60 * time.Second))
	line, err := s.lines.ReadBytes('\n')
	if err != nil {
		return nil, err
	}
	var m reply
	if err := json.Unmarshal(line, &m); err != nil {
		return nil, err
	}
	if m["type"] == "proc/read/event" {
		var e event
		var data struct {
			Text string
			Code *int
		}
		if err := json.Unmarshal(line, &e); err != nil {
			return nil, err
		}
		if err := json.Unmarshal([]byte(e.Data), &data); err != nil {
			return nil, err
		}
		e.text, e.exit = data.Text, data.Code != nil || e.Stream == "killed"
		s.events = append(s.events, e)
		if e.exit {
			s.ended[e.ProcID] = true
		}
	}
	return m, nil
}

// spawn starts a bash script and returns its proc_id.
func (s *session) spawn(script string) string {
	s.t.Helper()
	r := s.ask(fmt.Sprintf(`"type":"proc/spawn/req","cmd":["bash","-c",%q]`, script))
	if r["ok"] != true {
		s.t.Fatal(r)
	}
	return r["proc_id"].(string)
}

// text is what a process said so far.
func (s *session) text(procID string) string {
	var b strings.Builder
	for _, e := range s.events {
		if e.ProcID == procID {
			b.WriteString(e.text)
		}
	}
	return b.String()
}

// exits are the exit events of a process.
func (s *session) exits(procID string) (out []event) {
	for _, e := range s.events {
		if e.ProcID == procID && e.exit {
			out = append(out, e)
		}
	}
	return out
}

// until reads events until a process has ended.
func (s *session) until(procIDs ...string) {
	s.t.Helper()
	for _, id := range procIDs {
		for !s.ended[id] {
			s.next()
		}
	}
}

func counted(n int) string {
	var b strings.Builder
	for i := 1; i <= n; i++ {
		fmt.Fprintln(&b, i)
	}
	return b.String()
}
