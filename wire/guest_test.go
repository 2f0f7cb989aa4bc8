package wire

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"supervisor/internal/testproc"
)

func TestVerbs(t *testing.T) {
	f := &fake{}
	p := connected(t, f)
	for _, c := range []struct{ line, reply string }{
		{`{"op":"agent_info"}`, `{"ok":true,"agent_version":"1","image_sha256":"","caps":["proc","ids"],"features":[],"pid":1,"uptime_sec":0,"proc_count":0,"journal":"ok","reaped":0}`},
		{`{"op":"proc_start","cmd":["a","b"]}`, `{"ok":true,"handle":"p_1","pid":42}`},
		{`{"op":"proc_list"}`, `"handle":"p_1"`},
		{`{"op":"proc_logs","handle":"p_1"}`, `"stdout":"b3V0"`},
		{`{"op":"proc_stdin","handle":"p_1","data":"YWJj"}`, `{"ok":true,"written":3}`},
		{`{"op":"proc_signal","handle":"p_1","signal":15}`, `{"ok":true}`},
		{`{"op":"proc_kill","handle":"p_1"}`, `{"ok":false,"error":"process not running","code":"not_running"}`},
		{`{"op":"proc_resize","handle":"p_1","cols":3,"rows":4}`, `{"ok":true}`},
		{`{"op":"proc_wait","handle":"p_1"}`, `{"ok":true,"running":true,"exit_code":0,"timed_out":true}`},
		{`{"op":"journal_read"}`, `{"ok":true,"records":[{"seq":1}],"head_seq":1,"first_seq":1}`},
		{`{"op":"journal_info"}`, `"head_seq":1`},
		{`{"op":"journal_snapshot","offset":1}`, `{"ok":true,"seq":1,"size":3,"data":"YmM="}`},
		{`{"op":"no_such_verb"}`, `{"ok":false,"error":"unknown op: no_such_verb"}`},
		{`{"op":"` + strings.Repeat("é", 100) + `","id":"x"}`, `{"ok":false,"id":"x","error":"unknown op: ` + strings.Repeat("é", 100) + `"}`},
		{`{"op":"proc_logs","handle":"p_1","limit":-1,"id":"y"}`, `{"ok":false,"id":"y","error":"limit must not be negative","code":"bad_request"}`},
		{`{"op":"proc_logs"`, `"code":"bad_request"`},
	} {
		p.send(c.line)
		p.wants(c.reply)
	}
	want := []string{`start ["a" "b"]`, "stdin p_1 abc", "signal {Handle:p_1 Signal:15 Group:true}", "resize p_1 3x4", "wait p_1 300000"}
	if got := f.seen(); !slices.Equal(got, want) {
		t.Errorf("calls %q", got)
	}
	var notes []string
	for _, n := range f.noted() {
		if n.Front != "guest" || n.Peer != fmt.Sprintf("uid=%d pid=%d", os.Getuid(), os.Getpid()) || time.Since(n.Began) > time.Minute {
			t.Errorf("note %+v", n)
		}
		notes = append(notes, fmt.Sprintf("%s/%s/%s", n.Op, n.handle, n.code))
	}
	if want := []string{"agent_info//", "proc_list//", "proc_logs/p_1/", "proc_wait/p_1/", "journal_read//", "journal_info//",
		"journal_snapshot//", "no_such_verb//unknown_op", strings.Repeat("é", 32) + "//unknown_op", "proc_logs/p_1/bad_request", "//bad_request"}; !slices.Equal(notes, want) {
		t.Errorf("notes %q", notes)
	}
}

