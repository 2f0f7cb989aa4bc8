package engine

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"supervisor/wire"
)

// onSmallDisk puts the state directory on a file system of its own, and gives
// a function that fills it.
func onSmallDisk(t *testing.T) (change func(*Config), fill func() (free func())) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("mounting a small file system needs root")
	}
	dir := t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=2m"); err != nil {
		t.Skipf("mounting a small file system: %v", err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, 0); err != nil {
			t.Error(err)
		}
	})
	ballast := filepath.Join(dir, "ballast")
	fill = func() func() {
		f, err := os.Create(ballast)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		for err == nil {
			_, err = f.Write(make([]byte, 4096))
		}
		return func() {
			if err := os.Remove(ballast); err != nil {
				t.Fatal(err)
			}
		}
	}
	return func(c *Config) { c.StateDir = filepath.Join(dir, "state") }, fill
}

// A full disk: what would change something is refused, what ends processes
// works, exits are shown, and all of it heals without a restart.
func TestFullDisk(t *testing.T) {
	change, fill := onSmallDisk(t)
	a := newAgent(t, change)
	ctx := context.Background()
	killed, timed := a.sh("sleep 60"), a.start(wire.StartRequest{Cmd: []string{"sleep", "60"}, TimeoutMS: 1000})
	free := fill()
	var err error
	for err == nil { // the file has room for some records inside its pages
		var h wire.StartReply
		if h, err = a.Start(ctx, caller("proc_start"), wire.StartRequest{Cmd: []string{"true"}}); err == nil {
			a.wait(h.Handle)
		}
	}
	wantCode(t, err, wire.CodeJournalFailed)
	if got := a.Info().Journal; got != "full" {
		t.Errorf("agent_info says %q", got)
	}
	ack, err := a.Kill(ctx, caller("proc_kill"), wire.HandleRequest{Handle: killed})
	if err != nil || !ack.Unjournaled {
		t.Errorf("kill: %+v, %v", ack, err)
	}
	if e := a.wait(killed); e.Signal != 9 || !e.Unjournaled {
		t.Errorf("killed as %+v", e)
	}
	if e := a.wait(timed); !e.TimedOut || !e.Unjournaled {
		t.Errorf("timed out as %+v", e)
	}
	free()
	a.awaitHealth("ok")
	if e := a.wait(killed); e.Unjournaled {
		t.Error("still said to be unjournaled")
	}
	a.wait(a.sh("exit 0"))
}

// Signals act on, however many were sent: what waits for the journal is bounded.
func TestFullDiskBoundsWhatWaits(t *testing.T) {
	change, fill := onSmallDisk(t)
	a := newAgent(t, change, func(c *Config) { c.MaxProcs = 4 })
	ctx := context.Background()
	h := a.sh("trap 'echo got' USR1; echo up; while :; do sleep .01; done")
	a.awaitOutput(h, "up\n")
	free := fill()
	send := func() (wire.Ack, error) {
		return a.Signal(ctx, caller("proc_signal"), wire.SignalRequest{Handle: h, Signal: 10, Group: true})
	}
	for ack, err := send(); !ack.Unjournaled; ack, err = send() {
		if err != nil {
			t.Fatal(err)
		}
	}
	for range 500 {
		if ack, err := send(); err != nil || !ack.Unjournaled {
			t.Fatalf("%+v, %v", ack, err)
		}
	}
	if err := a.whileIdle(func() {
		if n := len(a.pending); n > pendingPerProcess*4+4 {
			t.Errorf("%d records wait", n)
		}
	}); err != nil {
		t.Fatal(err)
	}
	free()
	a.awaitHealth("ok")
}

func (a *agent) awaitHealth(want string) {
	a.t.Helper()
	for end := time.Now().Add(20 * time.Second); a.Info().Journal != want; {
		if time.Now().After(end) {
			a.t.Fatalf("the journal is %s, not %s", a.Info().Journal, want)
		}
		time.Sleep(10 * time.Millisecond) // between two looks
	}
}
