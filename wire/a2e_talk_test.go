package wire

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

// talk is a client of the agent front.
type talk struct {
	*peer
	asked int
	id    string
	seen  []string // the events' stream and data
	last  int      // seq of the last event
}

// shake makes a handshake, which may also tell other fields.
func shake(t testing.TB, a Addr, session, fields string) *talk {
	t.Helper()
	c := &talk{peer: dialed(t, a)}
	c.id, _ = c.ask(fmt.Sprintf(`"type":"handshake/req","session_id":%q%s`, session, fields))["session_id"].(string)
	return c
}

func (c *talk) ask(fields string) map[string]any {
	c.t.Helper()
	c.asked++
	id := fmt.Sprint("k", c.asked)
	c.send(fmt.Sprintf(`{"id":%q,%s}`, id, fields))
	for {
		if m := c.next(); m["req_id"] == id && m["type"] != "proc/read/event" {
			return m
		}
	}
}

// next reads a message; an event is noted.
func (c *talk) next() map[string]any {
	c.t.Helper()
	m := c.reply()
	if m["type"] == "proc/read/event" {
		if seq := int(m["seq"].(float64)); seq != c.last+1 {
			c.t.Fatalf("event %d follows %d", seq, c.last)
		}
		c.last++
		c.seen = append(c.seen, fmt.Sprint(m["stream_type"], " ", m["data"]))
	}
	return m
}

func (c *talk) until(events int) {
	c.t.Helper()
	for len(c.seen) < events {
		c.next()
	}
}

func (c *talk) spawn() string {
	c.t.Helper()
	m := c.ask(`"type":"proc/spawn/req","cmd":["sh"]`)
	if m["ok"] != true {
		c.t.Fatal(m)
	}
	return m["proc_id"].(string)
}

// A whole conversation, every message of it.
func TestA2EConversation(t *testing.T) {
	h, a := agentFront(t)
	c := shake(t, a, "", "")
	m := c.ask(`"type":"proc/spawn/req","session_id":"` + c.id + `","cmd":["sh","-i"],"cwd":"/srv","env":{"A":"b"},"stdin_mode":"null","timeout":7`)
	id := m["proc_id"].(string)
	if m["type"] != "proc/spawn/resp" || m["ok"] != true || m["pid"] != 42.0 || m["error"] != "" || m["version"] != "1.0" {
		t.Errorf("spawn: %v", m)
	}
	p := h.proc("p_1")
	p.streams[0].say("one\nname? ", false)
	p.streams[1].say("\xff\n", false)
	c.until(3)
	if m := c.ask(fmt.Sprintf(`"type":"proc/write/req","proc_id":%q,"data":"x\n"`, id)); m["ok"] != true || m["proc_id"] != id || m["pid"] != 42.0 {
		t.Errorf("write: %v", m)
	}
	c.ask(fmt.Sprintf(`"type":"proc/write/req","proc_id":%q,"data":"AP8=","encoding":"base64"`, id))
	p.streams[0].say("x\n", false)
	c.until(4)
	if m := c.ask(fmt.Sprintf(`"type":"proc/status/req","proc_id":%q`, id)); m["status"] != "running" || m["proc"].(map[string]any)["cmd"] != "sh -i" {
		t.Errorf("status: %v", m)
	}
	if m := c.ask(fmt.Sprintf(`"type":"proc/kill/req","proc_id":%q,"signal":"SIGINT"`, id)); m["ok"] != true || m["state"] != "running" {
		t.Errorf("kill: %v", m)
	}
	p.exit(130, "signal")
	c.until(5)
	if m := c.ask(fmt.Sprintf(`"type":"proc/kill/req","proc_id":%q`, id)); m["ok"] != false || m["state"] != "failed" || m["error"] != "proc_dead: process not running" {
		t.Errorf("kill of what has ended: %v", m)
	}
	if m := c.ask(`"type":"proc/status/req"`); m["status"] != "completed" || len(m["procs"].([]any)) != 1 {
		t.Errorf("status of all: %v", m)
	}
	slices.Sort(c.seen[:3]) // streams have no order between each other
	if diff := cmp.Diff([]string{
		`stderr {"text":"` + "\ufffd" + `\n","base64":"/wo="}`, `stdout {"text":"name? ","partial":true}`, `stdout {"text":"one\n"}`,
		`stdout {"text":"x\n"}`, `stderr {"code":130}`,
	}, c.seen); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]string{
		"open", `spawn ["sh" "-i"] in "/srv" with ["A=b"], null true, 7000 ms`, "stdin p_1 x\n", "stdin p_1 \x00\xff",
		"signal p_1 2", "wait p_1 5000", "delivered p_1, kept true", "signal p_1 15",
	}, h.seen()); diff != "" {
		t.Error(diff)
	}
}