// C22 and the framing rules: one answer for each bad line, the connection
// lives on, and so does a wait that is pending on it.
func TestC22MalformedLines(t *testing.T) {
	release := make(chan struct{})
	f := &fake{wait: func(context.Context, WaitRequest) (WaitReply, error) {
		<-release
		return WaitReply{Exit{ExitCode: 7}}, nil
	}}
	p := connected(t, f)
	p.send(`{"op":"proc_wait","handle":"p_1","id":"w"}`)
	for _, c := range malformed {
		p.send(c.line)
		r := p.reply()
		if r["ok"] != false || r["code"] != "bad_request" || !strings.Contains(r["error"].(string), c.names) {
			t.Errorf("%s: got %v", c.name, r)
		}
		delete(r, "ok")
		delete(r, "code")
		delete(r, "error")
		if len(r) > 0 {
			t.Errorf("%s: also said %v", c.name, r)
		}
	}
	p.send("", "\r", `{"op":"agent_info"}`+"\r")
	p.wants(`"agent_version"`)
	p.send(`{"op":`, `"agent_info"}`) // one object over two lines
	p.wants("bad JSON", "bad JSON")
	close(release)
	p.wants(`"id":"w"`)
	if calls := f.seen(); len(calls) != 1 {
		t.Errorf("calls %q", calls)
	}
}

func TestC22OneByteWrites(t *testing.T) {
	p := connected(t, &fake{})
	for _, b := range []byte(`{"op":"agent_info"}` + "\r\n") {
		if _, err := p.Write([]byte{b}); err != nil {
			t.Fatal(err)
		}
	}
	p.wants(`"agent_version"`)
}

// C22: a request without its line end is not executed; after a half-close the
// requests before it are still answered.
func TestC22HalfClose(t *testing.T) {
	f := &fake{wait: func(ctx context.Context, _ WaitRequest) (WaitReply, error) {
		select {
		case <-ctx.Done():
			return WaitReply{}, ctx.Err()
		case <-time.After(100 * time.Millisecond):
			return WaitReply{Exit{ExitCode: 7}}, nil
		}
	}}
	p := connected(t, f)
	p.send(`{"op":"proc_wait","handle":"p_1"}`, `{"op":"agent_info"}`)
	io.WriteString(p, `{"op":"proc_start","cmd":["a"]}`)
	if err := p.CloseWrite(); err != nil {
		t.Fatal(err)
	}
	p.wants(`"exit_code":7`, `"agent_version"`, "no line end")
	p.wantsEnd()
	if calls := f.seen(); len(calls) != 1 {
		t.Errorf("calls %q", calls)
	}
}

func TestOversizedLine(t *testing.T) {
	f := &fake{}
	p := connected(t, f)
	p.send(`{"op":"proc_start","cmd":["a"]}`)
	go func() {
		piece := []byte(strings.Repeat("x", 1<<20))
		for range 64 {
			if _, err := p.Write(piece); err != nil {
				return
			}
		}
	}()
	p.wants(`"handle"`, "line longer than 16777216 bytes")
	p.wantsEnd()
}

func TestLongestLine(t *testing.T) {
	p := connected(t, &fake{})
	head, tail := `{"op":"agent_info","pad":"`, `"}`
	p.send(head + strings.Repeat("x", MaxLine-len(head)-len(tail)) + tail)
	p.wants(`"agent_version"`)
}

// Requests without id are answered in order, those with one beside them.
func TestOrder(t *testing.T) {
	release := make(chan struct{})
	f := &fake{wait: func(context.Context, WaitRequest) (WaitReply, error) {
		<-release
		return WaitReply{}, nil
	}}
	p := connected(t, f)
	p.send(`{"op":"proc_wait","handle":"p_1"}`, `{"op":"agent_info"}`, `{bad`, `{"op":"nope"}`, `{"op":"proc_list"}`,
		`{"op":"proc_start","cmd":["a"],"id":"a"}`, `{"op":"nope","id":""}`)
	if got := []string{p.line(), p.line()}; !slices.ContainsFunc(got, func(s string) bool { return strings.Contains(s, `"id":"a"`) }) ||
		!slices.ContainsFunc(got, func(s string) bool { return strings.Contains(s, `"id":""`) }) {
		t.Fatal(got)
	}
	close(release)
	p.wants(`"running":false`, `"agent_version"`, "bad JSON", "unknown op: nope", `"procs"`)
}

