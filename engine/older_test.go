package engine

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"supervisor/statemachine"
	"supervisor/wire"
)

func (a *agent) exec(r wire.ExecRequest) wire.ExecReply {
	a.t.Helper()
	reply, err := a.Exec(context.Background(), caller("exec"), r)
	if err != nil {
		a.t.Fatal(err)
	}
	return reply
}

func shell(script string) []string { return []string{"/bin/sh", "-c", script} }

func TestExec(t *testing.T) {
	a := newAgent(t)
	for _, c := range []struct {
		r              wire.ExecRequest
		code           int
		timedOut       bool
		stdout, stderr string
	}{
		{r: wire.ExecRequest{Cmd: shell("cat; echo e >&2; exit 3"), Stdin: []byte("in")}, code: 3, stdout: "in", stderr: "e\n"},
		{r: wire.ExecRequest{Cmd: shell("kill -9 $$")}, code: -1},
		{r: wire.ExecRequest{Cmd: shell("kill -15 $$")}, code: -1},
		{r: wire.ExecRequest{Cmd: shell("exit 143")}, code: 143},
		{r: wire.ExecRequest{Cmd: shell("echo part; sleep 63 & sleep 63"), TimeoutMS: 200}, code: -1, timedOut: true, stdout: "part\n"},
		{r: wire.ExecRequest{Cmd: shell("pwd; echo $V"), Env: []string{"V=v"}}, stdout: "/\nv\n"},
		{r: wire.ExecRequest{Cmd: shell("cat"), TimeoutMS: 1 << 62}},
	} {
		got := a.exec(c.r)
		if string(got.Stdout) != c.stdout || string(got.Stderr) != c.stderr ||
			got.ExitCode != c.code || got.TimedOut != c.timedOut || got.Truncated {
			t.Errorf("%q: %+v", c.r.Cmd, got)
		}
	}
	if n := len(a.List().Procs); n != 0 {
		t.Errorf("%d rows in the registry", n)
	}
	var failed *wire.Error
	_, err := a.Exec(context.Background(), caller("exec"), wire.ExecRequest{Cmd: []string{"/no/such"}})
	if !errors.As(err, &failed) || failed.Code != wire.CodeSpawnFailed || !strings.Contains(failed.Message, "/no/such") {
		t.Errorf("no such program: %v", err)
	}
}

// At most 8 MiB of a stream are kept; the program itself never notices.
func TestExecTruncates(t *testing.T) {
	a := newAgent(t)
	r := a.exec(wire.ExecRequest{Cmd: shell("head -c 9000000 /dev/zero; echo done >&2; exit 4")})
	if len(r.Stdout) != wire.MaxExecOutput || !r.Truncated || string(r.Stderr) != "done\n" || r.ExitCode != 4 {
		t.Errorf("%d bytes, truncated %v, %q, code %d", len(r.Stdout), r.Truncated, r.Stderr, r.ExitCode)
	}
	r = a.exec(wire.ExecRequest{Cmd: shell("head -c 8388608 /dev/zero")})
	if len(r.Stdout) != wire.MaxExecOutput || r.Truncated {
		t.Errorf("exactly the limit: %d bytes, truncated %v", len(r.Stdout), r.Truncated)
	}
	noRoom := func(int64) bool { return false }
	if r := a.exec(wire.ExecRequest{Cmd: shell("echo x"), Room: noRoom}); len(r.Stdout) != 0 || !r.Truncated {
		t.Errorf("without memory: %+v", r)
	}
}

// What runs for an older verb ends when its peer leaves or the agent stops.
func TestAttendedEnds(t *testing.T) {
	a := newAgent(t)
	ctx, cancel := context.WithCancel(context.Background())
	time.AfterFunc(100*time.Millisecond, cancel)
	if _, err := a.Exec(ctx, caller("exec"), wire.ExecRequest{Cmd: shell("sleep 64")}); !errors.Is(err, context.Canceled) {
		t.Errorf("the peer left: %v", err)
	}
	terminal, err := a.Terminal(context.Background(), caller("pty"), wire.TerminalRequest{Cmd: shell("echo hi; sleep 64")})
	if err != nil {
		t.Fatal(err)
	}
	defer terminal.Close()
	time.AfterFunc(200*time.Millisecond, a.Quiesce)
	if _, err := a.Exec(context.Background(), caller("exec"), wire.ExecRequest{Cmd: shell("sleep 64")}); err != errShuttingDown {
		t.Errorf("the agent stopped: %v", err)
	}
	if all, err := io.ReadAll(terminal); err != nil || !strings.HasPrefix(string(all), "hi\r\n") {
		t.Errorf("terminal: %q, %v", all, err)
	}
	if _, err := a.Exec(context.Background(), caller("exec"), wire.ExecRequest{Cmd: shell("true")}); err != errShuttingDown {
		t.Errorf("later: %v", err)
	}
}

// Each older verb is in the journal, and nothing of what it was given.
func TestOlderVerbsAreRecorded(t *testing.T) {
	a := newAgent(t)
	const secret = "s3cr3t"
	a.exec(wire.ExecRequest{Cmd: shell("cat >/dev/null"), Stdin: []byte(secret), Env: []string{"V=" + secret}})
	file := wire.WriteFileRequest{Path: filepath.Join(t.TempDir(), "f"), Data: []byte(secret)}
	if err := a.WriteFile(context.Background(), caller("write_file"), file); err != nil {
		t.Fatal(err)
	}
	a.close()
	var ops []string
	for _, r := range a.records(statemachine.KindVerb) {
		ops = append(ops, r.Event.(*statemachine.Verb).Op)
	}
	if got := strings.Join(ops, " "); got != "exec write_file" {
		t.Errorf("recorded: %s", got)
	}
	if b, err := os.ReadFile(a.path()); err != nil || bytes.Contains(b, []byte(secret)) {
		t.Errorf("the journal holds a secret (%v)", err)
	}
}

