package client

import (
	"bufio"
	"context"
	"encoding/json"
	"math"
	"net"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"supervisor/internal/testproc"
)

// object is a request or a reply.
type object map[string]any

func (o object) offset(field string) int64 {
	n, _ := o[field].(float64)
	if n >= math.MaxInt64 {
		return math.MaxInt64
	}
	return int64(n)
}

// answer serves a request of a fake agent. It may take its time; nil is no
// reply, ever.
type answer func(peer *fakePeer, request object) object

// fakeAgent plays agents that the real one is not: older ones, slow ones,
// broken ones.
type fakeAgent struct {
	t      *testing.T
	path   string
	answer answer
	ids    bool // echoes ids and answers requests beside each other

	conns    atomic.Int64
	mu       sync.Mutex
	listener net.Listener
	peers    map[net.Conn]bool
	serving  sync.WaitGroup
}

// fakePeer is one connection of a fake agent.
type fakePeer struct {
	net.Conn
	number int64
	mu     sync.Mutex
}

func newFakeAgent(t *testing.T, ids bool, a answer) *fakeAgent {
	testproc.NoLeaks(t)
	f := &fakeAgent{t: t, path: filepath.Join(t.TempDir(), "agent.sock"), answer: a, ids: ids, peers: map[net.Conn]bool{}}
	f.start()
	t.Cleanup(f.stop)
	return f
}

// dial returns a client, which ends before the agent.
func (f *fakeAgent) dial(opts ...Option) *Client {
	f.t.Helper()
	c, err := Dial(f.t.Context(), "unix:"+f.path, opts...)
	if err != nil {
		f.t.Fatal(err)
	}
	f.t.Cleanup(func() { c.Close() })
	return c
}

func (f *fakeAgent) start() {
	l, err := net.Listen("unix", f.path)
	if err != nil {
		f.t.Fatal(err)
	}
	f.mu.Lock()
	f.listener = l
	f.mu.Unlock()
	f.serving.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			f.mu.Lock()
			f.peers[c] = true
			if f.listener != l { // stopped meanwhile
				c.Close()
			}
			f.mu.Unlock()
			peer := &fakePeer{Conn: c, number: f.conns.Add(1)}
			f.serving.Go(func() { f.serve(peer) })
		}
	})
}

// stop ends the agent as a crash would.
func (f *fakeAgent) stop() {
	f.mu.Lock()
	if f.listener != nil {
		f.listener.Close()
		f.listener = nil
	}
	for c := range f.peers {
		c.Close()
	}
	f.mu.Unlock()
	f.serving.Wait()
}

func (f *fakeAgent) serve(peer *fakePeer) {
	defer peer.Close()
	lines := bufio.NewReader(peer)
	for {
		line, err := lines.ReadBytes('\n')
		if err != nil {
			return
		}
		var request object
		if err := json.Unmarshal(line, &request); err != nil {
			f.t.Errorf("request %q: %v", line, err)
			return
		}
		if !f.ids {
			peer.reply(f.answer(peer, request))
			continue
		}
		f.serving.Go(func() {
			if reply := f.answer(peer, request); reply != nil {
				reply["id"] = request["id"]
				peer.reply(reply)
			}
		})
	}
}

func (p *fakePeer) reply(reply object) {
	if reply == nil {
		return
	}
	if reply["error"] == nil {
		reply["ok"] = true
	} else {
		reply["ok"] = false
	}
	line, _ := json.Marshal(reply)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.Write(append(line, '\n'))
}

// within bounds a test that would hang if it failed.
func within(t *testing.T, d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}
