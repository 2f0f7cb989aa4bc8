package wire

import (
	"context"
	"sync/atomic"
)

// verb is how an op is served.
type verb struct {
	// request makes an empty request with its defaults.
	request func() request
	serve   func(x *exchange, b Backend) (Message, error)
	kind    kind
}

// kind is what the front must know of a verb beside its fields.
type kind int

const (
	// reads answers from what the agent knows. The front notes it.
	reads kind = iota
	// changes is journaled by the backend, and goes on when its peer leaves.
	changes
	// attends is journaled by the backend, and ends when its peer leaves.
	attends
	// takesOver is attends, and makes the connection a terminal.
	takesOver
	// inOrder changes a process's input: those of one process begin in the
	// order in which they came.
	inOrder
	// opens is served before anything more is read. The backend journals it.
	opens
)

// endsWithPeer reports whether nobody wants the outcome once the peer is gone.
func (k kind) endsWithPeer() bool { return k == reads || k == attends }

// verbs is the guest protocol, less the older verbs.
var verbs = map[string]verb{
	"agent_info":    {newNothing, info, reads},
	"agent_upgrade": {func() request { return new(UpgradeRequest) }, agentUpgrade, changes},

	"proc_start":  {func() request { return new(StartRequest) }, start, changes},
	"proc_list":   {newNothing, list, reads},
	"proc_logs":   {func() request { return new(LogsRequest) }, logs, reads},
	"proc_stdin":  {func() request { return new(StdinRequest) }, stdin, inOrder},
	"proc_signal": {func() request { return &SignalRequest{Group: true} }, signal, changes},
	"proc_kill":   {func() request { return new(HandleRequest) }, kill, changes},
	"proc_resize": {func() request { return new(ResizeRequest) }, resize, inOrder},
	"proc_wait":   {func() request { return new(WaitRequest) }, wait, reads},

	"journal_read": {func() request { return new(JournalReadRequest) }, journalRead, reads},
	"journal_info": {newNothing, journalInfo, reads},

	"journal_snapshot": {func() request { return new(JournalSnapshotRequest) }, journalSnapshot, reads},
}

func newNothing() request { return new(nothing) }

// waits reports whether a request may take as long as its peer allows.
func waits(r request) bool {
	switch r := r.(type) {
	case *WaitRequest, *ReadFileRequest, *PathRequest: // a file may be slow
		return true
	case *LogsRequest:
		return r.WaitMS > 0
	case *JournalReadRequest:
		return r.WaitMS > 0
	default:
		return false
	}
}

func info(_ *exchange, b Backend) (Message, error) {
	reply := b.Info()
	return &reply, nil
}

func agentUpgrade(x *exchange, b Backend) (Message, error) {
	reply, err := b.Upgrade(x.ctx, x.caller, *x.request.(*UpgradeRequest))
	return &reply, err
}

func list(_ *exchange, b Backend) (Message, error) {
	reply := b.List()
	return &reply, nil
}

func start(x *exchange, b Backend) (Message, error) {
	reply, err := b.Start(x.ctx, x.caller, *x.request.(*StartRequest))
	return &reply, err
}

func stdin(x *exchange, b Backend) (Message, error) {
	reply, err := b.Stdin(x.ctx, x.caller, *x.request.(*StdinRequest))
	return &reply, err
}

func signal(x *exchange, b Backend) (Message, error) {
	reply, err := b.Signal(x.ctx, x.caller, *x.request.(*SignalRequest))
	return &reply, err
}

func kill(x *exchange, b Backend) (Message, error) {
	reply, err := b.Kill(x.ctx, x.caller, *x.request.(*HandleRequest))
	return &reply, err
}

func resize(x *exchange, b Backend) (Message, error) {
	reply, err := b.Resize(x.ctx, x.caller, *x.request.(*ResizeRequest))
	return &reply, err
}

func wait(x *exchange, b Backend) (Message, error) {
	r := *x.request.(*WaitRequest)
	if r.TimeoutMS == 0 || r.TimeoutMS > MaxWaitMS {
		r.TimeoutMS = MaxWaitMS
	}
	reply, err := b.Wait(x.ctx, r)
	return &reply, err
}

