package client

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"supervisor/internal/testproc"
)

// vmm plays the host side of a VMM's vsock: asked for the right port it connects
// its peer with an agent.
func vmm(t *testing.T, agent string, port int) (path string, asked *atomic.Int64) {
	path, asked = filepath.Join(t.TempDir(), "v.sock"), new(atomic.Int64)
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			asked.Add(1)
			go connectGuest(c, agent, port)
		}
	}()
	return path, asked
}

func connectGuest(c net.Conn, agent string, port int) {
	defer c.Close()
	lines := bufio.NewReader(c)
	if line, _ := lines.ReadString('\n'); line != fmt.Sprintf("CONNECT %d\n", port) {
		return
	}
	guest, err := net.Dial("unix", agent)
	if err != nil {
		return
	}
	defer guest.Close()
	fmt.Fprintf(c, "OK 1073741824\n")
	go io.Copy(guest, lines)
	io.Copy(c, guest)
}

func TestHybrid(t *testing.T) {
	f := newFakeAgent(t, true, func(*fakePeer, object) object { return object{"agent_version": "guest"} })
	path, _ := vmm(t, f.path, 18047)
	ctx := within(t, 10*time.Second)
	c, err := Dial(ctx, "hybrid:"+path+":18047")
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	for range 3 {
		if info, err := c.Info(ctx); err != nil || info.AgentVersion != "guest" {
			t.Errorf("%+v, %v", info, err)
		}
	}
	if _, err := Dial(ctx, "hybrid:"+path+":1"); !errors.Is(err, ErrDisconnected) || !strings.Contains(err.Error(), path) {
		t.Errorf("a port that nobody listens on: %v", err)
	}
}

// A guest that comes back later is waited for, by what only reads.
func TestHybridGuestComesBack(t *testing.T) {
	f := newFakeAgent(t, true, func(p *fakePeer, _ object) object {
		if p.number == 1 {
			return object{}
		}
		return object{"running": false, "timed_out": false, "exit_code": 3}
	})
	path, asked := vmm(t, f.path, 18047)
	c, err := Dial(within(t, 10*time.Second), "hybrid:"+path+":18047")
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	f.stop()
	done := make(chan struct{})
	go func() {
		defer close(done)
		if exit, err := c.Wait(within(t, 20*time.Second), "p_1"); err != nil || exit.ExitCode != 3 {
			t.Errorf("%+v, %v", exit, err)
		}
	}()
	if !testproc.Eventually(10*time.Second, func() bool { return asked.Load() >= 3 }) {
		t.Error("nobody asks again")
	}
	f.start()
	<-done
}
