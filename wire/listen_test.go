package wire

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func TestParseAddr(t *testing.T) {
	for in, want := range map[string]string{
		"unix:/run/a.sock":      "",
		"unix:relative":         "",
		"vsock:18047":           "",
		"vsock:2:1":             "",
		"tcp:127.0.0.1:80":      "",
		"tcp:[::1]:80":          "",
		"tcp:::1:80":            "tcp:[::1]:80",
		"tcp:localhost:80":      "tcp:127.0.0.1:80",
		"tcp:127.3.2.1:0":       "",
		"hybrid:/run/v:x:18047": "",
	} {
		if want == "" {
			want = in
		}
		a, err := ParseAddr(in)
		if err != nil || a.String() != want {
			t.Errorf("%s: got %v, %v", in, a, err)
		}
		if again, err := ParseAddr(a.String()); again != a || err != nil {
			t.Errorf("%s: again %v, %v", in, again, err)
		}
	}
	for _, in := range []string{"", "x", "unix", "unix:", "unix:@x", "unix:" + strings.Repeat("x", 108), "vsock:", "vsock:x", "vsock:-1", "vsock:4294967295",
		"vsock:4294967295:1", "vsock:1:2:3", "tcp:80", "tcp::80", "tcp:0.0.0.0:80", "tcp:10.0.0.1:80", "tcp:example.com:80", "tcp:127.0.0.1:65536",
		"tcp:127.0.0.1:", "tcp:fe80::1%lo:1", "hybrid:/x", "hybrid::5", "hybrid:/x:y", "http://127.0.0.1:80"} {
		if a, err := ParseAddr(in); err == nil || !strings.Contains(err.Error(), fmt.Sprintf("%q", in)) {
			t.Errorf("%q: got %v, %v", in, a, err)
		}
	}
}

func unixAt(t testing.TB) Addr {
	return Addr{Network: Unix, Path: filepath.Join(t.TempDir(), "s")}
}

