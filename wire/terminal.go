package wire

import (
	"io"
	"time"
)

// becomeTerminal serves pty: once everything before it is answered the
// connection is the terminal, until either side ends. It reports whether the
// connection still speaks lines.
func (c *connection) becomeTerminal(x *exchange) bool {
	c.park(func() bool { return c.running == 0 })
	x.ctx = c.waits
	var terminal io.ReadWriteCloser
	x.verb.serve = func(x *exchange, b Backend) (m Message, err error) {
		terminal, err = b.Terminal(x.ctx, x.caller, *x.request.(*TerminalRequest))
		return nil, err
	}
	c.answer(x)
	if terminal == nil {
		return true
	}
	c.relay(terminal)
	return false
}

// relay connects the peer with a terminal.
func (c *connection) relay(terminal io.ReadWriteCloser) {
	typed := make(chan struct{})
	go func() {
		defer close(typed)
		c.relayInput(terminal)
	}()
	buf := make([]byte, 32<<10)
	for c.waits.Err() == nil {
		n, err := terminal.Read(buf)
		c.writing.Lock()
		c.send(buf[:n])
		c.writing.Unlock()
		if err != nil {
			break
		}
	}
	terminal.Close()
	c.conn.SetReadDeadline(time.Unix(1, 0)) // ends the input
	<-typed
}

// relayInput passes on what the peer types, from behind its request on. A
// half-close ends the input alone; a peer that has left, or an agent that
// reads no more, ends the terminal.
func (c *connection) relayInput(terminal io.ReadWriteCloser) {
	if _, err := terminal.Write(c.lines.unread()); err != nil {
		return
	}
	buf := make([]byte, 32<<10)
	for {
		n, err := c.conn.Read(buf)
		if _, err := terminal.Write(buf[:n]); err != nil {
			return // its process has ended
		}
		switch err {
		case nil:
			continue
		case io.EOF:
			_ = c.conn.waitHangup() // whatever ends it
		}
		terminal.Close()
		return
	}
}
