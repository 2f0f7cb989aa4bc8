package e2e

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"supervisor/statemachine"
)

// Fifty sessions with four processes each get every line, in order and once,
// the exit last, beside a session whose client never reads. That one costs the
// agent neither memory nor threads.
func TestManySessions(t *testing.T) {
	a := startFront(t, "--max-procs", "300")
	deaf := a.session()
	for range 4 {
		deaf.spawn("for i in {1..100000}; do echo and on and on and on; done; sleep 300")
	}
	lines := 2000
	if len(buildFlags) > 0 { // the race detector
		lines = 200
	}
	before := a.status("VmRSS")
	var all sync.WaitGroup
	for range 50 {
		s := a.session()
		all.Go(func() {
			var ids []string
			for range 4 {
				ids = append(ids, s.spawn(fmt.Sprintf("for ((i=1; i<=%d; i++)); do echo $i; done; exit 3", lines)))
			}
			s.until(ids...)
			for _, id := range ids {
				if got := s.text(id); got != counted(lines) {
					t.Errorf("%d bytes", len(got))
				}
				if e := s.exits(id)[0]; e.Data != `{"code":3}` || e.Stream != "stderr" {
					t.Errorf("exit %+v", e)
				}
			}
			for i, e := range s.events {
				if e.Seq != i+1 {
					t.Errorf("event %d has seq %d", i+1, e.Seq)
					return
				}
			}
		})
	}
	all.Wait()
	if grown := a.status("VmRSS") - before; grown > limit(96<<10) {
		t.Errorf("the agent grew by %d KiB", grown)
	}
}

// limit is wider where the race detector takes its share.
func limit(kib int) int {
	if len(buildFlags) > 0 {
		return 6 * kib
	}
	return kib
}

// An exit is told after all text, also of a process
// that writes a lot and is gone at once.
func TestAgentFrontLastWords(t *testing.T) {
	a := startFront(t, "--proc-buf-bytes", "4194304")
	s := a.session()
	for range 20 {
		id := s.spawn("for ((i=1; i<=3000; i++)); do echo $i; done; exit 0")
		s.until(id)
		if got := s.text(id); got != counted(3000) {
			t.Fatalf("%d bytes", len(got))
		}
		if last := s.events[len(s.events)-1]; last.Data != `{"code":0}` || last.Stream != "stdout" {
			t.Fatalf("the last event is %+v", last)
		}
	}
}

// A descendant that holds the streams does not hold
// back the exit, and what it says later is not sent.
func TestAgentFrontLateDescendant(t *testing.T) {
	a := startFront(t)
	s := a.session()
	began := time.Now()
	id := s.spawn("(sleep 4; echo late) & printf now; exit 5")
	s.until(id)
	if took := time.Since(began); took < 1900*time.Millisecond || took > 3800*time.Millisecond {
		t.Errorf("the exit came after %v", took)
	}
	time.Sleep(4500*time.Millisecond - time.Since(began)) // past the late word
	s.ask(`"type":"proc/status/req"`)
	if got := s.text(id); got != "now" || len(s.exits(id)) != 1 || !s.events[len(s.events)-1].exit {
		t.Errorf("%q, %d exits", got, len(s.exits(id)))
	}
}

// C05, C32 on the agent front: nor does one that writes without an end, faster
// than anybody reads.
func TestAgentFrontLateFlood(t *testing.T) {
	s := startFront(t).session()
	began := time.Now()
	id := s.spawn("yes & exit 4")
	for !s.ended[id] && time.Since(began) < 20*time.Second {
		s.next()
		s.events = nil
	}
	if took := time.Since(began); took < 1900*time.Millisecond || took > 15*time.Second {
		t.Errorf("the exit came after %v", took)
	}
}

// C01 on the agent front: a character that is written in two halves comes in
// one event, whole.
func TestAgentFrontSplitCharacter(t *testing.T) {
	s := startFront(t).session()
	id := s.spawn(`printf '\342\202'; sleep .3; printf '\254\n'`)
	s.until(id)
	if s.text(id) != "€\n" || len(s.events) != 2 {
		t.Errorf("%+v", s.events)
	}
}

