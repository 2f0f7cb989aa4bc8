package client_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"

	"supervisor/client"
	"supervisor/internal/testproc"
)

// built says that build was called.
var built bool

// build builds the agent once, if a test needs it; TestMain removes it.
var build = sync.OnceValues(func() (dir string, err error) {
	built = true
	if dir, err = os.MkdirTemp("", "client-test-"); err != nil {
		return "", err
	}
	out, err := exec.Command("go", "build", "-o", filepath.Join(dir, "supervisor"), "supervisor/cmd/supervisor").CombinedOutput()
	if err != nil {
		err = fmt.Errorf("go build: %w\n%s", err, out)
	}
	return dir, err
})

func TestMain(m *testing.M) {
	testproc.Main()
	code := m.Run()
	if built {
		dir, _ := build()
		os.RemoveAll(dir)
	}
	os.Exit(code)
}

// agent is a real agent with a directory of its own.
type agent struct {
	dir  string
	addr string
	cmd  *exec.Cmd
	log  bytes.Buffer
}

// startAgent starts an agent in dir and waits until it answers.
func startAgent(dir string, env ...string) (*agent, error) {
	binary, err := build()
	if err != nil {
		return nil, err
	}
	a := &agent{dir: dir, addr: "unix:" + filepath.Join(dir, "agent.sock")}
	a.cmd = exec.Command(filepath.Join(binary, "supervisor"), "serve", "--listen", a.addr, "--state-dir", filepath.Join(dir, "state"))
	a.cmd.Env = append(os.Environ(), env...)
	a.cmd.Stderr = &a.log
	if err := a.cmd.Start(); err != nil {
		return nil, err
	}
	if !testproc.Eventually(10*time.Second, a.answers) {
		a.stop()
		return nil, fmt.Errorf("the agent does not answer: %s", a.log.String())
	}
	return a, nil
}

func (a *agent) answers() bool {
	c, err := client.Dial(context.Background(), a.addr)
	if err != nil {
		return false
	}
	defer c.Close()
	_, err = c.Info(context.Background())
	return err == nil
}

func (a *agent) stop() {
	a.cmd.Process.Signal(syscall.SIGTERM)
	a.cmd.Wait()
}

