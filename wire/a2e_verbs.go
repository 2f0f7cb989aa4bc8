package wire

import (
	"cmp"
	"context"
	"math"
	"time"
)

// handshake opens or resumes a session. What is pushed comes behind the reply.
func (v *conversation) handshake(x *exchange) (Message, error) {
	r := x.request.(*A2EHandshake)
	open := v.resume
	if r.SessionID == "" {
		open, r.SessionID = v.open, secret()
	}
	if err := open(x, identify(r.SessionID)); err != nil {
		return nil, err
	}
	v.secret = r.SessionID
	x.replied = func() { v.push(r.LastSeq) }
	return &A2EHello{SessionID: r.SessionID, Capabilities: []string{"proc"}}, nil
}

func (v *conversation) open(x *exchange, id SessionID) error {
	s, err := v.a2e.Backend.OpenSession(x.ctx, x.caller, id)
	if err != nil {
		return err
	}
	s.turn.Lock()
	defer s.turn.Unlock()
	v.take(s)
	return nil
}

// resume takes a session over, from the connection that has it or from none.
// The session's turn makes the order of leaving and resuming the same here and
// in the registry.
func (v *conversation) resume(x *exchange, id SessionID) error {
	s := v.a2e.Backend.FindSession(id)
	if s == nil {
		x.unheard = true
		return Errorf(CodeUnknownSession, "there is no such session").by(ruleSession)
	}
	s.turn.Lock()
	defer s.turn.Unlock()
	if err := v.a2e.Backend.ResumeSession(x.ctx, x.caller, id); err != nil {
		return err
	}
	v.take(s)
	return nil
}

// take makes the session this conversation's; an older one is cut off. Called
// with the session's turn held.
func (v *conversation) take(s *Session) {
	if old := s.holder; old != nil {
		old.c.gone()
		<-old.pushed
	}
	for _, p := range v.a2e.Backend.SessionProcs(s.name) {
		s.add(p)
	}
	s.holder, v.session, v.pushed = v, s, make(chan struct{})
}

// push begins to send events.
func (v *conversation) push(lastSeq *int) {
	next := v.session.resume(lastSeq)
	go func() {
		defer close(v.pushed)
		v.session.push(v.c.waits, v.a2e.Backend, next, v.c.push)
	}()
}

// push sends lines, and tells how many bytes the peer's end took.
func (c *connection) push(lines []byte) (taken int, err error) {
	c.writing.Lock()
	defer c.writing.Unlock()
	return c.send(lines)
}

// leave ends the conversation, whose connection is closed. Its session goes on
// without one, unless another conversation has taken it.
func (v *conversation) leave() {
	s := v.session
	if s == nil {
		return
	}
	<-v.pushed
	s.turn.Lock()
	defer s.turn.Unlock()
	if s.holder == v {
		s.holder = nil
		s.keep(v.a2e.Backend)
		v.a2e.Backend.LeaveSession(s.name)
	}
}

// find returns a process of this session by its proc_id, or nil: whether
// another session has it makes no difference.
func (v *conversation) find(procID string) SessionProc {
	if v.session == nil || procID == "" {
		return nil
	}
	return v.a2e.Backend.SessionProc(v.session.name, procID)
}

// known is find for a request, which is refused where there is none.
func (v *conversation) known(x *exchange, procID string) (SessionProc, error) {
	p := v.find(procID)
	if p == nil {
		x.unheard = true
		return nil, Errorf(CodeUnknownProc, "no such process in this session").by(ruleSession)
	}
	return p, nil
}

// spawn starts a process. Its events begin behind the reply, which tells the
// client what they are about.
func (v *conversation) spawn(x *exchange) (Message, error) {
	r := x.request.(*A2ESpawn)
	reqID := string(unquoted([]byte(cmp.Or(x.id, `""`))))
	err := v.a2e.Policy.check(r)
	if err == nil && len(reqID) > maxReqID {
		err = Errorf(CodeBadRequest, "id is longer than %d bytes", maxReqID)
	}
	if err != nil {
		x.unheard = true
		return nil, err
	}
	p, err := v.a2e.Backend.Spawn(x.ctx, x.caller, SpawnRequest{
		Session: v.session.name, ProcID: newUUID(), ReqID: reqID,
		Cmd: r.Cmd, Cwd: r.Cwd, Env: r.Env, StdinNull: r.StdinMode == "null",
		TimeoutMS: min(r.Timeout, math.MaxInt64/1000) * 1000,
	})
	if err != nil {
		return nil, err
	}
	x.replied = func() { v.session.add(p) }
	row := p.Row()
	return &A2ESpawned{ProcID: row.ProcID, PID: row.PID}, nil
}

// maxReqID bounds the id of a spawn, which every event of the process repeats.
const maxReqID = 126

func (v *conversation) write(x *exchange) (Message, error) {
	r := x.request.(*A2EWrite)
	p, err := v.known(x, r.ProcID)
	if err != nil {
		return nil, err
	}
	row := p.Row()
	done, err := v.a2e.Backend.Stdin(x.ctx, x.caller, StdinRequest{Handle: row.Handle, Data: r.bytes, CloseStdin: r.EOF})
	reply := &A2EWritten{ProcID: r.ProcID, PID: row.PID}
	if err != nil {
		reply.Bytes = done.Written
	}
	return reply, err
}

// kill signals and waits a while for the end.
func (v *conversation) kill(x *exchange) (Message, error) {
	r := x.request.(*A2EKill)
	p, err := v.known(x, r.ProcID)
	if err != nil {
		return nil, err
	}
	handle := p.Row().Handle
	err = v.a2e.Backend.Terminate(x.ctx, x.caller, handle, r.number())
	if err == nil {
		ctx, cancel := context.WithTimeout(v.c.waits, killWait)
		defer cancel()
		// The row tells how it went; an error is only an early end of the wait.
		_, _ = v.a2e.Backend.Wait(ctx, WaitRequest{Handle: handle, TimeoutMS: int64(killWait / time.Millisecond)})
	}
	return &A2EKilled{ProcID: r.ProcID, State: p.Row().status()}, err
}

func (v *conversation) status(x *exchange) (Message, error) {
	r := x.request.(*A2EStatus)
	if r.ProcID == "" {
		return v.allStatus(), nil
	}
	p, err := v.known(x, r.ProcID)
	if err != nil {
		return &A2EStatusReply{ProcID: r.ProcID, Status: statusNotFound}, err
	}
	row := p.Row()
	proc := row.procStatus()
	return &A2EStatusReply{ProcID: r.ProcID, Status: row.status(), Proc: &proc}, nil
}

// allStatus is running while any process of the session is.
func (v *conversation) allStatus() Message {
	reply := &A2EStatusReply{Status: statusCompleted}
	for _, p := range v.a2e.Backend.SessionProcs(v.session.name) {
		row := p.Row()
		if row.Running {
			reply.Status = statusRunning
		}
		reply.Procs = append(reply.Procs, row.procStatus())
	}
	return reply
}
