package wire

import (
	"cmp"
	"context"
	"log/slog"
	"strings"
	"time"
)

const frontA2E = "a2e"

// killWait is how long proc/kill waits for the process to end.
const killWait = 5 * time.Second

// A2E is the agent front: it serves the capability proc/* on connections, each
// of which belongs to a session. Its fields are set before the first one.
type A2E struct {
	Backend SessionBackend
	Policy  Policy
	Log     *slog.Logger
	Stall   time.Duration // 0 is DefaultStall

	budget budget
	lines  longLines
}

// conversation is one connection of the agent front.
type conversation struct {
	a2e     *A2E
	c       *connection
	session *Session      // nil before the handshake
	secret  string        // of the session
	pushed  chan struct{} // closed when nothing more is pushed; nil: nothing ever was
}

// ServeConn is that of Front.
func (a *A2E) ServeConn(ctx, drain context.Context, conn *Conn) {
	v := &conversation{a2e: a}
	v.c = newConnection(ctx, conn, v, &a.lines)
	v.c.budget, v.c.log, v.c.stall = &a.budget, a.Log, cmp.Or(a.Stall, DefaultStall)
	v.c.serve(drain)
	v.leave()
}

// TooMany is that of Front.
func (a *A2E) TooMany(limit int) []byte {
	var e encoder
	err := Errorf(CodeRegistryFull, "too many connections: the limit is %d", limit)
	(&conversation{a2e: a}).reply(&e, &exchange{caller: Caller{Front: frontA2E}}, nil, err)
	return e.dst
}

// a2eVerb is how a message is served.
type a2eVerb struct {
	request func() request
	serve   func(v *conversation, x *exchange) (Message, error)
	kind    kind
	// failed is the reply to a request that could not be served.
	failed func(procID string) Message
	reply  string // type of the reply
	bare   bool   // the reply has no ok
}

// a2eVerbs is the capability, by type less "/req".
var a2eVerbs = map[string]*a2eVerb{
	"handshake": {
		func() request { return new(A2EHandshake) }, (*conversation).handshake, opens,
		func(string) Message { return new(A2EHello) }, "handshake/resp", true,
	},
	"proc/spawn": {
		func() request { return new(A2ESpawn) }, (*conversation).spawn, changes,
		func(string) Message { return new(A2ESpawned) }, "proc/spawn/resp", false,
	},
	"proc/write": {
		func() request { return new(A2EWrite) }, (*conversation).write, inOrder,
		func(procID string) Message { return &A2EWritten{ProcID: procID} }, "proc/write/resp", false,
	},
	"proc/kill": {
		func() request { return &A2EKill{Signal: "SIGTERM"} }, (*conversation).kill, changes,
		func(procID string) Message { return &A2EKilled{ProcID: procID} }, "proc/kill/resp", false,
	},
	"proc/status": {
		func() request { return new(A2EStatus) }, (*conversation).status, reads,
		func(procID string) Message { return &A2EStatusReply{ProcID: procID, Status: statusError} }, "proc/status/resp", true,
	},
}

func (v *conversation) front() string { return frontA2E }

func (v *conversation) note(x *exchange, err error) {
	handle := ""
	if p := v.find(x.handle); p != nil {
		handle = p.Row().Handle
	}
	v.a2e.Backend.Note(x.caller, handle, err)
}

// parse reads a line. Op, id and proc_id are known as far as the line tells
// them.
func (v *conversation) parse(x *exchange, line []byte) {
	d := decoders.Get().(*decoder)
	defer d.release()
	if x.refused = d.split(line, parseObject); x.refused != nil {
		return
	}
	x.object = true
	var id, kind, version, session string
	if d.text("id", &id, nonzero); d.err == nil {
		x.id = string(d.find("id", nonzero))
	}
	d.text("type", &kind, required)
	op, isRequest := strings.CutSuffix(kind, "/req")
	x.caller.Op = cut(op, 64)
	x.answer = a2eVerbs[op]
	if !isRequest {
		x.answer = nil
	}
	d.text("proc_id", &x.handle, nonzero)
	d.text("version", &version, nonzero)
	d.text("session_id", &session, nonzero)
	switch {
	case d.err != nil:
		x.refused = d.err
	case x.answer == nil:
		x.refused = Errorf(CodeBadRequest, "unknown type %q", cut(kind, 64))
	default:
		x.refused = v.admit(x, version, session)
	}
	if x.refused != nil {
		return
	}
	x.verb.kind, x.request = x.answer.kind, x.answer.request()
	x.request.fields(d)
	if x.refused = d.err; x.refused == nil {
		x.refused = x.request.check()
	}
}

// admit refuses what is not for this conversation.
func (v *conversation) admit(x *exchange, version, session string) error {
	shaken := x.answer.kind == opens
	switch {
	case version != "" && version != a2eVersion:
		return Errorf(CodeBadRequest, "version must be %s", a2eVersion)
	case !shaken && v.session == nil:
		return Errorf(CodeUnknownSession, "a handshake comes first").by(ruleSession)
	case shaken && v.session != nil:
		return Errorf(CodeBadRequest, "this connection has a session")
	case !shaken && session != "" && session != v.secret:
		return Errorf(CodeUnknownSession, "not this connection's session").by(ruleSession)
	}
	return nil
}

func (v *conversation) serve(x *exchange) (Message, error) { return x.answer.serve(v, x) }

// reply answers with the message of the request's own kind where there is one.
func (v *conversation) reply(e *encoder, x *exchange, m Message, err error) {
	kind := "error"
	if x.answer != nil {
		kind = x.answer.reply
		if m == nil {
			m = x.answer.failed(x.handle)
		}
	}
	e.envelope(kind, time.Now())
	e.name("req_id")
	e.dst = append(e.dst, cmp.Or(x.id, `""`)...)
	if x.answer != nil && !x.answer.bare {
		ok := err == nil
		e.flag("ok", &ok, always)
	}
	if m != nil {
		m.fields(e)
	}
	said := ""
	if err != nil {
		said = string(x.caller.CodeOf(err)) + ": " + err.Error()
	}
	e.text("error", &said, always)
	e.dst = append(e.dst, '}', '\n')
}
