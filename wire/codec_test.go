package wire

import (
	"encoding/json"
	"errors"
	"math"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"supervisor/internal/testproc"
)

// decodeRequest reads a request as the front does.
func decodeRequest(line []byte, m Message) error {
	var d decoder
	if err := d.split(line, parseObject); err != nil {
		return err
	}
	m.fields(&d)
	return d.err
}

// roundTrip checks decode(encode(x)) == x for random messages of one type.
func roundTrip[T any, M interface {
	*T
	Message
}](t *testing.T, fix func(t *rapid.T, m M)) {
	t.Helper()
	rapid.Check(t, func(t *rapid.T) {
		want := rapid.Make[T]().Draw(t, "message")
		id := rapid.String().Draw(t, "id")
		fix(t, &want)
		var fromRequest, fromReply T
		request := AppendRequest(nil, "op", id, M(&want))
		if err := decodeRequest(request, M(&fromRequest)); err != nil {
			t.Fatal(err)
		}
		gotID, err := DecodeReply(AppendReply(nil, string(appendText(nil, id)), M(&want), nil), M(&fromReply))
		if err != nil || gotID != id {
			t.Fatalf("id %q, %v", gotID, err)
		}
		for _, got := range []T{fromRequest, fromReply} {
			if d := cmp.Diff(want, got, cmpopts.EquateEmpty()); d != "" {
				t.Fatal(d)
			}
		}
		var generic map[string]any // an independent judge of what is JSON
		if err := json.Unmarshal(request, &generic); err != nil || !utf8.Valid(request) {
			t.Fatal(err)
		}
	})
}

func asItIs[M any](*rapid.T, M) {}

func TestRoundTrip(t *testing.T) {
	t.Run("StartRequest", func(t *testing.T) { roundTrip(t, asItIs[*StartRequest]) })
	t.Run("StartReply", func(t *testing.T) { roundTrip(t, asItIs[*StartReply]) })
	t.Run("HandleRequest", func(t *testing.T) { roundTrip(t, asItIs[*HandleRequest]) })
	t.Run("Ack", func(t *testing.T) { roundTrip(t, asItIs[*Ack]) })
	t.Run("ListReply", func(t *testing.T) { roundTrip(t, asItIs[*ListReply]) })
	t.Run("LogsRequest", func(t *testing.T) { roundTrip(t, asItIs[*LogsRequest]) })
	t.Run("LogsReply", func(t *testing.T) { roundTrip(t, asItIs[*LogsReply]) })
	t.Run("StdinRequest", func(t *testing.T) { roundTrip(t, asItIs[*StdinRequest]) })
	t.Run("StdinReply", func(t *testing.T) { roundTrip(t, asItIs[*StdinReply]) })
	t.Run("SignalRequest", func(t *testing.T) { roundTrip(t, asItIs[*SignalRequest]) })
	t.Run("ResizeRequest", func(t *testing.T) { roundTrip(t, asItIs[*ResizeRequest]) })
	t.Run("WaitRequest", func(t *testing.T) { roundTrip(t, asItIs[*WaitRequest]) })
	t.Run("WaitReply", func(t *testing.T) { roundTrip(t, asItIs[*WaitReply]) })
	t.Run("InfoReply", func(t *testing.T) { roundTrip(t, asItIs[*InfoReply]) })
	t.Run("JournalReadRequest", func(t *testing.T) {
		roundTrip(t, func(_ *rapid.T, r *JournalReadRequest) {
			r.AfterSeq &= math.MaxInt64
			r.MaxBytes = 0
		})
	})
	t.Run("JournalReadReply", func(t *testing.T) {
		roundTrip(t, func(t *rapid.T, r *JournalReadReply) {
			r.HeadSeq &= math.MaxInt64
			r.FirstSeq &= math.MaxInt64
			r.Records = nil
			for _, s := range rapid.SliceOf(rapid.String()).Draw(t, "records") {
				r.Records = append(r.Records, append(appendText([]byte(`{"a":[1,{"b":`), s), "}]}"...))
			}
		})
	})
	t.Run("JournalInfoReply", func(t *testing.T) {
		roundTrip(t, func(_ *rapid.T, r *JournalInfoReply) {
			r.HeadSeq &= math.MaxInt64
			r.FirstSeq &= math.MaxInt64
		})
	})
}

