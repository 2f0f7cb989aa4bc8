package client_test

import (
	"context"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
	"time"

	"supervisor/client"
	"supervisor/internal/testproc"
)

const dialWithin = 10 * time.Second

func TestMain(m *testing.M) {
	testproc.Main()
	os.Exit(m.Run())
}

// binary builds the agent once for all tests.
func binary(t testing.TB) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "supervisor")
	if out, err := exec.Command("go", "build", "-o", path, "supervisor/cmd/supervisor").CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	return path
}

// agent is a real agent in its own directory.
type agent struct {
	t    testing.TB
	dir  string
	env  []string
	path string // of the binary
	cmd  *exec.Cmd
}

func newAgent(t testing.TB, env ...string) *agent {
	t.Helper()
	a := &agent{t: t, dir: t.TempDir(), env: env, path: binary(t)}
	a.start()
	t.Cleanup(func() {
		a.cmd.Process.Signal(syscall.SIGTERM)
		a.cmd.Wait()
	})
	return a
}

func (a *agent) addr() string { return "unix:" + filepath.Join(a.dir, "agent.sock") }

// start starts the agent; it is ready when it says so.
func (a *agent) start() {
	a.t.Helper()
	a.cmd = exec.Command(a.path, "serve", "--listen", a.addr(), "--state-dir", filepath.Join(a.dir, "state"))
	a.cmd.Env = append(os.Environ(), a.env...)
	stderr, err := a.cmd.StderrPipe()
	if err != nil {
		a.t.Fatal(err)
	}
	if err := a.cmd.Start(); err != nil {
		a.t.Fatal(err)
	}
	first := make([]byte, 4096)
	n, _ := stderr.Read(first)
	if !testproc.Eventually(dialWithin, func() bool {
		c, err := client.Dial(context.Background(), a.addr())
		if err == nil {
			c.Close()
		}
		return err == nil
	}) {
		a.t.Fatalf("the agent is not ready: %s", first[:n])
	}
	go io.Copy(io.Discard, stderr)
}

// BenchmarkFollow reads 500 MB of a process's output beside the bare thing: a
// pipe that is read 64 KiB at a time.
func BenchmarkFollow(b *testing.B) {
	const size = 500_000_000
	argv := []string{"head", "-c", strconv.Itoa(size), "/dev/zero"}
	b.Run("pipe", func(b *testing.B) {
		b.SetBytes(size)
		for b.Loop() {
			cmd := exec.Command(argv[0], argv[1:]...)
			out, _ := cmd.StdoutPipe()
			if err := cmd.Start(); err != nil {
				b.Fatal(err)
			}
			for buf := make([]byte, 64<<10); ; {
				if _, err := out.Read(buf); err != nil {
					break
				}
			}
			cmd.Wait()
		}
	})
	b.Run("client", func(b *testing.B) {
		a := newAgent(b, "PT_PROC_BUF_BYTES=600000000")
		c, err := client.Dial(b.Context(), a.addr())
		if err != nil {
			b.Fatal(err)
		}
		defer c.Close()
		b.SetBytes(size)
		for b.Loop() {
			started, err := c.Start(b.Context(), client.StartRequest{Cmd: argv})
			if err != nil {
				b.Fatal(err)
			}
			n := 0
			for k, err := range c.Follow(b.Context(), started.Handle, client.Position{}) {
				if err != nil || k.Dropped != 0 {
					b.Fatal(k.Dropped, err)
				}
				n += len(k.Data)
			}
			if n != size {
				b.Fatalf("%d bytes", n)
			}
		}
	})
}