// C06 on the agent front: only LF ends a line, and output without any costs no
// memory.
func TestAgentFrontCarriageReturns(t *testing.T) {
	a := startFront(t)
	s := a.session()
	id := s.spawn(`printf 'A\r'; sleep .3; printf '\nB\r\n\nC\n'`)
	s.until(id)
	if got := s.text(id); got != "A\r\nB\r\n\nC\n" {
		t.Errorf("%q", got)
	}
	if first := s.events[0]; first.text != "A\r" || !strings.Contains(first.Data, "partial") {
		t.Errorf("an unfinished line: %+v", first)
	}
	s.events = nil
	s.spawn(`while :; do printf 'x\r'; done`)
	before := a.status("VmRSS")
	for end := time.Now().Add(5 * time.Second); time.Now().Before(end); s.events = nil {
		s.next()
	}
	if grown := a.status("VmRSS") - before; grown > limit(32<<10) {
		t.Errorf("the agent grew by %d KiB", grown)
	}
}

// With last_seq the agent repeats what came after it; without, it goes on with
// what was not sent.
func TestLastSeqRepeats(t *testing.T) {
	a := startFront(t)
	s := a.session()
	id := s.spawn("echo one; echo two; exit 3")
	s.until(id)
	if again := a.resume(s, ""); len(again.exits(id)) != 0 {
		t.Errorf("sent twice: %+v", again.events)
	}
	for _, ends := range []func(){func() {}, a.kill9, a.stop} {
		ends()
		if a.cmd.ProcessState != nil {
			a.serve()
		}
		again := a.resume(s, `,"last_seq":1`)
		again.until(id)
		if again.text(id) != "two\n" || again.events[0].Seq != 2 || len(again.events) != 2 {
			t.Errorf("repeated: %+v", again.events)
		}
	}
}

// A session has one connection: a newer one takes it over, and the older one is
// closed. A prompt that the older one was sent is not sent again, but its rest.
func TestTakingOver(t *testing.T) {
	a := startFront(t)
	s := a.session()
	id := s.spawn("printf 'name? '; read x; echo $x")
	for s.text(id) != "name? " {
		s.next()
	}
	if !strings.Contains(s.events[0].Data, `"partial":true`) {
		t.Errorf("a prompt: %s", s.events[0].Data)
	}
	newer := a.resume(s, "")
	if _, err := s.read(); err == nil {
		t.Error("the older connection lives")
	}
	newer.ask(fmt.Sprintf(`"type":"proc/write/req","proc_id":%q,"data":"ä\n"`, id))
	newer.until(id)
	if got := newer.text(id); got != "ä\n" {
		t.Errorf("%q", got)
	}
}

// A session without a connection is closed after its time, and what runs in it
// is killed; so does one of an agent that was down meanwhile.
func TestSessionExpires(t *testing.T) {
	a := startFront(t, "--a2e-session-ttl", "1")
	s := a.session()
	s.spawn("sleep 300")
	handle := a.onlyRow().Handle
	s.conn.Close()
	if e := a.wait(handle); e.Reason != "killed" {
		t.Errorf("ended as %+v", e)
	}
	if _, err := a.open(s.id, ""); err == nil || !strings.Contains(err.Error(), "unknown_session") {
		t.Errorf("resumed: %v", err)
	}
	a.stop()
	closed := 0
	for _, r := range a.records() {
		if r.Event.Kind() == statemachine.KindSessionClosed {
			closed++
		}
	}
	if closed != 1 {
		t.Errorf("%d sessions were closed", closed)
	}
	a.serve()
}

// The time of a session runs while no agent does; what writes without a pause
// ends with it like others, and nothing of it is left.
func TestSessionExpiresWhileDown(t *testing.T) {
	a := startFront(t, "--a2e-session-ttl", "1")
	s := a.session()
	s.spawn("while :; do echo and on; done")
	handle := a.onlyRow().Handle
	s.next()
	s.conn.Close()
	a.awaitEvent(statemachine.KindSessionLeft)
	a.kill9()
	time.Sleep(time.Second) // the time to live must run out while nobody is there to be polled
	a.serve()
	if e := a.wait(handle); e.Reason != "killed" {
		t.Errorf("ended as %+v", e)
	}
	if _, err := a.open(s.id, ""); err == nil || !strings.Contains(err.Error(), "unknown_session") {
		t.Errorf("resumed: %v", err)
	}
	left, err := os.ReadDir(filepath.Join(a.dir, "state", "run", "sessions"))
	if err != nil || len(left) != 0 {
		t.Errorf("left are %v, %v", left, err)
	}
}

