package e2e

import (
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"supervisor/client"
)

// A service manager is told when the agent is ready, also after an upgrade, and
// when it stops; children are told nothing of the manager.
func TestServiceManager(t *testing.T) {
	address := &net.UnixAddr{Name: filepath.Join(t.TempDir(), "notify"), Net: "unixgram"}
	manager, err := net.ListenUnixgram("unixgram", address)
	if err != nil {
		t.Fatal(err)
	}
	defer manager.Close()
	hears := func(want string) {
		t.Helper()
		buf := make([]byte, 100)
		manager.SetReadDeadline(time.Now().Add(20 * time.Second))
		if n, err := manager.Read(buf); err != nil || string(buf[:n]) != want {
			t.Fatalf("heard %q, %v, want %q", buf[:n], err, want)
		}
	}
	t.Setenv("NOTIFY_SOCKET", address.Name)
	a := start(t)
	hears("READY=1")
	ctx := a.context(30 * time.Second)
	image, err := os.Open(binary)
	if err != nil {
		t.Fatal(err)
	}
	defer image.Close()
	if _, _, err := a.Upgrade(ctx, client.Upgrade{Image: image}); err != nil {
		t.Fatal(err)
	}
	hears("READY=1")
	reply, err := a.Exec(ctx, client.ExecRequest{Cmd: []string{"sh", "-c", "echo $NOTIFY_SOCKET"}})
	if err != nil || string(reply.Stdout) != "\n" {
		t.Errorf("a child was told of the manager: %q, %v", reply.Stdout, err)
	}
	a.stop()
	hears("STOPPING=1")
	a.serve()
}
