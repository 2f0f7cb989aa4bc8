package engine

import (
	"cmp"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"sync/atomic"

	"supervisor/procs"
	"supervisor/statemachine"
	"supervisor/wire"
)

var _ wire.SessionBackend = (*Engine)(nil)

// liveSession is a session of the registry and what the agent front keeps of
// it.
type liveSession struct {
	hash    string
	session *wire.Session
}

// agentRow is the part of a row that the agent front alone looks at.
type agentRow struct {
	procID, reqID     string
	startedNS         int64
	killed, delivered bool
}

func agentRowOf(p *statemachine.Process) agentRow {
	return agentRow{p.Spec.ProcID, p.Spec.ReqID, p.StartedAt.Wall, p.Killed, p.Delivered}
}

// life is what all rows of one process share. Who holds it learns how the
// process ended even when its record is forgotten meanwhile.
type life struct{ newest atomic.Pointer[row] }

// setAgent keeps what the agent front finds processes by. Called with mu held.
func (v *view) setAgent(old, next *row) {
	switch {
	case next == nil && old != nil:
		delete(v.procIDs, old.agent.procID)
	case next != nil:
		next.life = &life{}
		if old != nil {
			next.life = old.life
		}
		next.life.newest.Store(next)
		if next.agent.procID != "" {
			v.procIDs[next.agent.procID] = next.proc.Handle
		}
	}
}

// publishSessions shows the sessions that records opened.
func (v *view) publishSessions(records []*statemachine.Record) {
	for _, r := range records {
		if opened, ok := r.Event.(*statemachine.SessionOpened); ok {
			v.addSession(opened.Hash, wire.SessionCursor{Name: opened.Session})
		}
	}
}

func (v *view) addSession(hash string, c wire.SessionCursor) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.sessions[c.Name] = &liveSession{hash, wire.NewSession(c)}
}

// recoverSessions goes on with the sessions of an earlier image. None of them
// has a connection.
func (e *Engine) recoverSessions() {
	var left []step
	names := map[string]bool{}
	for _, s := range e.registry.Sessions() {
		names[s.Name] = true
		e.view.addSession(s.Hash, e.cursors.load(s.Name))
		left = append(left, step{command: statemachine.LeaveSession{Name: s.Name}})
	}
	e.turn(left)
	e.logError("removing cursors of closed sessions", e.cursors.keep(names))
}

func (e *Engine) forgetSession(name string) {
	e.view.mu.Lock()
	delete(e.view.sessions, name)
	e.view.mu.Unlock()
	e.cursors.remove(name)
}

// OpenSession implements wire.SessionBackend.
func (e *Engine) OpenSession(ctx context.Context, caller wire.Caller, id wire.SessionID) (*wire.Session, error) {
	c := newCall(caller, "")
	c.anyway = true
	err := e.change(ctx, c, statemachine.OpenSession(id))
	if err == nil && c.unjournaled {
		// It is open, and nobody will ever know its secret.
		e.LeaveSession(id.Name)
		err = wire.Errorf(wire.CodeJournalFailed, "the journal cannot record it")
	}
	if err != nil {
		return nil, err
	}
	return e.FindSession(id), nil
}

// FindSession implements wire.SessionBackend.
func (e *Engine) FindSession(id wire.SessionID) *wire.Session {
	e.view.mu.RLock()
	defer e.view.mu.RUnlock()
	if s := e.view.sessions[id.Name]; s != nil && s.hash == id.Hash {
		return s.session
	}
	return nil
}

// ResumeSession implements wire.SessionBackend.
func (e *Engine) ResumeSession(ctx context.Context, caller wire.Caller, id wire.SessionID) error {
	c := newCall(caller, "")
	c.anyway = true
	return e.change(ctx, c, statemachine.ResumeSession(id))
}

// change is do for what has no effect: its verb is journaled with it.
func (e *Engine) change(ctx context.Context, c *call, cmd statemachine.Command) error {
	if err := e.gate.why(); err != nil {
		e.verbs.add(c.caller, c.handle, err)
		return err
	}
	return e.submit(ctx, step{command: cmd, call: c, final: true})
}