// Writes, close and resize of one process begin in the order in which they
// came, also with ids, and do not wait for another process's.
func TestInputOrder(t *testing.T) {
	release := make(chan struct{})
	f := &fake{stdin: func(_ context.Context, r StdinRequest) (StdinReply, error) {
		if string(r.Data) == "0" {
			<-release
		}
		return StdinReply{Written: len(r.Data)}, nil
	}}
	p := connected(t, f)
	const many = 60
	var want []string
	for i := range many {
		data := string(appendText(nil, encoded(fmt.Sprint(i))))
		id := fmt.Sprintf(`,"id":"%d"`, i)
		if i%7 == 3 {
			id = ""
		}
		p.send(`{"op":"proc_stdin","handle":"A","data":` + data + id + `}`)
		p.send(fmt.Sprintf(`{"op":"proc_resize","handle":"A","cols":%d,"rows":1,"id":"r"}`, i+1))
		want = append(want, fmt.Sprintf("stdin A %d", i), fmt.Sprintf("resize A %dx1", i+1))
	}
	p.send(`{"op":"proc_stdin","handle":"B","data":"Yg==","id":"B"}`)
	p.wants(`"id":"B"`)
	close(release)
	for range 2 * many {
		p.wants(`"ok":true`)
	}
	got := slices.DeleteFunc(f.seen(), func(s string) bool { return s == "stdin B b" })
	if !slices.Equal(got, want) {
		t.Errorf("got %q", got)
	}
}

func encoded(s string) string {
	line := AppendRequest(nil, "", "", &StdinRequest{Data: []byte(s)})
	var m struct{ Data string }
	json.Unmarshal(line, &m)
	return m.Data
}

// Past its requests in flight a connection is not read; it goes on when one
// ends, and nothing is lost.
func TestReadingPauses(t *testing.T) {
	step := make(chan struct{})
	f := &fake{wait: func(context.Context, WaitRequest) (WaitReply, error) {
		<-step
		return WaitReply{}, nil
	}}
	p := connected(t, f)
	const many = 2*maxInFlight + 10
	for i := range many {
		p.send(fmt.Sprintf(`{"op":"proc_wait","handle":"p","id":"%d"}`, i))
	}
	until(t, "the first ones run", func() bool { return len(f.seen()) == maxInFlight })
	time.Sleep(20 * time.Millisecond)
	if n := len(f.seen()); n != maxInFlight {
		t.Fatalf("%d requests in flight", n)
	}
	for range many {
		step <- struct{}{}
	}
	for range many {
		p.wants(`"ok":true`)
	}
}

// C20: the waits of a peer that is gone end at once, in each state of its
// connection; others get their answers.
func TestPeerGone(t *testing.T) {
	for name, prepare := range map[string]func(p *peer){
		"reading":     func(p *peer) {},
		"half-closed": func(p *peer) { p.CloseWrite() },
		"paused": func(p *peer) {
			for range maxInFlight {
				p.send(`{"op":"proc_wait","handle":"p","id":"x"}`)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			release := make(chan struct{})
			f := &fake{}
			f.wait = func(ctx context.Context, _ WaitRequest) (WaitReply, error) {
				select {
				case <-ctx.Done():
					f.called("cancelled")
					return WaitReply{}, ctx.Err()
				case <-release:
					return WaitReply{}, nil
				}
			}
			_, a := serving(t, &Guest{Backend: f}, socket(t), 0)
			stays, leaves := dialed(t, a), dialed(t, a)
			stays.send(`{"op":"proc_wait","handle":"p"}`)
			leaves.send(`{"op":"proc_wait","handle":"p"}`)
			prepare(leaves)
			until(t, "they wait", func() bool { n := len(f.seen()); return n == 2 || n >= maxInFlight })
			began := time.Now()
			leaves.Close()
			until(t, "a wait is cancelled", func() bool { return slices.Contains(f.seen(), "cancelled") })
			if took := time.Since(began); took > 100*time.Millisecond {
				t.Errorf("took %v", took)
			}
			close(release)
			stays.wants(`"ok":true`)
		})
	}
}

