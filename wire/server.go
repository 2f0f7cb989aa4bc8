package wire

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"sync"
	"time"
)

// DefaultMaxConns bounds the connections of a Server.
const DefaultMaxConns = 1024

// Front serves one connection of its protocol, as Guest.ServeConn does.
type Front interface {
	ServeConn(ctx, drain context.Context, c *Conn)
	// TooMany is the line for a peer that is one too many.
	TooMany(limit int) []byte
}

// Server accepts connections for a front. It serves once; the listeners are
// not closed by it and can be given to another.
type Server struct {
	front     Front
	listeners []*Listener
	maxConns  int
	log       *slog.Logger

	drain, stop           context.Context
	startDrain, startStop context.CancelFunc

	mu    sync.Mutex
	conns int
	all   sync.WaitGroup
	done  chan struct{} // closed when Serve returns
}

// NewServer makes a server; maxConns 0 is DefaultMaxConns.
func NewServer(front Front, listeners []*Listener, maxConns int, log *slog.Logger) *Server {
	if maxConns == 0 {
		maxConns = DefaultMaxConns
	}
	s := &Server{front: front, listeners: listeners, maxConns: maxConns, log: log, done: make(chan struct{})}
	s.drain, s.startDrain = context.WithCancel(context.Background())
	s.stop, s.startStop = context.WithCancel(context.Background())
	return s
}

// Serve accepts and serves until ctx ends, which cuts every connection off, or
// until Shutdown. It returns when none of its goroutines is left.
func (s *Server) Serve(ctx context.Context) {
	defer close(s.done)
	defer context.AfterFunc(ctx, func() { s.startDrain(); s.startStop() })()
	for _, l := range s.listeners {
		l.resume()
		defer context.AfterFunc(s.drain, l.pause)()
		s.all.Go(func() { s.accept(l) })
	}
	<-s.drain.Done()
	s.all.Wait()
	s.startStop() // frees what hangs on it
}

// Shutdown stops accepting and reading, lets what was read be answered, and
// closes the connections. When ctx ends first, what is left is cut off: a verb
// that still waits, a peer that does not read. It returns when Serve does; the
// error is ctx's if something was cut off.
func (s *Server) Shutdown(ctx context.Context) error {
	s.startDrain()
	select {
	case <-s.done:
		return nil
	case <-ctx.Done():
		s.startStop()
		<-s.done
		return ctx.Err()
	}
}

// accept takes connections until the server drains. Errors pass: a connection
// that was aborted, a table of descriptors that is full. So it backs off and
// never gives up.
func (s *Server) accept(l *Listener) {
	const longest = time.Second
	delay := time.Duration(0)
	for s.drain.Err() == nil {
		c, err := l.Accept()
		if err == nil {
			delay = 0
			s.admit(c)
			continue
		}
		if s.drain.Err() != nil || errors.Is(err, os.ErrClosed) {
			return
		}
		if delay == 0 {
			s.log.Warn("cannot accept", "address", l.Addr().String(), "error", err)
		}
		delay = min(max(2*delay, 5*time.Millisecond), longest)
		select {
		case <-s.drain.Done():
		case <-time.After(delay):
		}
	}
}

// Add serves a connection that no listener accepted, until the server stops.
// It must be called before Serve.
func (s *Server) Add(c *Conn) { s.admit(c) }

// admit serves a connection, or says at once that there are too many.
func (s *Server) admit(c *Conn) {
	s.mu.Lock()
	full := s.conns == s.maxConns
	if !full {
		s.conns++
	}
	s.mu.Unlock()
	if full {
		_, _ = c.Write(s.front.TooMany(s.maxConns)) // fits into an empty socket
		c.Close()
		return
	}
	s.all.Go(func() {
		s.front.ServeConn(s.stop, s.drain, c)
		s.mu.Lock()
		s.conns--
		s.mu.Unlock()
	})
}