// connect starts an agent for a test, which must leave no process behind, and
// connects to it.
func connect(t testing.TB, env ...string) (*agent, *client.Client) {
	t.Helper()
	testproc.NoLeaks(t)
	a, err := startAgent(t.TempDir(), env...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { a.stop() })
	c, err := client.Dial(t.Context(), a.addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return a, c
}

func start(t testing.TB, c *client.Client, argv ...string) string {
	t.Helper()
	started, err := c.Start(t.Context(), client.StartRequest{Cmd: argv})
	if err != nil {
		t.Fatal(err)
	}
	return started.Handle
}

func TestRealAgent(t *testing.T) {
	_, c := connect(t)
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	handle := start(t, c, "sh", "-c", "cat; echo err >&2; exec sleep 1000")
	pipe := c.StdinPipe(ctx, handle)
	if _, err := pipe.Write([]byte("typed\n")); err != nil {
		t.Fatal(err)
	}
	if err := pipe.Close(); err != nil {
		t.Fatal(err)
	}
	var got [2]string
	for k, err := range c.Follow(ctx, handle, client.Position{}) {
		if err != nil || k.Dropped != 0 {
			t.Fatal(k, err)
		}
		got[k.Stream] += string(k.Data)
		if k.Stream == client.Stderr {
			if err := c.Signal(ctx, handle, int(syscall.SIGTERM), true); err != nil {
				t.Error(err)
			}
		}
	}
	if got != [2]string{"typed\n", "err\n"} {
		t.Errorf("output %q", got)
	}
	exit, err := c.Wait(ctx, handle)
	if err != nil || exit.Signal != int(syscall.SIGTERM) || exit.Running {
		t.Errorf("Wait: %+v, %v", exit, err)
	}
	for name, err := range map[string]error{
		"Signal": c.Signal(ctx, handle, 15, true), "Kill": c.Kill(ctx, handle), "Stdin": second(c.Stdin(ctx, handle, []byte("x"))),
	} {
		if !errors.Is(err, client.ErrNotRunning) {
			t.Errorf("%s of an exited process: %v, want ErrNotRunning", name, err)
		}
	}
	if err := c.Resize(ctx, "p_0", 80, 24); !errors.Is(err, client.ErrUnknownHandle) {
		t.Errorf("Resize of an unknown handle: %v", err)
	}
	rows, err := c.List(ctx)
	if err != nil || len(rows) != 1 || rows[0].Handle != handle || rows[0].StdoutLen != 6 {
		t.Errorf("List: %+v, %v", rows, err)
	}
}

func second(_ int, err error) error { return err }

func TestRealJournal(t *testing.T) {
	_, c := connect(t)
	handle := start(t, c, "true")
	if _, err := c.Wait(t.Context(), handle); err != nil {
		t.Fatal(err)
	}
	info, err := c.JournalInfo(t.Context())
	if err != nil || info.FirstSeq != 1 || info.HeadSeq == 0 || len(info.HeadHash) != 64 {
		t.Errorf("JournalInfo: %+v, %v", info, err)
	}
	read, err := c.JournalRead(t.Context(), client.JournalReadRequest{})
	if err != nil || uint64(len(read.Records)) < info.HeadSeq {
		t.Fatalf("JournalRead: %d records, %v", len(read.Records), err)
	}
	if !bytes.Contains(bytes.Join(read.Records, nil), []byte(`"kind":"proc.exited","handle":"`+handle+`"`)) {
		t.Error("the exit is not among the records")
	}
}

// C20: waiters that give up cost the others nothing.
func TestRealWaiters(t *testing.T) {
	_, c := connect(t)
	handle := start(t, c, "sh", "-c", "read x; exit 5")
	patient, cancelPatient := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancelPatient()
	hasty, giveUp := context.WithCancel(patient)
	var waiters, gaveUp sync.WaitGroup
	for range 50 {
		waiters.Go(func() {
			if exit, err := c.Wait(patient, handle); err != nil || exit.ExitCode != 5 {
				t.Errorf("%+v, %v", exit, err)
			}
		})
		gaveUp.Go(func() {
			if _, err := c.Wait(hasty, handle); !errors.Is(err, context.Canceled) {
				t.Errorf("%v, want the context's error", err)
			}
		})
	}
	giveUp()
	gaveUp.Wait()
	if err := c.CloseStdin(patient, handle); err != nil {
		t.Error(err)
	}
	waiters.Wait()
}

// What follows and waits outlives the agent; nothing is lost or twice.
func TestRealCrash(t *testing.T) {
	a, c := connect(t)
	fifo := filepath.Join(a.dir, "fifo")
	if err := syscall.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	handle := start(t, c, "sh", "-c", "seq 1000; cat "+fifo+"; seq 1001 2000")
	var got bytes.Buffer
	for k, err := range c.Follow(t.Context(), handle, client.Position{}) {
		if err != nil || k.Dropped != 0 {
			t.Fatal(k, err)
		}
		got.Write(k.Data)
		if bytes.HasSuffix(got.Bytes(), []byte("\n1000\n")) {
			a.cmd.Process.Kill()
			a.cmd.Wait()
			next, err := startAgent(a.dir)
			if err != nil {
				t.Fatal(err)
			}
			a.cmd = next.cmd
			if err := os.WriteFile(fifo, nil, 0); err != nil {
				t.Fatal(err)
			}
		}
	}
	var want bytes.Buffer
	for i := range 2000 {
		fmt.Fprintln(&want, i+1)
	}
	if !bytes.Equal(got.Bytes(), want.Bytes()) {
		t.Errorf("read %d bytes, want %d", got.Len(), want.Len())
	}
	if exit, err := c.Wait(t.Context(), handle); err != nil || exit.Running {
		t.Errorf("%+v, %v", exit, err)
	}
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
		_, c := connect(b, "PT_PROC_BUF_BYTES=600000000")
		b.SetBytes(size)
		for b.Loop() {
			handle, n := start(b, c, argv...), 0
			for k, err := range c.Follow(b.Context(), handle, client.Position{}) {
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
