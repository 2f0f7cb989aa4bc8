package wire

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"runtime/debug"
	"sync"
	"time"
)

// What one connection may have in flight; past either, reading pauses.
const (
	maxInFlight      = 128
	maxInFlightBytes = MaxLine
)

// DefaultStall is how long a peer may take nothing of its replies.
const DefaultStall = 30 * time.Second

// drainWindow is how long a connection that drains waits for its peer to take
// replies: nobody else waits for one that does not read.
const drainWindow = 200 * time.Millisecond

// protocol is what a connection must know of what is spoken on it.
type protocol interface {
	front() string
	// parse reads a line into x; what it says of a bad one is in x.refused.
	parse(x *exchange, line []byte)
	serve(x *exchange) (Message, error)
	// reply writes the line that answers x.
	reply(e *encoder, x *exchange, m Message, err error)
	// note has a verb journaled that the backend did not journal itself.
	note(x *exchange, err error)
}

// Guest is the front of the guest protocol: it serves a Backend on
// connections. Its fields are set before the first one.
type Guest struct {
	Backend Backend
	Log     *slog.Logger
	Stall   time.Duration // 0 is DefaultStall

	budget budget
	lines  longLines
}

// scratch is the memory of one reply.
type scratch struct {
	line []byte
	logs LogsReply
}

// emptyLogs returns a reply that is zero but for the capacity of its slices.
func (s *scratch) emptyLogs() *LogsReply {
	s.logs = LogsReply{Stdout: s.logs.Stdout[:0], Stderr: s.logs.Stderr[:0]}
	return &s.logs
}

var scratches = sync.Pool{New: func() any { return new(scratch) }}

// connection is one peer of a front. One goroutine reads it and
// answers what can be answered at once; each request that may take time has a
// goroutine of its own.
type connection struct {
	speaks protocol
	budget *budget
	log    *slog.Logger
	stall  time.Duration

	conn  *Conn
	lines *LineReader
	heard bool // the first line was read

	// ctx ends when the agent stops, and with it all verbs; waits ends also
	// when the peer is gone.
	ctx, waits context.Context
	gone       context.CancelFunc

	writing sync.Mutex // one writer at a time

	mu       sync.Mutex
	running  int
	bytes    int                        // of the lines of those that run
	draining bool                       // nothing more is to be read
	parked   bool                       // the reader waits for a request to end
	turn     <-chan struct{}            // done of the last request without id; nil if answered
	order    map[string]<-chan struct{} // done of the last inOrder request for a handle
	ended    sync.Cond                  // of running; for the end of the connection
}

// ServeConn serves one connection, closes it and returns when nothing of it is
// left. When drain ends, nothing more is read, and it returns once what was
// read is answered; when ctx ends, it returns at once.
func (g *Guest) ServeConn(ctx, drain context.Context, conn *Conn) {
	c := newConnection(ctx, conn, g, &g.lines)
	c.budget, c.log, c.stall = &g.budget, g.Log, cmp.Or(g.Stall, DefaultStall)
	c.serve(drain)
}

// TooMany is that of Front.
func (g *Guest) TooMany(limit int) []byte {
	return fmt.Appendf(nil, `{"ok":false,"error":"too many connections: the limit is %d"}`+"\n", limit)
}

func newConnection(ctx context.Context, conn *Conn, speaks protocol, lines *longLines) *connection {
	c := &connection{speaks: speaks, conn: conn, lines: newIdleReader(conn, MaxLine, lines), ctx: ctx}
	c.ended.L = &c.mu
	c.waits, c.gone = context.WithCancel(ctx)
	return c
}

// serve is ServeConn of every front.
func (c *connection) serve(drain context.Context) {
	conn := c.conn
	defer context.AfterFunc(c.waits, func() { conn.Close() })()
	defer context.AfterFunc(drain, c.drain)()
	defer conn.Close()

	c.readAll()
	c.park(func() bool { return c.running == 0 })
	c.gone()
	c.mu.Lock()
	for c.running > 0 {
		c.ended.Wait()
	}
	c.mu.Unlock()
}

// readAll reads and dispatches requests until the peer has said its last one.
func (c *connection) readAll() {
	defer c.lines.Release()
	for c.park(c.hasRoom) {
		line, err := c.lines.Next()
		if err == nil {
			if !c.receive(line) {
				return
			}
			continue
		}
		switch {
		case errors.Is(err, os.ErrDeadlineExceeded): // woken: see park
			continue
		case err == ErrLineTooLong:
			c.refuse(Errorf(CodeBadRequest, "line longer than %d bytes", MaxLine))
		case err == ErrLinesTooLong:
			c.refuse(Errorf(CodeBadRequest, "too many long lines at once: together they may have %d bytes", longLinesBytes))
		case err == io.ErrUnexpectedEOF:
			c.refuse(Errorf(CodeBadRequest, "the last line has no line end: it was not executed"))
		case err != io.EOF:
			c.gone()
		}
		return
	}
}

// hasRoom reports whether another request may be read. Called with mu held.
func (c *connection) hasRoom() bool {
	return c.draining || c.running < maxInFlight && c.bytes < maxInFlightBytes
}

// park waits until enough, which is called with mu held. Meanwhile a peer that
// hangs up is noticed, and its waits end. It reports whether to read on.
func (c *connection) park(enough func() bool) bool {
	for {
		c.mu.Lock()
		if enough() || c.waits.Err() != nil {
			readOn := !c.draining && c.waits.Err() == nil
			if c.parked {
				c.parked = false
				c.conn.SetReadDeadline(time.Time{})
			}
			c.mu.Unlock()
			return readOn
		}
		c.parked = true
		c.conn.SetReadDeadline(time.Time{})
		c.mu.Unlock()
		if err := c.conn.waitHangup(); !errors.Is(err, os.ErrDeadlineExceeded) {
			c.gone()
		}
	}
}