func TestStaleSocketIsReplaced(t *testing.T) {
	a := unixAt(t)
	first, err := Listen(a, Access{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Listen(a, Access{}); !errors.Is(err, ErrInUse) {
		t.Fatalf("beside a living one: %v", err)
	}
	first.file.Close() // as a crash leaves it
	second, err := Listen(a, Access{})
	if err != nil {
		t.Fatal(err)
	}
	first.Close() // must not remove the other's file
	if _, err := os.Lstat(a.Path); err != nil {
		t.Fatal(err)
	}
	second.Close()
	if _, err := os.Lstat(a.Path); !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
}

func TestFileInTheWayIsKept(t *testing.T) {
	a := unixAt(t)
	if err := os.WriteFile(a.Path, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Listen(a, Access{}); err == nil || !strings.Contains(err.Error(), a.Path) {
		t.Fatal(err)
	}
	if b, err := os.ReadFile(a.Path); string(b) != "x" {
		t.Fatal(err)
	}
}

func TestSocketMode(t *testing.T) {
	for mask, cases := range map[int]map[uint32]os.FileMode{0o777: {0: 0o600, 12345: 0o666}, 0: {0: 0o600, 12345: 0o666}} {
		for uid, want := range cases {
			a := unixAt(t)
			old := unix.Umask(mask)
			l, err := Listen(a, Access{UIDs: []uint32{uid}})
			unix.Umask(old)
			if err != nil {
				t.Fatal(err)
			}
			if info, err := os.Lstat(a.Path); err != nil || info.Mode().Perm() != want {
				t.Errorf("umask %o, uid %d: %v, %v", mask, uid, info.Mode(), err)
			}
			l.Close()
		}
	}
}

// A refused peer is closed before a byte of it is read.
func TestRefusedPeer(t *testing.T) {
	a := unixAt(t)
	l, err := Listen(a, Access{UIDs: []uint32{uint32(os.Geteuid()) + 1}})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	accepted := make(chan error, 1)
	go func() { _, err := l.Accept(); accepted <- err }()
	c := dialed(t, a)
	if n, err := c.Read(make([]byte, 1)); n != 0 || err != io.EOF {
		t.Errorf("%d, %v", n, err)
	}
	l.pause()
	if err := <-accepted; !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("accepted: %v", err)
	}
}

// A listener goes over an execve by its number: the one made of a copy of the
// descriptor accepts what came to the first.
func TestInherit(t *testing.T) {
	a := unixAt(t)
	first, err := Listen(a, Access{})
	if err != nil {
		t.Fatal(err)
	}
	fd, err := first.FD()
	if err != nil {
		t.Fatal(err)
	}
	number, err := unix.Dup(fd)
	if err != nil {
		t.Fatal(err)
	}
	c := dialed(t, a)
	second, err := Inherit(number, a, Access{})
	if err != nil {
		t.Fatal(err)
	}
	first.file.Close()
	served, err := second.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer served.Close()
	c.send("hello")
	if line, err := NewLineReader(served, 100).Next(); string(line) != "hello" {
		t.Fatal(err)
	}
	if flags, _ := unix.FcntlInt(uintptr(number), unix.F_GETFD, 0); flags&unix.FD_CLOEXEC == 0 {
		t.Error("close-on-exec is not set")
	}
	second.Close()
	if _, err := os.Lstat(a.Path); !errors.Is(err, os.ErrNotExist) {
		t.Error("the socket file was left")
	}
	devNull, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer devNull.Close()
	if _, err := Inherit(int(devNull.Fd()), a, Access{}); err == nil {
		t.Error("inherited /dev/null")
	}
}

// On TCP a browser must not get an answer, nor a command through.
func TestTCP(t *testing.T) {
	f := &fake{}
	_, a := serving(t, &Guest{Backend: f}, "tcp:127.0.0.1:0", 0)
	good := dialed(t, a)
	good.send(`{"op":"agent_info"}`)
	good.wants(`"agent_version"`)
	good.send(`not JSON`)
	good.wants("bad JSON")
	browser := dialed(t, a)
	browser.send("POST / HTTP/1.1\r", "\r", `{"op":"proc_start","cmd":["a"]}`)
	browser.wantsEnd()
	if calls := f.seen(); len(calls) > 0 {
		t.Errorf("calls %q", calls)
	}
	until(t, "it is noted", func() bool {
		n := f.noted()
		return len(n) == 3 && n[2].code == CodeBadRequest && strings.HasPrefix(n[2].Peer, "127.0.0.1:")
	})
}

func TestVsock(t *testing.T) {
	const local = unix.VMADDR_CID_LOCAL
	a := Addr{Network: Vsock, CID: unix.VMADDR_CID_ANY, Port: 28047}
	l, err := Listen(a, Access{CIDs: []uint32{local}})
	if err != nil {
		t.Skip(err)
	}
	defer l.Close()
	c, err := Dial(context.Background(), Addr{Network: Vsock, CID: local, Port: a.Port})
	if err != nil {
		t.Skip(err) // no vsock_loopback here
	}
	defer c.Close()
	served, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer served.Close()
	if !strings.HasPrefix(served.PeerName(), "cid=1 port=") {
		t.Error(served.PeerName())
	}
}

// fakeVMM answers CONNECT as Firecracker does.
func fakeVMM(t *testing.T, answer string) Addr {
	t.Helper()
	a := unixAt(t)
	l, err := Listen(a, Access{})
	if err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	t.Cleanup(func() { l.pause(); all.Wait(); l.Close() })
	all.Go(func() {
		c, err := l.Accept()
		if err != nil {
			return
		}
		defer c.Close()
		r := bufio.NewReader(c)
		if line, _ := r.ReadString('\n'); line != "CONNECT 18047\n" {
			t.Errorf("asked %q", line)
		}
		io.WriteString(c, answer)
		io.Copy(io.Discard, r)
	})
	return Addr{Network: Hybrid, Path: a.Path, Port: 18047}
}

func TestHybrid(t *testing.T) {
	c := dialed(t, fakeVMM(t, "OK 1073741824\nhello\n"))
	c.wants("hello")
	c.Close()
	if c, err := Dial(context.Background(), fakeVMM(t, "NO\n")); err == nil || !strings.Contains(err.Error(), "NO") {
		t.Errorf("%v, %v", c, err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
	defer cancel()
	if c, err := Dial(ctx, fakeVMM(t, "OK")); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("%v, %v", c, err)
	}
}

func TestDialNobody(t *testing.T) {
	for _, a := range []Addr{unixAt(t), {Network: TCP, Host: mustAddr(t, "tcp:127.0.0.1:1").Host, Port: 1}} {
		if _, err := Dial(context.Background(), a); err == nil || !strings.Contains(err.Error(), a.String()) {
			t.Errorf("%v: %v", a, err)
		}
	}
}

func mustAddr(t *testing.T, s string) Addr {
	a, err := ParseAddr(s)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func TestMaxConns(t *testing.T) {
	_, a := serving(t, &Guest{Backend: &fake{}}, socket(t), 2)
	first, second := dialed(t, a), dialed(t, a)
	for _, p := range []*peer{first, second} {
		p.send(`{"op":"agent_info"}`)
		p.wants(`"ok":true`)
	}
	third := dialed(t, a)
	third.wants("too many connections")
	third.wantsEnd()
	first.Close()
	until(t, "there is room", func() bool { return hasRoom(t, a) })
}

// hasRoom tells whether a server takes one more connection.
func hasRoom(t *testing.T, a Addr) bool {
	p := dialed(t, a)
	defer p.Close()
	io.WriteString(p, `{"op":"agent_info"}`+"\n")
	line, _ := p.lines.Next()
	return strings.Contains(string(line), `"ok":true`)
}

// A full table of descriptors passes: the server goes on without spinning.
func TestAcceptOutOfDescriptors(t *testing.T) {
	var log syncBuffer
	_, a := serving(t, &Guest{Backend: &fake{}, Log: slog.New(slog.NewTextHandler(&log, nil))}, socket(t), 0)
	p := dialed(t, a)
	p.send(`{"op":"agent_info"}`)
	p.wants(`"ok":true`)
	q, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(q)
	var old unix.Rlimit
	unix.Getrlimit(unix.RLIMIT_NOFILE, &old)
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: 3, Max: old.Max}); err != nil {
		t.Fatal(err)
	}
	_, sa := a.sockaddr()
	err = unix.Connect(q, sa)
	until(t, "it is said once", func() bool { return strings.Contains(log.String(), "cannot accept") })
	time.Sleep(50 * time.Millisecond)
	unix.Setrlimit(unix.RLIMIT_NOFILE, &old)
	if err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(log.String(), "cannot accept"); n != 1 {
		t.Errorf("said %d times", n)
	}
	p = dialed(t, a)
	p.send(`{"op":"agent_info"}`)
	p.wants(`"ok":true`)
}

type syncBuffer struct {
	mu sync.Mutex
	b  strings.Builder
}

func (s *syncBuffer) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *syncBuffer) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

// Shutdown lets what was read be answered, reads nothing more, and the same
// listener then serves another server.
func TestShutdown(t *testing.T) {
	release := make(chan struct{})
	f := &fake{wait: func(context.Context, WaitRequest) (WaitReply, error) {
		<-release
		return WaitReply{Exit{ExitCode: 7}}, nil
	}}
	s, a := serving(t, &Guest{Backend: f}, socket(t), 0)
	waiting, idle := dialed(t, a), dialed(t, a)
	waiting.send(`{"op":"proc_wait","handle":"p"}`, `{"op":"agent_info"}`)
	idle.send(`{"op":"agent_info"}`)
	idle.wants(`"ok":true`)
	until(t, "it waits", func() bool { return len(f.seen()) == 1 })
	down := make(chan error)
	go func() { down <- s.Shutdown(context.Background()) }()
	idle.wantsEnd()
	close(release)
	waiting.wants(`"exit_code":7`, `"agent_version"`)
	waiting.wantsEnd()
	if err := <-down; err != nil {
		t.Error(err)
	}
	late := dialed(t, a) // waits in the backlog
	late.send(`{"op":"agent_info"}`)
	ctx, cancel := context.WithCancel(context.Background())
	again := NewServer(&Guest{Backend: f}, s.listeners, 0, slog.New(slog.DiscardHandler))
	go again.Serve(ctx)
	late.wants(`"agent_version"`)
	cancel()
	<-again.done
}

// Shutdown does not wait for a peer that does not read, nor for a verb that
// does not end, longer than it may.
func TestShutdownIsBounded(t *testing.T) {
	f := &fake{wait: func(ctx context.Context, _ WaitRequest) (WaitReply, error) {
		<-ctx.Done()
		return WaitReply{}, ctx.Err()
	}, logs: func(_ context.Context, _ LogsRequest, reply *LogsReply) error {
		reply.Stdout = append(reply.Stdout, strings.Repeat("x", 4<<20)...)
		return nil
	}}
	s, a := serving(t, &Guest{Backend: f}, socket(t), 0)
	waiting, deaf := dialed(t, a), dialed(t, a)
	waiting.send(`{"op":"proc_wait","handle":"p"}`)
	deaf.send(`{"op":"proc_logs","handle":"p"}`)
	until(t, "both are served", func() bool { return len(f.seen()) == 1 && len(f.noted()) == 1 })
	ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
	defer cancel()
	began := time.Now()
	if err := s.Shutdown(ctx); !errors.Is(err, context.DeadlineExceeded) || time.Since(began) > time.Second {
		t.Errorf("%v after %v", err, time.Since(began))
	}
}
