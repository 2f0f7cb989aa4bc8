package wire

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"supervisor/internal/testproc"
)

// appendA2E is a request as a client writes it.
func appendA2E(kind, id string, m Message) []byte {
	var e encoder
	e.envelope(kind+"/req", time.Unix(1, 0))
	line := strings.Replace(string(e.dst), `"id":"`, `"id":"`+id, 1)
	e.dst = []byte(line)
	m.fields(&e)
	return append(e.dst, '}')
}

// talking is a conversation with a session, as far as parsing needs one.
func talking(session bool) *conversation {
	v := &conversation{a2e: &A2E{}}
	if session {
		v.session, v.secret = NewSession(SessionCursor{Name: "s_1"}), "secret"
	}
	return v
}

func TestA2EParse(t *testing.T) {
	for line, want := range map[string]string{
		`{"type":"proc/status/req"}`: "",
		`{"type":"proc/status/req","proc_id":"x","version":"1.0","ts":1.5,"session_id":"secret"}`: "",
		`{"type":"proc/status/req","session_id":"other"}`:                                         "unknown_session: not this connection's session",
		`{"type":"proc/status/req","version":"1.1"}`:                                              "bad_request: version must be 1.0",
		`{"type":"proc/status/resp"}`:                                                             `bad_request: unknown type "proc/status/resp"`,
		`{"op":"proc_list"}`:                                                                      "bad_request: type is missing",
		`{"type":"handshake/req"}`:                                                                "bad_request: this connection has a session",
		`{"type":"proc/spawn/req","cmd":"ls"}`:                                                    "bad_request: cmd must be a list of strings",
		`{"type":"proc/spawn/req","cmd":[]}`:                                                      "bad_request: cmd must name a program",
		`{"type":"proc/spawn/req","cmd":["ls"],"timeout":-1}`:                                     "bad_request: timeout must not be negative",
		`{"type":"proc/spawn/req","cmd":["ls"],"timeout":1.5}`:                                    "bad_request: timeout must be a whole number of at most 64 bits, without fraction or exponent",
		`{"type":"proc/spawn/req","cmd":["ls"],"stdin_mode":"tty"}`:                               `bad_request: stdin_mode must be "pipe" or "null"`,
		`{"type":"proc/spawn/req","cmd":["ls"],"env":["A=b"]}`:                                    "bad_request: env must be an object of strings",
		`{"type":"proc/spawn/req","cmd":["ls"],"env":{"A":1}}`:                                    "bad_request: env must be an object of strings",
		`{"type":"proc/spawn/req","cmd":["ls"],"env":{"A=B":"c"}}`:                                "bad_request: env holds a name that is empty or has a =",
		`{"type":"proc/spawn/req","cmd":["ls"],"env":{"A":"\u0000"}}`:                             "bad_request: env must not contain a NUL character",
		`{"type":"proc/write/req","proc_id":"x","data":"!","encoding":"base64"}`:                  "bad_request: data is not valid base64",
		`{"type":"proc/write/req","proc_id":"x","data":"x","encoding":"latin1"}`:                  `bad_request: encoding must be "utf-8" or "base64"`,
		`{"type":"proc/write/req","data":"x"}`:                                                    "bad_request: proc_id is missing",
		`{"type":"proc/kill/req","proc_id":"x","signal":"SIGSTOP"}`:                               "bad_request: signal must be SIGTERM, SIGKILL or SIGINT",
		`{"type":"proc/kill/req","proc_id":"x","proc_id":"y"}`:                                    "bad JSON",
	} {
		var x exchange
		talking(true).parse(&x, []byte(line))
		got := ""
		if x.refused != nil {
			got = string(x.caller.CodeOf(x.refused)) + ": " + x.refused.Error()
		}
		if got != want && !(want == "bad JSON" && strings.Contains(got, want)) {
			t.Errorf("%s\n got %s\nwant %s", line, got, want)
		}
	}
	var x exchange
	talking(false).parse(&x, []byte(`{"type":"proc/spawn/req","cmd":["ls"]}`))
	if CodeOf(x.refused) != CodeUnknownSession {
		t.Errorf("before a handshake: %v", x.refused)
	}
}

// A refusal answers in the request's own message, so that its sender can read
// it without knowing that it was refused.
func TestA2ERefusals(t *testing.T) {
	for line, want := range map[string]string{
		`{"type":"proc/spawn/req","id":"a","cmd":[""]}`:                `{"type":"proc/spawn/resp","req_id":"a","ok":false,"proc_id":"","error":"bad_request: cmd must name a program"}`,
		`{"type":"proc/kill/req","id":"a","proc_id":"p","signal":"x"}`: `{"type":"proc/kill/resp","req_id":"a","ok":false,"proc_id":"p","state":"","error":"bad_request: signal must be SIGTERM, SIGKILL or SIGINT"}`,
		`{"type":"proc/status/req","id":"a","version":"2"}`:            `{"type":"proc/status/resp","req_id":"a","proc_id":"","status":"error","procs":[],"error":"bad_request: version must be 1.0"}`,
		`{"type":"nonsense","id":"ä"}`:                                 `{"type":"error","req_id":"ä","error":"bad_request: unknown type \"nonsense\""}`,
		`[]`:                                                           `{"type":"error","req_id":"","error":"bad_request: not a JSON object"}`,
	} {
		v, x, e := talking(true), exchange{caller: Caller{Front: frontA2E}}, encoder{}
		v.parse(&x, []byte(line))
		v.reply(&e, &x, nil, x.refused)
		var got map[string]any
		if err := json.Unmarshal(e.dst, &got); err != nil {
			t.Fatalf("%s: %v", e.dst, err)
		}
		for _, name := range []string{"id", "version", "ts"} {
			if got[name] == nil {
				t.Errorf("%s: no %s", e.dst, name)
			}
			delete(got, name)
		}
		var wanted map[string]any
		if err := json.Unmarshal([]byte(want), &wanted); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(wanted, got); diff != "" {
			t.Errorf("%s: %s", line, diff)
		}
	}
}