func TestWriteFile(t *testing.T) {
	a := newAgent(t)
	path := filepath.Join(t.TempDir(), "f")
	write := func(r wire.WriteFileRequest) error {
		r.Path = path
		return a.WriteFile(context.Background(), caller("write_file"), r)
	}
	for _, c := range []struct {
		r    wire.WriteFileRequest
		want string
		mode os.FileMode
	}{
		{wire.WriteFileRequest{Data: []byte("one")}, "one", 0o644},
		{wire.WriteFileRequest{Data: []byte("two"), Append: true}, "onetwo", 0o644},
		{wire.WriteFileRequest{Data: []byte("three"), Mode: 0o4711}, "three", 0o711 | os.ModeSetuid},
		{wire.WriteFileRequest{}, "", 0o711}, // writing takes the set-user-ID bit
	} {
		if err := write(c.r); err != nil {
			t.Fatal(err)
		}
		b, _ := os.ReadFile(path)
		info, err := os.Stat(path)
		if err != nil || string(b) != c.want || info.Mode().Perm() != c.mode.Perm() {
			t.Errorf("%+v: %q, %v, %v", c.r, b, info.Mode(), err)
		}
	}
	if err := a.WriteFile(context.Background(), caller("write_file"), wire.WriteFileRequest{Path: "/proc/self/exe"}); err == nil || !strings.Contains(err.Error(), "text file busy") {
		t.Errorf("over the running binary: %v", err)
	}
	fifo := filepath.Join(t.TempDir(), "fifo")
	if err := unix.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := a.WriteFile(context.Background(), caller("write_file"), wire.WriteFileRequest{Path: fifo}); err == nil {
		t.Error("a pipe that nobody reads was written")
	}
}

// A program can be executed as soon as it was written, whatever is being
// started meanwhile.
func TestWrittenProgramRuns(t *testing.T) {
	a := newAgent(t)
	image, err := os.ReadFile("/bin/true")
	if err != nil {
		t.Fatal(err)
	}
	stop := make(chan struct{})
	defer close(stop)
	for range 2 {
		go func() {
			for {
				select {
				case <-stop:
					return
				default:
					_, _ = a.Exec(context.Background(), caller("exec"), wire.ExecRequest{Cmd: []string{"true"}})
				}
			}
		}()
	}
	path := filepath.Join(t.TempDir(), "true")
	for range 100 {
		err := a.WriteFile(context.Background(), caller("write_file"), wire.WriteFileRequest{Path: path, Data: image, Mode: 0o755})
		if err != nil {
			t.Fatal(err)
		}
		if r := a.exec(wire.ExecRequest{Cmd: []string{path}}); r.ExitCode != 0 {
			t.Fatalf("%+v", r)
		}
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
	}
}

func (a *agent) read(r wire.ReadFileRequest) (string, bool, error) {
	reply, err := a.ReadFile(context.Background(), r)
	if err != nil {
		return "", false, err
	}
	defer reply.Data.From.Close()
	b, err := io.ReadAll(reply.Data.From)
	return string(b), reply.EOF, err
}

func TestReadFile(t *testing.T) {
	a := newAgent(t)
	path := filepath.Join(t.TempDir(), "f")
	if err := os.WriteFile(path, []byte("0123456789"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		offset, limit int64
		want          string
		eof           bool
	}{
		{0, 0, "0123456789", true}, {0, 4, "0123", false}, {4, 5, "45678", false}, {4, 6, "456789", true},
		{8, 5, "89", true}, {10, 5, "", true}, {1 << 40, 5, "", true}, {9, 0, "9", true},
	} {
		if got, eof, err := a.read(wire.ReadFileRequest{Path: path, Offset: c.offset, Limit: c.limit}); got != c.want || eof != c.eof || err != nil {
			t.Errorf("%d bytes from %d: %q, %v, %v", c.limit, c.offset, got, eof, err)
		}
	}
	for _, bad := range []string{"/no/such", filepath.Dir(path)} {
		if _, _, err := a.read(wire.ReadFileRequest{Path: bad}); err == nil || !strings.Contains(err.Error(), bad) {
			t.Errorf("%s: %v", bad, err)
		}
	}
	if got, _, err := a.read(wire.ReadFileRequest{Path: "/proc/self/stat"}); got == "" || err != nil {
		t.Errorf("a file without a size: %q, %v", got, err)
	}
}

func TestStatFile(t *testing.T) {
	a := newAgent(t)
	dir := t.TempDir()
	if err := os.Chmod(dir, 0o710); err != nil {
		t.Fatal(err)
	}
	r, err := a.StatFile(context.Background(), wire.PathRequest{Path: dir})
	if err != nil || !r.IsDir || r.Mode != 0o710 || time.Since(time.Unix(r.MTime, 0)) > time.Minute {
		t.Errorf("%+v, %v", r, err)
	}
	if _, err := a.StatFile(context.Background(), wire.PathRequest{Path: "/no/such"}); err == nil || !strings.Contains(err.Error(), "/no/such") {
		t.Errorf("no such file: %v", err)
	}
}
