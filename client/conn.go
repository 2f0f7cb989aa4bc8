package client

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"supervisor/wire"
)

const (
	// maxReply is the longest reply line that is taken. The largest that an
	// agent sends is 4 MiB of each stream, in base64.
	maxReply = 64 << 20

	// writeStall is how long an agent may take to take a request.
	writeStall = 30 * time.Second

	// maxAbandoned is how many replies that nobody waits for any more a
	// connection may owe. An agent reads no further while too many are out.
	maxAbandoned = 32
)

// call is one request that waits for its reply.
type call struct {
	id      string
	reply   wire.Message      // where the reply goes; nil for nowhere
	inspect func(line []byte) // if set, sees the decoded line before it is gone
	err     error             // set before done is closed
	done    chan struct{}

	abandoned bool // nobody waits for it; guarded by the conn's mu
}

// conn is one connection and the calls that wait on it. Its read goroutine
// runs from connect until fail.
type conn struct {
	wire    *wire.Conn
	writing chan struct{}            // filled while somebody writes
	proven  func(*conn)              // called once: the agent echoes ids
	gone    func(*conn)              // called once: the connection is of no more use
	caps    atomic.Pointer[[]string] // what the agent can do; nil until it was asked

	mu        sync.Mutex
	calls     map[string]*call
	abandoned int   // of calls: nobody waits for them
	ids       bool  // the agent echoes ids; until that is known, one call at a time
	retired   bool  // takes no more calls, and closes after the last one
	err       error // why it broke
}

func newConn(w *wire.Conn, proven, gone func(*conn)) *conn {
	n := &conn{wire: w, writing: make(chan struct{}, 1), proven: proven, gone: gone, calls: make(map[string]*call)}
	go n.read()
	return n
}

// begin takes a call, unless another connection must.
func (n *conn) begin(k *call) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.err != nil || n.retired || !n.ids && len(n.calls) > 0 {
		return false
	}
	n.calls[k.id] = k
	return true
}

// lasts reports whether the connection will go on taking calls.
func (n *conn) lasts() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.err == nil && !n.retired
}

// do sends the line of a call that has begun, and waits for the reply.
func (n *conn) do(ctx context.Context, k *call, line []byte) error {
	if err := n.write(ctx, line); err != nil {
		n.forget(k)
		return err
	}
	select {
	case <-k.done:
	case <-ctx.Done():
		if n.abandon(k) {
			return ctx.Err()
		}
		<-k.done // the reply is being decoded into the caller's memory
	}
	return k.err
}

// write sends one line. When ctx ends in the middle of it, the rest of the
// line is owed and the connection of no more use; but a line that the socket's
// buffer has room for is never in that danger.
func (n *conn) write(ctx context.Context, line []byte) error {
	select {
	case n.writing <- struct{}{}:
		defer func() { <-n.writing }()
	case <-ctx.Done():
		return ctx.Err()
	}
	n.wire.SetWriteDeadline(time.Now().Add(writeStall))
	interrupted := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		n.wire.SetWriteDeadline(time.Unix(1, 0))
		close(interrupted)
	})
	written, err := n.wire.Write(line)
	if !stop() {
		<-interrupted
	}
	if err == nil {
		return nil
	}
	if ctx.Err() != nil && written == 0 {
		return ctx.Err()
	}
	n.fail(err)
	return cmp.Or(ctx.Err(), n.broken())
}

// read hands replies to calls until the connection breaks.
func (n *conn) read() {
	lines := wire.NewLineReader(n.wire, maxReply)
	defer lines.Release()
	for {
		line, err := lines.Next()
		if err == nil {
			err = n.receive(line)
		}
		if err != nil {
			n.fail(err)
			return
		}
	}
}

// receive decodes a reply into the memory of its call. A reply to a call that
// is not known is passed over; one that names no call breaks the connection.
func (n *conn) receive(line []byte) error {
	var k *call
	id, err := wire.DecodeReplyTo(line, func(id string) wire.Message {
		if k = n.claim(id); k == nil {
			return nil
		}
		return k.reply
	})
	switch {
	case k == nil && id == "":
		return fmt.Errorf("the agent answered no request: %w", cmp.Or(err, io.ErrUnexpectedEOF))
	case k == nil:
		return nil
	case k.inspect != nil:
		k.inspect(line)
	}
	k.err = classify(err)
	close(k.done)
	n.rest()
	return nil
}

// claim takes a call out: the one with the id, or the only one where the agent
// does not echo ids. From then on the call is the claimer's until it is done.
func (n *conn) claim(id string) *call {
	n.mu.Lock()
	k := n.calls[id]
	if id == "" && !n.ids {
		for _, k = range n.calls { // one at most
		}
	}
	proven := k != nil && id != "" && !n.ids
	n.ids = n.ids || proven
	n.remove(k)
	n.mu.Unlock()
	if proven {
		n.proven(n)
	}
	return k
}

// remove forgets a call, or nil. Called with mu held.
func (n *conn) remove(k *call) {
	if k == nil {
		return
	}
	delete(n.calls, k.id)
	if k.abandoned {
		n.abandoned--
	}
}

// forget removes a call that was never sent whole.
func (n *conn) forget(k *call) {
	n.mu.Lock()
	n.remove(k)
	n.mu.Unlock()
	n.rest()
}

// abandon gives a call up; its reply will be passed over. It reports false if
// the reply has come.
func (n *conn) abandon(k *call) bool {
	n.mu.Lock()
	_, waiting := n.calls[k.id]
	if waiting {
		k.reply, k.inspect, k.abandoned = nil, nil, true
		n.abandoned++
		n.retired = n.retired || n.abandoned > maxAbandoned
	}
	n.mu.Unlock()
	n.rest()
	return waiting
}

// retire closes the connection as soon as nobody waits on it.
func (n *conn) retire() {
	n.mu.Lock()
	n.retired = true
	n.mu.Unlock()
	n.rest()
}

// rest closes a retired connection on which nobody waits.
func (n *conn) rest() {
	n.mu.Lock()
	over := n.retired && len(n.calls) == n.abandoned
	n.mu.Unlock()
	if over {
		n.fail(ErrClosed)
	}
}

// fail breaks the connection, and with it all calls on it; the first cause
// stays.
func (n *conn) fail(cause error) {
	n.mu.Lock()
	if n.err != nil {
		n.mu.Unlock()
		return
	}
	n.err = disconnected(fmt.Errorf("%s: connection lost: %w", n.wire.PeerName(), cause))
	if cause == ErrClosed {
		n.err = ErrClosed
	}
	for _, k := range n.calls {
		k.err = n.err
		close(k.done)
	}
	clear(n.calls)
	n.mu.Unlock()
	n.wire.Close()
	n.gone(n)
}

// broken returns why the connection broke.
func (n *conn) broken() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.err
}
