package client

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"supervisor/wire"
)

// dialTimeout bounds one attempt to connect: a vsock peer may never answer.
const dialTimeout = 10 * time.Second

// DefaultPatience is how long Follow, Held and Wait bear the agent's absence.
const DefaultPatience = 30 * time.Second

// Client is a caller of one agent.
type Client struct {
	addr     wire.Addr
	patience time.Duration
	slack    time.Duration // how much later than asked for an answer may come
	lastID   atomic.Uint64

	mu     sync.Mutex
	conns  []*conn // those that have not broken
	main   *conn   // the one to keep: it echoes ids; nil until there is one
	closed bool
}

// Option sets something of a Client.
type Option func(*Client)

// WithPatience sets how long Follow, Held and Wait try to reach an agent that
// has gone away before they fail; 0 is not at all.
func WithPatience(d time.Duration) Option { return func(c *Client) { c.patience = d } }

// Dial connects to the agent at addr: unix:PATH, vsock:CID:PORT,
// tcp:HOST:PORT or hybrid:PATH:PORT. The context bounds connecting alone. The
// error is ErrBadAddress or ErrDisconnected, and names the address.
func Dial(ctx context.Context, addr string, opts ...Option) (*Client, error) {
	a, err := wire.ParseAddr(addr)
	if err != nil {
		return nil, &kindError{err, ErrBadAddress}
	}
	c := &Client{addr: a, patience: DefaultPatience, slack: replySlack}
	for _, set := range opts {
		set(c)
	}
	if _, err := c.connect(ctx); err != nil {
		return nil, err
	}
	return c, nil
}

// Close ends all calls with ErrClosed, and with them the connection.
func (c *Client) Close() error {
	c.mu.Lock()
	c.closed = true
	conns := slices.Clone(c.conns)
	c.mu.Unlock()
	for _, n := range conns {
		n.fail(ErrClosed)
	}
	return nil
}

// call sends a request and waits for its reply. Inspect, if set, sees the
// reply's line, which is gone when it returns.
func (c *Client) call(ctx context.Context, op string, request, reply wire.Message, inspect func(line []byte)) error {
	_, err := c.callOn(ctx, op, request, reply, inspect)
	return err
}

// callOn is call that tells the connection on which it was made.
func (c *Client) callOn(ctx context.Context, op string, request, reply wire.Message, inspect func(line []byte)) (*conn, error) {
	k := &call{
		id:      strconv.FormatUint(c.lastID.Add(1), 10),
		reply:   reply,
		inspect: inspect,
		done:    make(chan struct{}),
	}
	line := wire.AppendRequest(nil, op, k.id, request)
	if len(line) > wire.MaxLine {
		return nil, wire.Errorf(wire.CodeBadRequest, "%s: the request is longer than %d bytes", op, wire.MaxLine)
	}
	n, err := c.place(ctx, k)
	if err != nil {
		return nil, err
	}
	return n, n.do(ctx, k, line)
}

// place begins a call on a connection that takes it, which may be a new one.
func (c *Client) place(ctx context.Context, k *call) (*conn, error) {
	c.mu.Lock()
	for _, n := range c.conns {
		if n.begin(k) {
			c.mu.Unlock()
			return n, nil
		}
	}
	c.mu.Unlock()
	for {
		n, err := c.connect(ctx)
		if err != nil || n.begin(k) {
			return n, err
		}
	}
}

// connect adds a connection.
func (c *Client) connect(ctx context.Context) (*conn, error) {
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	w, err := wire.Dial(ctx, c.addr)
	if err != nil {
		return nil, &kindError{disconnected(err), errUnsent}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		w.Close()
		return nil, ErrClosed
	}
	n := newConn(w, c.settle, c.remove)
	c.conns = append(c.conns, n)
	return n, nil
}

// settle makes do with one connection, now that its agent is known to echo
// ids.
func (c *Client) settle(proven *conn) {
	c.mu.Lock()
	if c.main == nil || !c.main.lasts() {
		c.main = proven
	}
	others := slices.DeleteFunc(slices.Clone(c.conns), func(n *conn) bool { return n == c.main })
	c.mu.Unlock()
	for _, n := range others {
		n.retire()
	}
}

// remove forgets a connection that broke.
func (c *Client) remove(broken *conn) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.conns = slices.DeleteFunc(c.conns, func(n *conn) bool { return n == broken })
}

// reset breaks the connections: their agent does not answer. The next call
// connects anew.
func (c *Client) reset(cause error) {
	c.mu.Lock()
	conns := slices.Clone(c.conns)
	c.mu.Unlock()
	for _, n := range conns {
		n.fail(fmt.Errorf("no answer: %w", cause))
	}
}