// LeaveSession implements wire.SessionBackend.
func (e *Engine) LeaveSession(name string) {
	e.observed.addStep(step{command: statemachine.LeaveSession{Name: name}})
}

// Delivered implements wire.SessionBackend. Steps that are told go before the
// requests of a turn, so a later start sees it.
func (e *Engine) Delivered(handle string) {
	e.observed.addStep(step{command: statemachine.Deliver{Handle: handle}})
}

// Keep implements wire.SessionBackend.
func (e *Engine) Keep(c wire.SessionCursor) {
	e.logError("keeping a session's cursor", e.cursors.save(c))
}

// Spawn implements wire.SessionBackend.
func (e *Engine) Spawn(ctx context.Context, caller wire.Caller, r wire.SpawnRequest) (wire.SessionProc, error) {
	path, err := executable(r.Cmd[0])
	if err != nil {
		e.verbs.add(caller, "", err)
		return nil, err
	}
	c := newCall(caller, newHandle())
	spec := procs.Spec{Argv: r.Cmd, Path: path, Cwd: r.Cwd, Env: mergeEnv(e.environ, r.Env), StdinNull: r.StdinNull}
	c.spawn = func() { e.table.Start(c.handle, spec) }
	here, _ := os.Getwd() // without one the start fails by itself
	err = e.do(ctx, c, statemachine.Start{Handle: c.handle, Spec: statemachine.Spec{
		Cmd: r.Cmd, Cwd: cmp.Or(r.Cwd, here), EnvNames: envNames(r.Env), TimeoutMS: r.TimeoutMS, StdinNull: r.StdinNull,
		Session: r.Session, ProcID: r.ProcID, ReqID: r.ReqID,
	}})
	if err != nil {
		return nil, err
	}
	return sessionProc{e, c.row.life}, nil
}

// executable finds an allowed command on the agent's own PATH, never on one
// that a request could name, and never in a directory that it could choose.
func executable(name string) (string, error) {
	path, err := exec.LookPath(name)
	if err == nil {
		path, err = filepath.Abs(path)
	}
	if err != nil {
		return "", wire.Errorf(wire.CodeSpawnFailed, "%s", err)
	}
	return path, nil
}

// Terminate implements wire.SessionBackend.
func (e *Engine) Terminate(ctx context.Context, caller wire.Caller, handle string, signal int) error {
	c := newCall(caller, handle)
	c.anyway = true
	return e.do(ctx, c, statemachine.Terminate{Handle: handle, Signal: signal})
}

// SessionProc implements wire.SessionBackend.
func (e *Engine) SessionProc(session, procID string) wire.SessionProc {
	e.view.mu.RLock()
	defer e.view.mu.RUnlock()
	if r := e.view.rows[e.view.procIDs[procID]]; r != nil && r.proc.Session == session {
		return sessionProc{e, r.life}
	}
	return nil
}

// SessionProcs implements wire.SessionBackend.
func (e *Engine) SessionProcs(session string) []wire.SessionProc {
	var out []wire.SessionProc
	for _, r := range e.view.all() {
		if r.proc.Session == session {
			out = append(out, sessionProc{e, r.life})
		}
	}
	return out
}

// sessionProc is a process as the agent front sees it.
type sessionProc struct {
	e    *Engine
	life *life
}

// Row implements wire.SessionProc.
func (p sessionProc) Row() wire.SessionRow {
	r := p.life.newest.Load()
	return wire.SessionRow{
		Proc: r.proc, ProcID: r.agent.procID, ReqID: r.agent.reqID, StartedNS: r.agent.startedNS,
		Killed: r.agent.killed, Delivered: r.agent.delivered, Replaced: r.replaced,
	}
}

// Output implements wire.SessionProc.
func (p sessionProc) Output(stream int) wire.Output {
	return p.e.stream(p.life.newest.Load(), procs.Stream(stream))
}
