package wire

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// fake is a Backend whose verbs can be replaced; it remembers what was noted
// and what called.
type fake struct {
	mu    sync.Mutex
	notes []note
	calls []string

	stdin func(context.Context, StdinRequest) (StdinReply, error)
	wait  func(context.Context, WaitRequest) (WaitReply, error)
	logs  func(context.Context, LogsRequest, *LogsReply) error
	info  func() InfoReply
}

type note struct {
	Caller
	handle string
	code   Code
	rule   string
}

func (f *fake) called(format string, args ...any) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.calls = append(f.calls, fmt.Sprintf(format, args...))
}

func (f *fake) seen() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.calls)
}

func (f *fake) noted() []note {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.notes)
}

func (f *fake) Start(_ context.Context, _ Caller, r StartRequest) (StartReply, error) {
	f.called("start %q", r.Cmd)
	return StartReply{Handle: "p_1", PID: 42}, nil
}

func (f *fake) Stdin(ctx context.Context, _ Caller, r StdinRequest) (StdinReply, error) {
	f.called("stdin %s %s", r.Handle, r.Data)
	if f.stdin != nil {
		return f.stdin(ctx, r)
	}
	return StdinReply{Written: len(r.Data)}, nil
}

func (f *fake) Signal(_ context.Context, _ Caller, r SignalRequest) (Ack, error) {
	f.called("signal %+v", r)
	return Ack{}, nil
}

func (f *fake) Kill(context.Context, Caller, HandleRequest) (Ack, error) {
	return Ack{}, Errorf(CodeNotRunning, "process not running")
}

func (f *fake) Resize(_ context.Context, _ Caller, r ResizeRequest) (Ack, error) {
	f.called("resize %s %dx%d", r.Handle, r.Cols, r.Rows)
	return Ack{}, nil
}

func (f *fake) Upgrade(_ context.Context, _ Caller, r UpgradeRequest) (UpgradeReply, error) {
	f.called("upgrade %+v", r)
	return UpgradeReply{AgentVersion: "2"}, nil
}

func (f *fake) Info() InfoReply {
	if f.info != nil {
		return f.info()
	}
	return InfoReply{AgentVersion: "1", Caps: []string{"proc", "ids"}, PID: 1, Journal: "ok"}
}

func (f *fake) List() ListReply { return ListReply{Procs: []Proc{{Handle: "p_1", Running: true}}} }

func (f *fake) Logs(ctx context.Context, r LogsRequest, reply *LogsReply) error {
	if f.logs != nil {
		return f.logs(ctx, r, reply)
	}
	reply.Stdout = append(reply.Stdout, "out"...)
	return nil
}

func (f *fake) Wait(ctx context.Context, r WaitRequest) (WaitReply, error) {
	f.called("wait %s %d", r.Handle, r.TimeoutMS)
	if f.wait != nil {
		return f.wait(ctx, r)
	}
	return WaitReply{Exit{Running: true, TimedOut: true}}, nil
}

func (f *fake) JournalRead(context.Context, JournalReadRequest) (JournalReadReply, error) {
	return JournalReadReply{Records: [][]byte{[]byte(`{"seq":1}`)}, HeadSeq: 1, FirstSeq: 1}, nil
}

func (f *fake) JournalInfo() (JournalInfoReply, error) { return JournalInfoReply{HeadSeq: 1}, nil }

func (f *fake) JournalSnapshot(r JournalSnapshotRequest) (JournalSnapshotReply, error) {
	return JournalSnapshotReply{Seq: 1, Size: 3, Data: []byte("abc")[min(r.Offset, 3):]}, nil
}

func (f *fake) Note(c Caller, handle string, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.notes = append(f.notes, note{c, handle, CodeOf(err), RuleOf(err)})
}

// until polls a condition; it fails the test after five seconds.
func until(t testing.TB, what string, condition func() bool) {
	t.Helper()
	for deadline := time.Now().Add(5 * time.Second); !condition(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			buf := make([]byte, 1<<20)
			t.Fatalf("never: %s\n%s", what, buf[:runtime.Stack(buf, true)])
		}
	}
}

// serving runs a server on one listener for the length of a test, and checks
// that it leaves neither a goroutine nor a descriptor.
func serving(t testing.TB, g *Guest, addr string, maxConns int) (*Server, Addr) {
	t.Helper()
	if g.Log == nil {
		g.Log = slog.New(slog.DiscardHandler)
	}
	return servingFront(t, g, addr, maxConns, g.Log)
}

func servingFront(t testing.TB, front Front, addr string, maxConns int, log *slog.Logger) (*Server, Addr) {
	t.Helper()
	goroutines, files := runtime.NumGoroutine(), openFiles(t)
	a, err := ParseAddr(addr)
	if err != nil {
		t.Fatal(err)
	}
	l, err := Listen(a, Access{})
	if err != nil {
		t.Fatal(err)
	}
	s := NewServer(front, []*Listener{l}, maxConns, log)
	ctx, cancel := context.WithCancel(context.Background())
	go s.Serve(ctx)
	t.Cleanup(func() {
		cancel()
		<-s.done
		if err := l.Close(); err != nil {
			t.Error(err)
		}
		until(t, "the goroutines are gone", func() bool { return runtime.NumGoroutine() <= goroutines })
		until(t, "the descriptors are gone", func() bool { return openFiles(t) <= files })
	})
	return s, l.Addr()
}

func openFiles(t testing.TB) int {
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(entries)
}

func socket(t testing.TB) string { return "unix:" + filepath.Join(t.TempDir(), "s") }

// peer is the other end, as raw as a stranger's.
type peer struct {
	*Conn
	t     testing.TB
	lines *LineReader
}

func dialed(t testing.TB, a Addr) *peer {
	t.Helper()
	c, err := Dial(context.Background(), a)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	c.SetReadDeadline(time.Now().Add(10 * time.Second))
	return &peer{c, t, NewLineReader(c, 64<<20)}
}

func connected(t testing.TB, b Backend) *peer {
	t.Helper()
	_, a := serving(t, &Guest{Backend: b}, socket(t), 0)
	return dialed(t, a)
}

func (p *peer) send(lines ...string) {
	p.t.Helper()
	if _, err := io.WriteString(p, strings.Join(lines, "\n")+"\n"); err != nil {
		p.t.Fatal(err)
	}
}

func (p *peer) line() string {
	p.t.Helper()
	line, err := p.lines.Next()
	if err != nil {
		p.t.Fatal(err)
	}
	return string(line)
}

func (p *peer) reply() (m map[string]any) {
	p.t.Helper()
	line := p.line()
	if err := json.Unmarshal([]byte(line), &m); err != nil {
		p.t.Fatalf("%s: %v", line, err)
	}
	return m
}

// wants checks that the next replies hold these pieces, in order.
func (p *peer) wants(pieces ...string) {
	p.t.Helper()
	for _, piece := range pieces {
		if line := p.line(); !strings.Contains(line, piece) {
			p.t.Fatalf("got %.300s\nwant %s", line, piece)
		}
	}
}

func (p *peer) wantsEnd() {
	p.t.Helper()
	if line, err := p.lines.Next(); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		p.t.Fatalf("got %q, %v; want the end", line, err)
	}
}