// The front is served on every address that was asked for, and never beside the
// guest's verbs. On tcp what a browser would send closes the connection.
func TestAgentFrontAddresses(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0") // for a port that is free
	if err != nil {
		t.Fatal(err)
	}
	l.Close()
	a := startFront(t, "--insecure-tcp", "--a2e", "tcp:"+l.Addr().String())
	dial := func() net.Conn {
		conn, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		return conn
	}
	first, err := handshake(t, dial(), "", "")
	if err != nil {
		t.Fatal(err)
	}
	p := first.spawn("read x; echo $x")
	s := a.resume(first, "")
	s.ask(fmt.Sprintf(`"type":"proc/write/req","proc_id":%q,"data":"over there\n"`, p))
	s.until(p)
	if s.text(p) != "over there\n" {
		t.Errorf("%+v", s.events)
	}
	if r := s.ask(`"op":"proc_list"`); r["type"] != "error" || r["error"] != "bad_request: type is missing" {
		t.Errorf("a verb of the guest's: %v", r)
	}
	if r := a.raw().call(`{"type":"handshake/req","id":"a","session_id":""}`); r["ok"] != false || r["session_id"] != nil {
		t.Errorf("a handshake with the guest's front: %v", r)
	}
	browser := dial()
	defer browser.Close()
	fmt.Fprint(browser, "POST / HTTP/1.1\r\n\r\n{\"type\":\"handshake/req\"}\n")
	browser.SetReadDeadline(time.Now().Add(20 * time.Second))
	if b, err := io.ReadAll(browser); len(b) != 0 || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("a browser: %q, %v", b, err)
	}
}

// There are so many sessions and no more. One without a connection and without
// a process makes room.
func TestSessionsAreBounded(t *testing.T) {
	const most = 256
	a := startFront(t)
	var all []*session
	for range most {
		all = append(all, a.session())
	}
	if _, err := a.open("", ""); err == nil || !strings.Contains(err.Error(), "registry_full: ") {
		t.Errorf("one more: %v", err)
	}
	all[1].spawn("sleep 300")
	for _, s := range all[:3] {
		s.conn.Close()
	}
	eventually(t, "two have made room", func() bool {
		_, err := a.open("", "")
		return err != nil && len(a.events(statemachine.KindSessionClosed)) == 2
	})
	a.resume(all[1], "")
	files, err := os.ReadDir(filepath.Join(a.dir, "state", "run", "sessions"))
	if err != nil || len(files) > 3*most {
		t.Errorf("%d files, %v", len(files), err)
	}
}

// Every refusal is in the journal, with the rule that made it.
func TestRefusalsAreJournaled(t *testing.T) {
	a := startFront(t, "--a2e-max-procs", "1", "--a2e-allow-env", "LD_LIBRARY_PATH")
	s, stranger := a.session(), a.session()
	id := s.spawn("sleep 300")
	for _, fields := range []string{
		`"type":"proc/spawn/req","cmd":["sh","-c","id"]`,
		`"type":"proc/spawn/req","cmd":["ls"],"env":{"LD_PRELOAD":"/x"}`,
		`"type":"proc/spawn/req","cmd":["ls"],"env":{"LD_LIBRARY_PATH":"/x"}`,
		`"type":"proc/spawn/req","cmd":["ls"],"session_id":"` + stranger.id + `"`,
	} {
		if r := s.ask(fields); r["ok"] != false {
			t.Errorf("%s: %v", fields, r)
		}
	}
	foreign := stranger.ask(fmt.Sprintf(`"type":"proc/kill/req","proc_id":%q`, id))["error"]
	unknown := stranger.ask(`"type":"proc/kill/req","proc_id":"6f1e8a52-33c1-4b7e-9d10-2f5c8a7b9e01"`)["error"]
	if foreign != unknown || !strings.HasPrefix(foreign.(string), "unknown_proc: ") {
		t.Errorf("foreign: %v, unknown: %v", foreign, unknown)
	}
	a.killAll()
	a.stop()
	seen := map[string]int{}
	for _, r := range a.records() {
		if v, ok := r.Event.(*statemachine.Verb); ok && v.Front == "a2e" && !v.OK {
			seen[v.Op+" "+v.Code+" "+v.Rule] += v.Count
		}
	}
	for want, n := range map[string]int{
		"proc/spawn not_allowed allowlist":   1,
		"proc/spawn not_allowed environment": 1,
		"proc/spawn proc_limit quota":        1,
		"proc/spawn unknown_session session": 1,
		"proc/kill unknown_proc session":     2,
	} {
		if seen[want] != n {
			t.Errorf("%q: %d times; %v", want, seen[want], seen)
		}
	}
	a.serve()
}