// logs waits with the smallest limit, so that a thousand followers hold no
// memory, and then reads what the budget allows.
func logs(x *exchange, b Backend) (Message, error) {
	r := *x.request.(*LogsRequest)
	r.WaitMS = min(r.WaitMS, MaxLogWaitMS)
	if r.Limit == 0 {
		r.Limit = DefaultLogLimit
	}
	reply := x.scratch.emptyLogs()
	if r.WaitMS > 0 {
		first := r
		first.Limit = 1
		if err := b.Logs(x.ctx, first, reply); err != nil {
			return nil, err
		}
		r.WaitMS, reply = 0, x.scratch.emptyLogs()
	}
	// Two streams, each as bytes and as base64.
	const perLimit = 5
	r.Limit = x.reserve(perLimit*min(r.Limit, MaxLogLimit)) / perLimit
	err := b.Logs(x.ctx, r, reply)
	return reply, err
}

func journalRead(x *exchange, b Backend) (Message, error) {
	r := *x.request.(*JournalReadRequest)
	r.WaitMS = min(r.WaitMS, MaxLogWaitMS)
	if r.Limit == 0 {
		r.Limit = DefaultReadMany
	}
	r.Limit = min(r.Limit, MaxReadMany)
	r.MaxBytes = x.reserve(2*MaxReadBytes) / 2 // the records, and the reply made of them
	reply, err := b.JournalRead(x.ctx, r)
	return &reply, err
}

func journalInfo(_ *exchange, b Backend) (Message, error) {
	reply, err := b.JournalInfo()
	return &reply, err
}

func journalSnapshot(x *exchange, b Backend) (Message, error) {
	r := *x.request.(*JournalSnapshotRequest)
	if r.Limit == 0 {
		r.Limit = MaxReadBytes
	}
	// The part as bytes and as base64.
	const perLimit = 3
	r.Limit = x.reserve(perLimit*min(r.Limit, MaxReadBytes)) / perLimit
	reply, err := b.JournalSnapshot(r)
	return &reply, err
}

// beside returns what of a reply is said beside an error: the bytes that
// proc_stdin wrote, and nothing else.
func beside(m Message) Message {
	if written, ok := m.(*StdinReply); ok {
		return written
	}
	return nil
}

// exchange is one request and what becomes of it.
type exchange struct {
	caller  Caller
	id      string // as JSON text, "" for none
	handle  string
	verb    verb
	older   bool // of the verb: an error carries no code
	request request
	refused error // why it never reaches its verb
	object  bool  // the line was a JSON object

	ctx     context.Context
	size    int // of the line
	budget  *budget
	granted atomic.Int64
	scratch *scratch

	after [2]<-chan struct{} // to be answered before this one begins; nil is none
	done  chan struct{}      // closed when this one is answered

	answer  *a2eVerb // on the agent front: how it is answered
	unheard bool     // refused by the front: the backend knows nothing of it
	replied func()   // called once the reply is out
}

// reserve asks for memory until the reply is out.
func (x *exchange) reserve(want int64) int64 {
	granted := x.budget.take(want)
	x.granted.Store(granted)
	return granted
}

// reserveMore asks for more of it, and gets all or nothing.
func (x *exchange) reserveMore(bytes int64) bool {
	if granted := x.granted.Add(bytes); x.budget.add(bytes, granted <= 2*budgetFloor) {
		return true
	}
	x.granted.Add(-bytes)
	return false
}

// parse reads a line into an exchange. What it says of a bad one is in
// refused; op, id and handle are known as far as the line tells them.
func (x *exchange) parse(line []byte) {
	d := decoders.Get().(*decoder)
	defer d.release()
	if x.refused = d.split(line, parseObject); x.refused != nil {
		return
	}
	x.object = true
	var id, op string
	if d.text("id", &id, nonzero); d.err == nil {
		x.id = string(d.find("id", nonzero))
	}
	d.text("op", &op, required)
	x.caller.Op = cut(op, 64)
	if x.refused = d.err; x.refused != nil {
		return
	}
	var known bool
	if x.verb, known = verbs[op]; !known {
		x.verb, known = olderVerbs[op]
		x.older = known
	}
	if !known {
		x.refused = &Error{Code: CodeUnknownOp, Message: unknownOp + op}
		return
	}
	x.request = x.verb.request()
	x.request.fields(d)
	if handle := d.find("handle", nonzero); isString(handle) {
		x.handle = string(unquoted(handle))
	}
	if x.refused = d.err; x.refused == nil {
		x.refused = x.request.check()
	}
}
