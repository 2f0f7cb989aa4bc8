package wire

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"supervisor/internal/testproc"
)

// FuzzConversation: whatever a peer sends, each of its lines gets one reply, and
// no request panics.
func FuzzConversation(f *testing.F) {
	for op := range verbs {
		f.Add([]byte(`{"op":"` + op + `","handle":"p","signal":9,"cols":1,"rows":2,"cmd":["a"],"data":"YWJj","path":"/","sha256":"0"}` + "\r\n\n[]\n"))
	}
	for op := range olderVerbs {
		f.Add([]byte(`{"op":"` + op + `","cmd":["a"],"data":"YWJj","path":"/","id":"1"}` + "\n" + `{"op":"proc_wait","handle":"p","id":"1"}` + "\n{"))
	}
	f.Fuzz(func(t *testing.T, in []byte) {
		var replies []byte
		// What is served concurrently holds a buffer each.
		testproc.AllocatesLike(t, in, 8<<10, func() { replies = conversed(t, in) })
		var took int
		for line := range bytes.Lines(replies) {
			var reply struct {
				OK   *bool
				Code Code
			}
			if err := json.Unmarshal(line, &reply); err != nil || reply.OK == nil || reply.Code == CodeInternal {
				t.Fatalf("%q is answered %q", in, line)
			}
			took++
		}
		if want := toAnswer(in); took != want {
			t.Fatalf("%d replies to the %d lines of %q", took, want, in)
		}
	})
}

// withoutTerminals has no connection become a terminal, which has no lines.
type withoutTerminals struct{ *fake }

func (withoutTerminals) Terminal(context.Context, Caller, TerminalRequest) (io.ReadWriteCloser, error) {
	return nil, Errorf(CodeSpawnFailed, "no terminals here")
}

// toAnswer counts what is to be answered: also a last line without its end, by a
// refusal.
func toAnswer(in []byte) (n int) {
	for line := range bytes.Lines(in) {
		if !blank(bytes.TrimSuffix(line, []byte("\n"))) {
			n++
		}
	}
	return n
}

// conversed is what a peer gets that sends all of in and closes its half.
func conversed(t *testing.T, in []byte) []byte {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	near, err := newConn(fds[0], Unix, "fuzz")
	if err != nil {
		t.Fatal(err)
	}
	far, err := newConn(fds[1], Unix, "fuzz")
	if err != nil {
		t.Fatal(err)
	}
	defer far.Close()
	g := &Guest{Backend: withoutTerminals{&fake{}}, Log: slog.New(slog.DiscardHandler)}
	go g.ServeConn(context.Background(), context.Background(), near)
	go func() {
		_, _ = far.Write(in) // the agent may hang up first
		_ = far.CloseWrite()
	}()
	replies, err := io.ReadAll(far)
	if err != nil && !strings.Contains(err.Error(), "connection reset") {
		t.Fatal(err)
	}
	return replies
}