func TestReplyShapes(t *testing.T) {
	for _, c := range []struct {
		want, id string
		m        Message
		err      error
	}{
		{`{"ok":true}`, ``, &Ack{}, nil},
		{`{"ok":true,"id":""}`, `""`, &Ack{}, nil},
		{`{"ok":true,"unjournaled":true}`, ``, &Ack{Unjournaled: true}, nil},
		{`{"ok":false,"error":"unknown op: x"}`, ``, nil, Errorf(CodeUnknownOp, "unknown op: x")},
		{`{"ok":false,"id":"7","error":"unknown op: x"}`, `"7"`, nil, Errorf(CodeUnknownOp, "unknown op: x")},
		{`{"ok":false,"error":"slow","code":"write_deadline","written":3}`, ``, &StdinReply{3}, Errorf(CodeWriteDeadline, "slow")},
		{`{"ok":false,"error":"boom","code":"internal"}`, ``, nil, errors.New("boom")},
		// The tri-state: false is written on these verbs, and signal only for a signal death.
		{`{"ok":true,"running":false,"exit_code":0,"timed_out":false}`, ``, &WaitReply{}, nil},
		{`{"ok":true,"running":false,"exit_code":143,"signal":15,"timed_out":false,"reason":"signal"}`, ``,
			&WaitReply{Exit{ExitCode: 143, Signal: 15, Reason: "signal"}}, nil},
		{`{"ok":true,"stdout":"YQ==","stderr":"","stdout_offset":1,"stderr_offset":0,"stdout_dropped":0,"stderr_dropped":0,` +
			`"stdout_first":0,"stderr_first":0,"running":true,"exit_code":0,"timed_out":false,"drained":false}`, ``,
			&LogsReply{Stdout: []byte("a"), StdoutOffset: 1, Exit: Exit{Running: true}}, nil},
		{`{"ok":true,"procs":[]}`, ``, &ListReply{}, nil},
		{`{"ok":true,"procs":[{"handle":"p","pid":1,"cmd":["` + "\uFFFD" + `"],"started_at":0,"running":false,"exit_code":-1,"exited_at":0,` +
			`"pty":false,"timed_out":false,"drained":false,"stdout_len":0,"stderr_len":0,"rusage":{"user_us":1,"sys_us":0,"max_rss_kib":0}}]}`, ``,
			&ListReply{[]Proc{{Handle: "p", PID: 1, Cmd: []string{"\xff"}, ExitCode: -1, Rusage: &Rusage{UserUS: 1}}}}, nil},
		{`{"ok":true,"records":[{"seq":1},{"seq":2}],"head_seq":2,"first_seq":1}`, ``,
			&JournalReadReply{Records: [][]byte{[]byte(`{"seq":1}`), []byte(`{"seq":2}`)}, HeadSeq: 2, FirstSeq: 1}, nil},
	} {
		if got := string(AppendReply(nil, c.id, c.m, c.err)); got != c.want+"\n" {
			t.Errorf("got  %swant %s", got, c.want)
		}
	}
}

func TestDecodeReplyErrors(t *testing.T) {
	var written StdinReply
	id, err := DecodeReply([]byte(`{"ok":false,"id":"7","error":"slow","code":"write_deadline","written":3}`), &written)
	if id != "7" || CodeOf(err) != CodeWriteDeadline || err.Error() != "slow" || written.Written != 3 {
		t.Errorf("%q, %v, %+v", id, err, written)
	}
	for line, code := range map[string]Code{
		`{"ok":false,"error":"unknown op: agent_info"}`: CodeUnknownOp,
		`{"ok":false,"error":"old style"}`:              CodeInternal,
		`{"error":"no ok"}`:                             CodeBadRequest,
		`{"ok":true,"written":"3"}`:                     CodeBadRequest,
		`["ok"]`:                                        CodeBadRequest,
		`{"ok":true`:                                    CodeBadRequest,
		`{"ok":true} {}`:                                CodeBadRequest,
		`{"ok"`:                                         CodeBadRequest,
		`{"`:                                            CodeBadRequest,
		``:                                              CodeBadRequest,
	} {
		if _, err := DecodeReply([]byte(line), &StdinReply{}); CodeOf(err) != code {
			t.Errorf("%s: got %v", line, err)
		}
	}
}

func nested(depth int) string {
	return `{"op":"agent_info","x":` + strings.Repeat("[", depth-1) + strings.Repeat("]", depth-1) + "}"
}