// Wherever a connection breaks, the next one is sent the rest, whole events and
// each once, if it says which one was the last.
func TestCutAtEachByte(t *testing.T) {
	h, a := agentFront(t)
	first := shake(t, a, "", "")
	first.spawn()
	p := h.proc("p_1")
	p.streams[0].say("one\ntwo ☃\nno end", false)
	p.exit(3, "exited")
	first.until(4)
	want, id := first.seen, first.id
	first.Close()
	for n := 0; ; n++ {
		c := dialed(t, a)
		c.send(fmt.Sprintf(`{"type":"handshake/req","session_id":%q,"last_seq":0}`, id))
		b := make([]byte, 1)
		for b[0] != '\n' { // the reply
			if _, err := io.ReadFull(c, b); err != nil {
				t.Fatal(err)
			}
		}
		b = make([]byte, n)
		if _, err := io.ReadFull(c, b); err != nil {
			t.Fatal(err)
		}
		c.Close()
		whole := strings.Count(string(b), "\n")
		again := shake(t, a, id, fmt.Sprintf(`,"last_seq":%d`, whole))
		again.last = whole
		again.until(len(want) - whole)
		if diff := cmp.Diff(want[whole:], again.seen, cmpopts.EquateEmpty()); diff != "" {
			t.Fatalf("cut after %d bytes: %s", n, diff)
		}
		again.Close()
		if whole == len(want) {
			return
		}
	}
}

// Of many connections that want one session one has it in the end; the others
// are closed.
func TestRaceForASession(t *testing.T) {
	h, a := agentFront(t)
	first := shake(t, a, "", "")
	first.spawn()
	const rivals = 20
	var closed atomic.Int32
	var winner atomic.Pointer[string]
	var all sync.WaitGroup
	for range rivals {
		c := dialed(t, a)
		all.Go(func() {
			c.send(fmt.Sprintf(`{"id":"a","type":"handshake/req","session_id":%q}`, first.id))
			for {
				line, err := c.lines.Next()
				if err != nil {
					closed.Add(1)
					return
				}
				if strings.Contains(string(line), "proc/read/event") {
					text := string(line)
					winner.Store(&text)
					return
				}
			}
		})
	}
	until(t, "all but one are closed", func() bool { return closed.Load() == rivals-1 })
	first.wantsEnd()
	h.proc("p_1").streams[0].say("word\n", false)
	all.Wait()
	if text := winner.Load(); text == nil || !strings.Contains(*text, "word") {
		t.Errorf("the last one has %v", text)
	}
}

// What is not for the conversation is refused, and noted with its rule.
func TestA2EDenials(t *testing.T) {
	h, a := agentFront(t)
	c := &talk{peer: dialed(t, a)}
	for _, test := range []struct{ fields, want, noted string }{
		{`"type":"proc/status/req"`, "unknown_session: a handshake comes first", "proc/status unknown_session session"},
		{`"type":"handshake/req","session_id":"guess"`, "unknown_session: there is no such session", "handshake unknown_session session"},
		{`"type":"handshake/req","last_seq":-1`, "bad_request: last_seq must be from 0 to 9007199254740992", "handshake bad_request "},
		{`"type":"handshake/req","last_seq":9223372036854775807`, "bad_request: last_seq must be from 0 to 9007199254740992", "handshake bad_request "},
		{`"type":"handshake/req","last_seq":9223372036854775808`, "bad_request: last_seq must be", "handshake bad_request "},
		{`"type":"handshake/req"`, "", ""},
		{`"type":"handshake/req"`, "bad_request: this connection has a session", "handshake bad_request "},
		{`"type":"proc/spawn/req","cmd":["sh"],"session_id":"guess"`, "unknown_session: not this", "proc/spawn unknown_session session"},
		{`"type":"proc/spawn/req","cmd":["bash"]`, `not_allowed: command "bash"`, "proc/spawn not_allowed allowlist"},
		{`"type":"proc/spawn/req","cmd":["./sh"]`, `not_allowed: command "./sh"`, "proc/spawn not_allowed allowlist"},
		{`"type":"proc/spawn/req","cmd":["sh"],"env":{"\u0050ATH":"."}`, `not_allowed: environment variable "PATH"`, "proc/spawn not_allowed environment"},
		{`"type":"proc/write/req","proc_id":"p","data":""`, "unknown_proc: ", "proc/write unknown_proc session"},
		{`"type":"proc/kill/req","proc_id":"p"`, "unknown_proc: ", "proc/kill unknown_proc session"},
		{`"type":"proc/status/req","proc_id":"p"`, "unknown_proc: ", "proc/status unknown_proc session"},
	} {
		before := len(h.noted())
		m := c.ask(test.fields)
		if got, _ := m["error"].(string); !strings.HasPrefix(got, test.want) || got != "" && test.want == "" {
			t.Errorf("%s: %v", test.fields, m)
		}
		until(t, test.fields+" is noted", func() bool { return len(h.noted()) > before || test.noted == "" })
		if n := h.noted()[before:]; len(n) == 1 && test.noted != fmt.Sprint(n[0].Op, " ", n[0].CodeOf(&Error{Code: n[0].code}), " ", n[0].rule) {
			t.Errorf("%s: noted %+v", test.fields, n)
		}
	}
}

// One connection too many is told so in a message of the front.
func TestA2ETooMany(t *testing.T) {
	var m map[string]any
	if err := json.Unmarshal(new(A2E).TooMany(3), &m); err != nil {
		t.Fatal(err)
	}
	if m["type"] != "error" || m["req_id"] != "" || m["error"] != "registry_full: too many connections: the limit is 3" {
		t.Errorf("%v", m)
	}
}
