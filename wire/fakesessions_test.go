package wire

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"testing"
)

// house is a SessionBackend whose processes say what a test lets them say. It
// remembers what called it, and the newest cursor.
type house struct {
	fake
	mu     sync.Mutex
	open   map[SessionID]*Session
	procs  []*inmate
	cursor SessionCursor
}

// inmate is a process of a session.
type inmate struct {
	session string
	streams [2]growing

	mu       sync.Mutex
	row      SessionRow
	replaced chan struct{}
}

func (p *inmate) Output(stream int) Output { return &p.streams[stream] }

func (p *inmate) Row() SessionRow {
	p.mu.Lock()
	defer p.mu.Unlock()
	r := p.row
	r.Replaced = p.replaced
	return r
}

func (p *inmate) become(change func(r *SessionRow)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	change(&p.row)
	close(p.replaced)
	p.replaced = make(chan struct{})
}

// exit ends the process and its streams.
func (p *inmate) exit(code int, reason string) {
	for i := range p.streams {
		p.streams[i].say("", true)
	}
	p.become(func(r *SessionRow) { r.Running, r.ExitCode, r.Reason = false, code, reason })
}

// growing is a stream that goes on.
type growing struct {
	mu      sync.Mutex
	stream  stream
	changed chan struct{}
}

func (g *growing) locked() func() {
	g.mu.Lock()
	return g.mu.Unlock
}

func (g *growing) End() int64  { defer g.locked()(); return g.stream.End() }
func (g *growing) Ended() bool { defer g.locked()(); return g.stream.over }

func (g *growing) ReadAt(dst []byte, off int64) (int, int64, error) {
	defer g.locked()()
	return g.stream.ReadAt(dst, off)
}

func (g *growing) Changed() <-chan struct{} {
	defer g.locked()()
	if g.changed == nil {
		g.changed = make(chan struct{})
	}
	return g.changed
}

func (g *growing) say(text string, over bool) {
	defer g.locked()()
	g.stream.bytes, g.stream.over = append(g.stream.bytes, text...), over
	if g.changed != nil {
		close(g.changed)
		g.changed = nil
	}
}

func (h *house) OpenSession(_ context.Context, _ Caller, id SessionID) (*Session, error) {
	h.called("open")
	h.mu.Lock()
	defer h.mu.Unlock()
	s := NewSession(SessionCursor{Name: id.Name})
	h.open[id] = s
	return s, nil
}

func (h *house) FindSession(id SessionID) *Session {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.open[id]
}

func (h *house) ResumeSession(context.Context, Caller, SessionID) error {
	h.called("resume")
	return nil
}

func (h *house) LeaveSession(string) { h.called("leave") }

func (h *house) Spawn(_ context.Context, _ Caller, r SpawnRequest) (SessionProc, error) {
	h.called("spawn %q in %q with %q, null %v, %d ms", r.Cmd, r.Cwd, r.Env, r.StdinNull, r.TimeoutMS)
	h.mu.Lock()
	defer h.mu.Unlock()
	p := &inmate{session: r.Session, replaced: make(chan struct{})}
	handle := fmt.Sprintf("p_%d", len(h.procs)+1)
	p.row = SessionRow{Proc: Proc{Handle: handle, PID: 42, Cmd: r.Cmd, Running: true}, ProcID: r.ProcID, ReqID: r.ReqID}
	h.procs = append(h.procs, p)
	return p, nil
}

func (h *house) Terminate(_ context.Context, _ Caller, handle string, signal int) error {
	h.called("signal %s %d", handle, signal)
	for _, p := range h.procs {
		if p.row.Handle == handle && !p.Row().Running {
			return Errorf(CodeNotRunning, "process not running")
		}
	}
	return nil
}

func (h *house) SessionProc(session, procID string) SessionProc {
	for _, p := range h.SessionProcs(session) {
		if p.Row().ProcID == procID {
			return p
		}
	}
	return nil
}

func (h *house) SessionProcs(session string) (out []SessionProc) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, p := range h.procs {
		if p.session == session {
			out = append(out, p)
		}
	}
	return out
}

func (h *house) Delivered(handle string) {
	p := h.proc(handle)
	kept := slices.Contains(h.kept().Procs, ProcCursor{p.Row().ProcID, [2]int64{p.streams[0].End(), p.streams[1].End()}, true})
	h.called("delivered %s, kept %v", handle, kept)
	p.become(func(r *SessionRow) { r.Delivered = true })
}

func (h *house) Keep(c SessionCursor) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.cursor = c
}

func (h *house) kept() SessionCursor {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.cursor
}

func (h *house) proc(handle string) *inmate {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, p := range h.procs {
		if p.row.Handle == handle {
			return p
		}
	}
	return nil
}

// agentFront serves a house for the length of a test.
func agentFront(t testing.TB) (*house, Addr) {
	t.Helper()
	h := &house{open: map[SessionID]*Session{}}
	front := &A2E{Backend: h, Policy: Policy{Commands: []string{"sh"}}, Log: slog.New(slog.DiscardHandler)}
	_, a := servingFront(t, front, socket(t), 0, front.Log)
	return h, a
}