// Each kind of bad line (C18, C22 and the framing rules), and what its error
// must name. The same table goes over a connection in TestC22MalformedLines.
var malformed = []struct{ name, line, names string }{
	{"not JSON", `{not json}`, "bad JSON"},
	{"text", `GET / HTTP/1.1`, "bad JSON"},
	{"list", `[]`, "not a JSON object"},
	{"number", `42`, "not a JSON object"},
	{"null", `null`, "not a JSON object"},
	{"string", `"op"`, "not a JSON object"},
	{"byte order mark", "\uFEFF" + `{"op":"agent_info"}`, "byte order mark"},
	{"two objects", `{"op":"agent_info"} {"op":"agent_info"}`, "more than one value"},
	{"garbage after", `{"op":"agent_info"}}`, "bad JSON"},
	{"half an object", `{"op":"agent_info",`, "ends in the middle"},
	{"name twice", `{"op":"agent_info","op":"proc_list"}`, `duplicate object member name "op"`},
	{"name twice, escaped", `{"op":"agent_info","\u006fp":"proc_list"}`, `duplicate object member name "op"`},
	{"name twice, deep", `{"op":"agent_info","x":[{"a":1,"a":2}]}`, `duplicate object member name "a"`},
	{"invalid UTF-8", "{\"op\":\"agent_info\",\"x\":\"\xff\"}", "UTF-8"},
	{"lone surrogate", `{"op":"agent_info","x":"\ud800"}`, "surrogate"},
	{"control character", "{\"op\":\"agent_info\",\"x\":\"a\tb\"}", "bad JSON"},
	{"nested too deep", nested(MaxDepth + 1), "nested deeper"},
	{"open braces", strings.Repeat("{", 100_000), "nested deeper"},
	{"open brackets", strings.Repeat("[", 100_000), "nested deeper"},
	{"too many elements", `{"op":"agent_info","x":[` + strings.Repeat("0,", maxElements+1) + `0]}`, "list elements"},

	{"no op", `{}`, "op is missing"},
	{"op of another case", `{"OP":"agent_info"}`, "op is missing"},
	{"op is a number", `{"op":5}`, "op must be a string"},
	{"id is a number", `{"op":"agent_info","id":1}`, "id must be a string"},
	{"id is null", `{"op":"agent_info","id":null}`, "id must be a string"},

	{"no cmd", `{"op":"proc_start"}`, "cmd is missing"},
	{"cmd of another case", `{"op":"proc_start","CMD":["ls"]}`, "cmd is missing"},
	{"cmd empty", `{"op":"proc_start","cmd":[]}`, "cmd"},
	{"cmd is a string", `{"op":"proc_start","cmd":"ls"}`, "cmd must be a list of strings"},
	{"cmd of numbers", `{"op":"proc_start","cmd":[1]}`, "cmd must be a list of strings"},
	{"cmd with null", `{"op":"proc_start","cmd":["a",null]}`, "cmd must be a list of strings"},
	{"cmd is null", `{"op":"proc_start","cmd":null}`, "cmd must be a list of strings"},
	{"cmd[0] empty", `{"op":"proc_start","cmd":[""]}`, "cmd"},
	{"cmd with NUL", `{"op":"proc_start","cmd":["a\u0000b"]}`, "cmd must not contain a NUL"},
	{"cwd with NUL", `{"op":"proc_start","cmd":["a"],"cwd":"\u0000"}`, "cwd must not contain a NUL"},
	{"env with NUL", `{"op":"proc_start","cmd":["a"],"env":["A=\u0000"]}`, "env must not contain a NUL"},
	{"env without =", `{"op":"proc_start","cmd":["a"],"env":["NOEQUALS"]}`, "NOEQUALS"},
	{"env without name", `{"op":"proc_start","cmd":["a"],"env":["=x"]}`, "env"},
	{"cwd is null", `{"op":"proc_start","cmd":["a"],"cwd":null}`, "cwd must be a string"},
	{"pty is a string", `{"op":"proc_start","cmd":["a"],"pty":"true"}`, "pty must be true or false"},
	{"pty is a number", `{"op":"proc_start","cmd":["a"],"pty":1}`, "pty must be true or false"},
	{"cols above the range", `{"op":"proc_start","cmd":["a"],"cols":65536}`, "cols"},
	{"rows negative", `{"op":"proc_start","cmd":["a"],"rows":-1}`, "rows"},
	{"stdin unknown", `{"op":"proc_start","cmd":["a"],"stdin":"file"}`, "stdin"},
	{"timeout_ms is a string", `{"op":"proc_start","cmd":["a"],"timeout_ms":"x"}`, "timeout_ms"},
	{"timeout_ms negative", `{"op":"proc_start","cmd":["a"],"timeout_ms":-1}`, "timeout_ms must not be negative"},
	{"timeout_ms a fraction", `{"op":"proc_start","cmd":["a"],"timeout_ms":0.5}`, "timeout_ms must be a whole number"},
	{"timeout_ms with a point", `{"op":"proc_start","cmd":["a"],"timeout_ms":5.0}`, "timeout_ms must be a whole number"},
	{"timeout_ms with an exponent", `{"op":"proc_start","cmd":["a"],"timeout_ms":1e3}`, "timeout_ms must be a whole number"},
	{"timeout_ms past int64", `{"op":"proc_start","cmd":["a"],"timeout_ms":9223372036854775808}`, "timeout_ms"},

	{"no handle", `{"op":"proc_logs"}`, "handle is missing"},
	{"handle is a number", `{"op":"proc_logs","handle":1}`, "handle must be a string"},
	{"offset negative", `{"op":"proc_logs","handle":"p","offset":-1}`, "offset must not be negative"},
	{"stderr_offset negative", `{"op":"proc_logs","handle":"p","stderr_offset":-1}`, "stderr_offset must not be negative"},
	{"limit negative", `{"op":"proc_logs","handle":"p","limit":-5}`, "limit must not be negative"},
	{"wait_ms negative", `{"op":"proc_logs","handle":"p","wait_ms":-1}`, "wait_ms must not be negative"},
	{"wait timeout_ms negative", `{"op":"proc_wait","handle":"p","timeout_ms":-1}`, "timeout_ms must not be negative"},
	{"after_seq negative", `{"op":"journal_read","after_seq":-1}`, "after_seq must not be negative"},
	{"journal limit negative", `{"op":"journal_read","limit":-1}`, "limit must not be negative"},

	{"data is a number", `{"op":"proc_stdin","handle":"p","data":1}`, "data must be a string"},
	{"data without padding", `{"op":"proc_stdin","handle":"p","data":"YQ"}`, "data is not valid base64"},
	{"data with a stray letter", `{"op":"proc_stdin","handle":"p","data":"YWJj!"}`, "data is not valid base64"},
	{"data with a line break", `{"op":"proc_stdin","handle":"p","data":"YWJj\nYWJj"}`, "data is not valid base64"},
	{"data with stray bits", `{"op":"proc_stdin","handle":"p","data":"YR=="}`, "data is not valid base64"},
	{"long data with a stray letter", `{"op":"proc_stdin","handle":"p","data":"` + strings.Repeat("YWJj", 100) + "-" + strings.Repeat("YWJj", 100) + `aaa"}`, "data is not valid base64"},

	// C18
	{"signal -1", `{"op":"proc_signal","handle":"p","signal":-1}`, "signal must be from 1 to 64"},
	{"signal 0", `{"op":"proc_signal","handle":"p","signal":0}`, "signal must be from 1 to 64"},
	{"signal 65", `{"op":"proc_signal","handle":"p","signal":65}`, "signal must be from 1 to 64"},
	{"signal 2^63", `{"op":"proc_signal","handle":"p","signal":9223372036854775808}`, "signal must be a whole number"},
	{"signal is a string", `{"op":"proc_signal","handle":"p","signal":"9"}`, "signal must be a whole number"},
	{"signal is null", `{"op":"proc_signal","handle":"p","signal":null}`, "signal must be a whole number"},
	{"no signal", `{"op":"proc_signal","handle":"p"}`, "signal is missing"},
	{"signal 9.5", `{"op":"proc_signal","handle":"p","signal":9.5}`, "signal must be a whole number"},
	{"no rows", `{"op":"proc_resize","handle":"p","cols":80}`, "rows is missing"},
	{"cols 0", `{"op":"proc_resize","handle":"p","cols":0,"rows":1}`, "cols must be from 1 to 65535"},
	{"rows 65536", `{"op":"proc_resize","handle":"p","cols":1,"rows":65536}`, "rows must be from 1 to 65535"},
}