// FuzzA2E: no line makes the front panic, and what it takes it understood.
func FuzzA2E(f *testing.F) {
	for kind, v := range a2eVerbs {
		f.Add(appendA2E(kind, "1", v.request()), true)
	}
	f.Add(appendA2E("proc/spawn", "1", &A2ESpawn{Cmd: []string{"ls"}, Env: []string{"A=b", "C==\""}, Timeout: 1 << 62}), true)
	f.Add(appendA2E("proc/write", "1", &A2EWrite{ProcID: "p", Data: "AAEC", Encoding: "base64", EOF: true}), true)
	f.Add([]byte(`{"type":"handshake/req","session_id":"x","last_seq":9}`), false)
	f.Fuzz(func(t *testing.T, line []byte, session bool) {
		v, x := talking(session), exchange{caller: Caller{Front: frontA2E}}
		testproc.AllocatesLike(t, line, 256, func() { v.parse(&x, line) })
		var e encoder
		v.reply(&e, &x, nil, x.refused)
		if !json.Valid(e.dst) {
			t.Fatalf("%q is answered %q", line, e.dst)
		}
		if x.refused != nil {
			return
		}
		again := exchange{}
		v.parse(&again, appendA2E(x.caller.Op, "", x.request))
		if again.refused != nil || !cmp.Equal(x.request, again.request, cmpopts.EquateEmpty(), cmpopts.IgnoreUnexported(A2EWrite{})) {
			t.Fatalf("%q became %+v: %v", line, again.request, again.refused)
		}
	})
}

func TestShellQuoted(t *testing.T) {
	got := shellQuoted([]string{"bash", "-c", `echo "it's"`, "", "a=b"})
	if want := `bash -c 'echo "it'\''s"' '' a=b`; got != want {
		t.Errorf("%s, not %s", got, want)
	}
}

func TestStatusWords(t *testing.T) {
	for want, p := range map[string]SessionRow{
		"running":   {Proc: Proc{Running: true}},
		"completed": {Proc: Proc{Reason: "exited"}},
		"failed":    {Proc: Proc{Reason: "signal", ExitCode: 139}},
		"timedout":  {Proc: Proc{Reason: "timeout", ExitCode: 137}},
		"killed":    {Proc: Proc{Reason: "exited"}, Killed: true},
	} {
		if got := p.status(); got != want {
			t.Errorf("%+v is %s", p, got)
		}
	}
}

// The log of a session against a list of everything: whatever connections take
// of it, and wherever they go on, what is sent is what comes next, whole events
// only, and what was sent can be had again as far as it is kept.
func TestEventLog(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var log eventLog
		var all []string // event n is all[n-1]
		next := uint64(1)
		for range rapid.IntRange(1, 40).Draw(t, "steps") {
			switch rapid.IntRange(0, 3).Draw(t, "step") {
			case 0:
				line := fmt.Sprintf("%d%s\n", len(all)+1, strings.Repeat(".", rapid.SampledFrom([]int{0, 9, 60_000}).Draw(t, "size")))
				if next != log.last+1 {
					continue // events are made when all are written
				}
				all = append(all, line)
				log.append([]byte(line))
			case 1, 2:
				batch := string(log.from(nil, next))
				rest := strings.Join(all[next-1:], "")
				if !strings.HasPrefix(rest, batch) || batch == "" && rest != "" {
					t.Fatalf("from %d: %.40q", next, batch)
				}
				n := rapid.IntRange(0, len(batch)).Draw(t, "taken")
				was := next
				next = log.took(next, n)
				if whole := strings.Count(batch[:n], "\n"); next != was+uint64(whole) {
					t.Fatalf("%d events were taken, and the next is %d after %d", whole, next, was)
				}
			case 3: // another connection
				log = NewSession(SessionCursor{LastSeq: log.last, Sent: log.sent, Events: log.lines}).log
				next = log.sent + 1
				if rapid.Bool().Draw(t, "knows") {
					seq := rapid.Uint64Range(0, log.last).Draw(t, "last_seq")
					if next = log.after(seq); next != max(seq+1, log.first()) {
						t.Fatalf("after %d comes %d", seq, next)
					}
				}
			}
			if kept := slices.Concat(log.lines...); len(kept) != log.bytes || log.sent > log.last || log.first() > log.sent+1 {
				t.Fatalf("%d bytes of %d; %d to %d, sent %d", len(kept), log.bytes, log.first(), log.last, log.sent)
			}
		}
	})
}

// A client that knows more than an agent whose cursor is gone makes the numbers
// go on.
func TestEventLogBehindItsClient(t *testing.T) {
	log := NewSession(SessionCursor{LastSeq: 5, Sent: 4, Events: [][]byte{[]byte("5\n")}}).log
	if next := log.after(9); next != 10 || log.last != 9 || log.sent != 9 || len(log.lines) != 0 {
		t.Errorf("next is %d, last %d, sent %d, %d lines", next, log.last, log.sent, len(log.lines))
	}
}
