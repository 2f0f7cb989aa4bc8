package wire

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"
	"unicode/utf8"
)

func (f *fake) Exec(_ context.Context, _ Caller, r ExecRequest) (ExecReply, error) {
	f.called("exec %q %q %d", r.Cmd, r.Stdin, r.TimeoutMS)
	switch r.Cmd[0] {
	case "fails":
		return ExecReply{}, Errorf(CodeSpawnFailed, "fails: not found")
	case "large":
		reply := ExecReply{Stdout: largeOutput(), TimedOut: true, ExitCode: -1}
		reply.Truncated = !r.Room(int64(len(reply.Stdout)))
		return reply, nil
	}
	return ExecReply{Stdout: []byte("o\xff\n"), ExitCode: 3}, nil
}

// largeOutput has characters of every length, and bytes that are none, at
// every distance from the pieces in which it is sent.
func largeOutput() []byte {
	return bytes.Repeat([]byte("a\x00é€\xf0\x9f\x98\x80\xff\x80\x80\x80\x80"), 40_000)
}

func (f *fake) WriteFile(_ context.Context, _ Caller, r WriteFileRequest) error {
	f.called("write_file %s %s %o %v", r.Path, r.Data, r.Mode, r.Append)
	return nil
}

// ReadFile gives as many bytes as the limit says, and breaks at an odd one.
func (f *fake) ReadFile(_ context.Context, r ReadFileRequest) (*ReadFileReply, error) {
	reply := &ReadFileReply{EOF: true}
	from := io.LimitReader(exes{}, r.Limit)
	if r.Limit%2 == 1 {
		from = io.MultiReader(from, broken{})
	}
	reply.Data.From = io.NopCloser(from)
	return reply, nil
}

type exes struct{}

func (exes) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = 'x'
	}
	return len(p), nil
}

type broken struct{}

func (broken) Read([]byte) (int, error) { return 0, fmt.Errorf("the disk is gone") }

func (f *fake) StatFile(context.Context, PathRequest) (StatFileReply, error) {
	return StatFileReply{Size: 0, Mode: 0o640, MTime: 7}, nil
}

// Terminal echoes in capitals until it reads "bye".
func (f *fake) Terminal(ctx context.Context, _ Caller, r TerminalRequest) (io.ReadWriteCloser, error) {
	if r.Cmd[0] == "fails" {
		return nil, Errorf(CodeSpawnFailed, "fails: not found")
	}
	in, out := io.Pipe()
	context.AfterFunc(ctx, func() { in.Close() })
	return shouting{in, out}, nil
}

type shouting struct {
	*io.PipeReader
	out *io.PipeWriter
}

func (s shouting) Write(p []byte) (int, error) {
	n, err := s.out.Write(bytes.ToUpper(p))
	if bytes.Contains(p, []byte("bye")) {
		s.out.Close()
	}
	return n, err
}

func TestOlderShapes(t *testing.T) {
	p := connected(t, &fake{})
	for _, c := range []struct{ request, want string }{
		{`{"op":"exec","cmd":["x"],"stdin":"aGk="}`, `{"ok":true,"stdout":"o` + "\uFFFD" + `\n","stderr":"","exit_code":3}`},
		{`{"op":"exec","cmd":["fails"]}`, `{"ok":false,"error":"fails: not found"}`},
		{`{"op":"exec","cmd":[],"id":"1"}`, `{"ok":false,"id":"1","error":"cmd must name a program"}`},
		{`{"op":"exec"}`, `{"ok":false,"error":"cmd is missing"}`},
		{`{"op":"write_file","path":"/f","data":"aGk="}`, `{"ok":true}`},
		{`{"op":"write_file","path":"/f"}`, `{"ok":false,"error":"data is missing"}`},
		{`{"op":"write_file","path":"/f","data":"","mode":65536}`, `{"ok":false,"error":"mode must be from 0 to 4095"}`},
		{`{"op":"read_file","path":"/f","limit":4}`, `{"ok":true,"data":"eHh4eA==","eof":true}`},
		{`{"op":"read_file","path":""}`, `{"ok":false,"error":"path must not be empty"}`},
		{`{"op":"stat_file","path":"/f"}`, `{"ok":true,"size":0,"mode":416,"mtime":7}`},
		{`{"op":"pty","cmd":["fails"]}`, `{"ok":false,"error":"fails: not found"}`},
		{`{"op":"proc_kill","handle":"p_1"}`, `{"ok":false,"error":"process not running","code":"not_running"}`},
	} {
		p.send(c.request)
		if got := p.line(); got != c.want {
			t.Errorf("%s\ngot  %s\nwant %s", c.request, got, c.want)
		}
	}
}

// A large reply is sent in pieces that show nowhere in it.
func TestLargeReplies(t *testing.T) {
	p := connected(t, &fake{})
	p.send(`{"op":"exec","cmd":["large"]}`, `{"op":"read_file","path":"/f","limit":10000000}`)
	var exec struct {
		Stdout              string
		TimedOut, Truncated bool
	}
	if err := json.Unmarshal([]byte(p.line()), &exec); err != nil {
		t.Fatal(err)
	}
	if want := string([]rune(string(largeOutput()))); exec.Stdout != want || exec.Truncated {
		t.Errorf("%d characters, want %d", utf8.RuneCountInString(exec.Stdout), utf8.RuneCountInString(want))
	}
	data := p.reply()["data"].(string)
	if b, err := base64.StdEncoding.DecodeString(data); err != nil || !bytes.Equal(b, bytes.Repeat([]byte("x"), 10_000_000)) {
		t.Errorf("%d bytes, %v", len(b), err)
	}
	p.send(`{"op":"read_file","path":"/f","limit":1000001}`)
	p.wantsEnd() // a reply that cannot be completed
}

func TestConnectionBecomesTerminal(t *testing.T) {
	p := connected(t, &fake{})
	p.send(`{"op":"agent_info"}`, `{"op":"pty","cmd":["x"]}`, "typed ahead")
	p.wants(`"agent_version"`, `{"ok":true}`, "TYPED AHEAD")
	p.send(`{"op":"agent_info"}`)
	p.wants(`{"OP":"AGENT_INFO"}`)
	if err := p.CloseWrite(); err != nil {
		t.Fatal(err)
	}
	time.Sleep(20 * time.Millisecond) // the terminal would end meanwhile
	p2 := connected(t, &fake{})
	p2.send(`{"op":"pty","cmd":["x"]}`, "bye")
	p2.wants(`{"ok":true}`, "BYE")
	p2.wantsEnd()
}

func TestTerminalEndsWithTheServer(t *testing.T) {
	s, a := serving(t, &Guest{Backend: &fake{}}, socket(t), 0)
	p := dialed(t, a)
	p.send(`{"op":"pty","cmd":["x"]}`, "hi")
	p.wants(`{"ok":true}`, "HI")
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if err := s.Shutdown(ctx); err != nil {
		t.Error(err)
	}
	p.wantsEnd()
}

func TestWholeCharacters(t *testing.T) {
	text := []byte(strings.Repeat("€", 4))
	for n := range len(text) {
		if n > 2 && wholeCharacters(text, n) != n/3*3 {
			t.Errorf("%d: %d", n, wholeCharacters(text, n))
		}
	}
	if got := wholeCharacters(bytes.Repeat([]byte{0x80}, 9), 5); got != 5 {
		t.Errorf("of what is no text: %d", got)
	}
}