// A change that was read whole happens although its peer has left.
func TestChangeOutlivesItsPeer(t *testing.T) {
	f := &fake{}
	f.stdin = func(ctx context.Context, _ StdinRequest) (StdinReply, error) {
		select {
		case <-ctx.Done():
			f.called("cancelled")
		case <-time.After(50 * time.Millisecond):
			f.called("written")
		}
		return StdinReply{}, nil
	}
	p := connected(t, f)
	p.send(`{"op":"proc_stdin","handle":"p","data":"YQ=="}`)
	p.Close()
	until(t, "it is done", func() bool { return slices.Contains(f.seen(), "written") })
}

// A peer that does not read is cut off; meanwhile nobody waits for it.
func TestPeerThatDoesNotRead(t *testing.T) {
	big := strings.Repeat("x", 1<<20)
	f := &fake{logs: func(_ context.Context, _ LogsRequest, reply *LogsReply) error {
		reply.Stdout = append(reply.Stdout, big...)
		return nil
	}}
	_, a := serving(t, &Guest{Backend: f, Stall: 300 * time.Millisecond}, socket(t), 0)
	deaf, other := dialed(t, a), dialed(t, a)
	for range 8 {
		deaf.send(`{"op":"proc_logs","handle":"p"}`)
	}
	began := time.Now()
	other.send(`{"op":"agent_info"}`)
	other.wants(`"agent_version"`)
	if took := time.Since(began); took > 200*time.Millisecond {
		t.Errorf("the other waited %v", took)
	}
	until(t, "it is cut off", func() bool { return deaf.waitHangupNow() })
}

func (p *peer) waitHangupNow() (gone bool) {
	p.control(func(fd int) error { gone = polled(uintptr(fd), 0); return nil })
	return gone
}

// A slow peer that takes a little all the time is not cut off.
func TestSlowPeerIsServed(t *testing.T) {
	f := &fake{logs: func(_ context.Context, _ LogsRequest, reply *LogsReply) error {
		reply.Stdout = append(reply.Stdout, strings.Repeat("x", 2<<20)...)
		return nil
	}}
	_, a := serving(t, &Guest{Backend: f, Stall: 200 * time.Millisecond}, socket(t), 0)
	p := dialed(t, a)
	p.send(`{"op":"proc_logs","handle":"p"}`)
	total, piece := 0, make([]byte, 128<<10)
	for {
		time.Sleep(30 * time.Millisecond)
		n, err := p.Read(piece)
		total += n
		if err != nil {
			t.Fatalf("%v after %d bytes", err, total)
		}
		if n > 0 && piece[n-1] == '\n' {
			break
		}
	}
	if total < 2<<20 {
		t.Errorf("%d bytes", total)
	}
}

func TestPanicHarmsNoOther(t *testing.T) {
	f := &fake{info: func() InfoReply { panic("boom") }}
	f.wait = func(context.Context, WaitRequest) (WaitReply, error) { panic("boom") }
	p := connected(t, f)
	p.send(`{"op":"agent_info"}`, `{"op":"proc_wait","handle":"p","id":"1"}`, `{"op":"proc_list"}`)
	p.wants(`"code":"internal"`)
	got := p.line() + p.line()
	if !strings.Contains(got, `"code":"internal"`) || !strings.Contains(got, `"procs"`) {
		t.Error(got)
	}
}