// wake makes park look again. Called with mu held.
func (c *connection) wake() { c.conn.SetReadDeadline(time.Unix(1, 0)) }

func (c *connection) drain() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.draining = true
	c.conn.endWrites(time.Now().Add(drainWindow))
	c.wake()
}

// refuse answers something that is no request.
func (c *connection) refuse(err error) {
	c.dispatch(c.newExchange(nil, err))
}

func (c *connection) newExchange(line []byte, refused error) *exchange {
	return &exchange{
		caller:  Caller{Front: c.speaks.front(), Peer: c.conn.PeerName(), Began: time.Now()},
		refused: refused,
		size:    len(line),
		budget:  c.budget,
	}
}

// receive takes one line. It reports false if the peer is not to be spoken to:
// on TCP, where a browser can post anything, the first line must be an object.
func (c *connection) receive(line []byte) bool {
	x := c.newExchange(line, nil)
	c.parse(x, line)
	if c.conn.tcp && !c.heard && !x.object {
		c.speaks.note(x, x.refused)
		return false
	}
	c.heard = true
	if x.refused == nil && x.verb.kind == takesOver {
		return c.becomeTerminal(x)
	}
	c.dispatch(x)
	return true
}

// dispatch answers at once what neither waits nor has to wait for another.
func (c *connection) dispatch(x *exchange) {
	x.ctx = c.ctx
	if x.request != nil && x.verb.kind.endsWithPeer() {
		x.ctx = c.waits
	}
	if c.begin(x) {
		c.answer(x)
		return
	}
	go func() {
		defer c.finish(x)
		for _, before := range x.after {
			if before != nil {
				<-before
			}
		}
		c.answer(x)
	}()
}

// begin reports whether x can be answered on the spot; else it is now running
// and knows what comes before it.
func (c *connection) begin(x *exchange) (atOnce bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	quick := x.refused != nil || x.verb.kind == opens || x.verb.kind == reads && !waits(x.request)
	if quick && (x.id != "" || c.turn == nil) {
		return true
	}
	c.running++
	c.bytes += x.size
	x.done = make(chan struct{})
	if x.id == "" {
		x.after[0], c.turn = c.turn, x.done
	}
	if x.refused == nil && x.verb.kind == inOrder {
		if c.order == nil {
			c.order = make(map[string]<-chan struct{})
		}
		x.after[1], c.order[x.handle] = c.order[x.handle], x.done
	}
	return false
}

// finish undoes begin, lets the next one begin and wakes the reader if it
// waits for that.
func (c *connection) finish(x *exchange) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.running--
	c.bytes -= x.size
	if c.turn == x.done {
		c.turn = nil
	}
	if c.order[x.handle] == x.done {
		delete(c.order, x.handle)
	}
	close(x.done)
	if c.parked {
		c.wake()
	}
	c.ended.Signal()
}

// answer serves x and writes the reply.
func (c *connection) answer(x *exchange) {
	x.scratch = scratches.Get().(*scratch)
	m, err := c.call(x)
	c.reply(x, m, err)
	if x.replied != nil {
		x.replied()
	}
	if granted := x.granted.Load(); granted > 0 {
		x.budget.give(granted)
	}
	scratches.Put(x.scratch)
}

// reply writes the reply, a large one in pieces.
func (c *connection) reply(x *exchange, m Message, err error) {
	e := encoder{dst: x.scratch.line[:0], to: c}
	c.speaks.reply(&e, x, m, err)
	if e.err != nil { // the rest of the line cannot be had
		c.gone()
	}
	e.handOn()
	c.writing.Unlock()
	x.scratch.line = e.dst
}

// call serves x and has it noted, unless the backend journaled it itself.
func (c *connection) call(x *exchange) (m Message, err error) {
	noted := false
	defer func() {
		if !noted {
			c.speaks.note(x, err)
		}
	}()
	if x.refused != nil {
		return nil, x.refused
	}
	defer c.recovered(x, &err)
	m, err = c.speaks.serve(x)
	noted = x.verb.kind != reads && !x.unheard
	return m, err
}

// parse reads a line into x; see exchange.parse.
func (c *connection) parse(x *exchange, line []byte) {
	defer c.recovered(x, &x.refused)
	c.speaks.parse(x, line)
}

// recovered is deferred: it turns a panic over one request into its answer.
func (c *connection) recovered(x *exchange, err *error) {
	if reason := recover(); reason != nil {
		c.log.Error("request panicked", "op", x.caller.Op, "reason", reason, "stack", string(debug.Stack()))
		*err = Errorf(CodeInternal, "internal error")
	}
}

// send sends the next bytes, and tells how many the peer's end took. A peer
// that breaks or does not read is gone. Called with writing held.
func (c *connection) send(p []byte) (taken int, err error) {
	if err := c.waits.Err(); err != nil {
		return 0, err
	}
	if taken, err = c.conn.writeAll(p, c.stall); err != nil {
		c.gone()
	}
	return taken, err
}

// front, parse, serve, reply and note make the guest protocol a protocol.
func (g *Guest) front() string                      { return "guest" }
func (g *Guest) parse(x *exchange, line []byte)     { x.parse(line) }
func (g *Guest) note(x *exchange, err error)        { g.Backend.Note(x.caller, cut(x.handle, 64), err) }
func (g *Guest) serve(x *exchange) (Message, error) { return x.verb.serve(x, g.Backend) }

func (g *Guest) reply(e *encoder, x *exchange, m Message, err error) {
	if err != nil {
		m = beside(m)
	}
	e.reply(x.id, m, err, !x.older)
}