func TestParseRefuses(t *testing.T) {
	for _, c := range malformed {
		t.Run(c.name, func(t *testing.T) {
			var x exchange
			x.parse([]byte(c.line))
			if x.refused == nil {
				t.Fatal("accepted")
			}
			if CodeOf(x.refused) != CodeBadRequest || !strings.Contains(x.refused.Error(), c.names) {
				t.Errorf("got %v; want bad_request naming %q", x.refused, c.names)
			}
			if len(x.refused.Error()) > 300 {
				t.Errorf("the error has %d bytes", len(x.refused.Error()))
			}
		})
	}
}

func TestParseAccepts(t *testing.T) {
	for _, line := range []string{
		nested(MaxDepth),
		` { "op" : "agent_info" , "x" : { "y" : [ ] } } `,
		`{"\u006fp":"agent_info"}`,
		`{"op":"agent_info","handle":5,"limit":-1,"cmd":null}`, // other verbs' fields
		`{"op":"proc_start","cmd":["a",""],"env":["A=","B=="],"cwd":"","timeout_ms":9223372036854775807,"cols":65535}`,
		`{"op":"proc_logs","handle":"","offset":-0,"limit":0}`,
		`{"op":"proc_stdin","handle":"p","data":""}`,
		`{"op":"proc_stdin","handle":"p","data":"\/\/\/\/"}`,
		`{"op":"proc_signal","handle":"p","signal":64}`,
		`{"op":"proc_signal","handle":"p","signal":32}`,
		`{"op":"proc_start","cmd":["` + "\U0001F600" + `\ud83d\ude00"]}`,
	} {
		var x exchange
		if x.parse([]byte(line)); x.refused != nil {
			t.Errorf("%s: %v", line, x.refused)
		}
	}
}