// Long lines share a memory: where others have it, one more is refused, and
// short ones are heard. What a line took is given back when it was read.
func TestLongLinesShareMemory(t *testing.T) {
	g := &Guest{Backend: &fake{}}
	_, a := serving(t, g, socket(t), 0)
	long := `{"op":"agent_info","x":"` + strings.Repeat("x", 1<<20) + `"}`
	g.lines.taken.Store(longLinesBytes - 4<<20)
	p := dialed(t, a)
	p.send(long, long)
	p.wants(`"agent_version"`, `"agent_version"`)
	until(t, "it is given back", func() bool { return g.lines.taken.Load() == longLinesBytes-4<<20 })
	g.lines.taken.Store(longLinesBytes)
	go io.WriteString(p, long+"\n") // it hangs up before the end
	p.wants("too many long lines at once")
	p.wantsEnd()
	p = dialed(t, a)
	p.send(`{"op":"agent_info"}`)
	p.wants(`"agent_version"`)
	until(t, "nothing is held", func() bool { return g.lines.taken.Load() == longLinesBytes })
}

// Replies together stay within a budget: who comes when it is short gets less,
// and nobody waits.
func TestReplyBudget(t *testing.T) {
	var b budget
	var total int64
	for range 10_000 {
		total += b.take(20 << 20)
	}
	if most := int64(budgetBytes + 10_000*budgetFloor); total > most {
		t.Errorf("%d MiB granted", total>>20)
	}
	b.give(total)
	if got := b.take(20 << 20); got != 20<<20 {
		t.Errorf("an empty budget grants %d", got)
	}
}

// A follower waits with the smallest limit and then gets what there is.
func TestFollowerHoldsNoMemory(t *testing.T) {
	f := &fake{}
	f.logs = func(_ context.Context, r LogsRequest, reply *LogsReply) error {
		f.called("limit %d, wait %d", r.Limit, r.WaitMS)
		reply.Stdout = append(reply.Stdout, strings.Repeat("x", int(r.Limit))...)
		reply.StdoutOffset = r.Limit
		return nil
	}
	p := connected(t, f)
	p.send(`{"op":"proc_logs","handle":"p","wait_ms":99999999,"limit":5}`)
	p.wants(`"stdout":"eHh4eHg="`)
	if got := f.seen(); !slices.Equal(got, []string{"limit 1, wait 60000", "limit 5, wait 0"}) {
		t.Errorf("asked %q", got)
	}
	if len(f.noted()) != 1 {
		t.Errorf("noted %+v", f.noted())
	}
}

// A list is sent as it is made: however much its commands are, and whether the
// peer reads or not, little of it is held.
func TestLongListHoldsNoMemory(t *testing.T) {
	f := &manyRows{row: Proc{Handle: "p", Cmd: []string{"a", strings.Repeat("x", 100<<10), strings.Repeat("y", 100<<10)}}, n: 60}
	p := connected(t, f)
	var got int64
	cost := testproc.Allocated(func() {
		p.send(`{"op":"proc_list"}`)
		for buf := make([]byte, 64<<10); ; {
			n, err := p.Read(buf)
			if err != nil {
				t.Fatal(err)
			}
			if got += int64(n); buf[n-1] == '\n' {
				break
			}
		}
	})
	if got < 60*200<<10 || cost > 4<<20 {
		t.Errorf("%d KiB allocated for a reply of %d", cost>>10, got>>10)
	}
}

// A list that nobody reads any more is not made to its end: its connection
// gives room to another one long before.
func TestLongListEndsWithItsPeer(t *testing.T) {
	f := &manyRows{row: Proc{Handle: "p", Cmd: []string{strings.Repeat("x", 200<<10)}}, n: 100_000}
	_, a := serving(t, &Guest{Backend: f}, socket(t), 1)
	p := dialed(t, a)
	p.send(`{"op":"proc_list"}`)
	if _, err := io.ReadFull(p, make([]byte, 1<<20)); err != nil {
		t.Fatal(err)
	}
	p.Close()
	until(t, "there is room", func() bool { return hasRoom(t, a) })
}

// manyRows lists one row many times.
type manyRows struct {
	fake
	row Proc
	n   int
}

func (f *manyRows) List() ListReply { return ListReply{Procs: slices.Repeat([]Proc{f.row}, f.n)} }