func TestSignalDefaultsToTheGroup(t *testing.T) {
	for line, want := range map[string]bool{
		`{"op":"proc_signal","handle":"p","signal":9}`:               true,
		`{"op":"proc_signal","handle":"p","signal":9,"group":false}`: false,
	} {
		var x exchange
		x.parse([]byte(line))
		if got := x.request.(*SignalRequest).Group; got != want {
			t.Errorf("%s: group %v", line, got)
		}
	}
}

// Lines made to cost memory cost a small multiple of their length.
func TestParseMemory(t *testing.T) {
	var names strings.Builder
	for i := range maxElements - 10 {
		names.WriteString(`"` + string(rune('a'+i%26)) + strings.Repeat("x", i%3) + string(rune(0x4e00+i/26)) + `":1,`)
	}
	for name, line := range map[string]string{
		"open brackets": strings.Repeat("[", 1<<20),
		"many names":    "{" + names.String() + `"op":"x"}`,
		"many elements": `{"op":"proc_start","cmd":[` + strings.Repeat(`"",`, maxElements-1) + `""]}`,
	} {
		if got := testproc.Allocated(func() { new(exchange).parse([]byte(line)) }); got > 100<<20 {
			t.Errorf("%s: %d MiB for %d KiB", name, got>>20, len(line)>>10)
		}
	}
}

// FuzzRequest: no line makes parsing panic or allocate much, and what is taken
// is understood.
func FuzzRequest(f *testing.F) {
	for _, c := range malformed {
		if len(c.line) < 1000 {
			f.Add([]byte(c.line))
		}
	}
	for op := range verbs {
		f.Add([]byte(`{"op":"` + op + `","handle":"p","signal":9,"cols":1,"rows":2,"cmd":["a"],"data":"YWJj","after_seq":1,"env":["A=b"]}`))
	}
	f.Fuzz(func(t *testing.T, line []byte) {
		var x exchange
		testproc.AllocatesLike(t, line, 256, func() { x.parse(line) })
		var v map[string]any
		if json.Unmarshal(line, &v) != nil && x.object {
			t.Fatalf("took %q for an object", line)
		}
		if x.refused == nil {
			again := AppendRequest(nil, x.caller.Op, "", x.request)
			var y exchange
			if y.parse(again); y.refused != nil || !cmp.Equal(x.request, y.request, cmpopts.EquateEmpty()) {
				t.Fatalf("%q became %q: %v", line, again, y.refused)
			}
		}
		// The trusting half: wrong, perhaps, but it returns.
		for _, reply := range []Message{new(LogsReply), new(ListReply), new(JournalReadReply)} {
			testproc.AllocatesLike(t, line, 256, func() { _, _ = DecodeReply(line, reply) })
		}
	})
}
