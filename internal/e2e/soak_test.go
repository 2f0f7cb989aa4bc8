package e2e

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"supervisor/client"
	"supervisor/internal/testproc"
	"supervisor/statemachine"
)

func init() { testproc.Register("paced", paced) }

// paced prints so many lines of testproc.Line, 64 every 10 ms, and exits with
// a code.
func paced(args []string) int {
	lines, _ := strconv.Atoi(args[0])
	code, _ := strconv.Atoi(args[1])
	for i := 0; i < lines; {
		var piece []byte
		for end := min(i+64, lines); i < end; i++ {
			piece = append(piece, testproc.Line(int64(i))...)
		}
		if _, err := os.Stdout.Write(piece); err != nil {
			return 1
		}
		time.Sleep(10 * time.Millisecond)
	}
	return code
}

// numbered is what paced prints.
func numbered(lines int) []byte {
	var out []byte
	for i := range lines {
		out = append(out, testproc.Line(int64(i))...)
	}
	return out
}

// soakers is how many processes run at any time.
const soakers = 32

// TestSoak upgrades as fast as it goes under processes that write, read, exit
// and are signalled, and whose clients connect again and again: every byte must
// be there and every code right, and the agent must not grow. SOAK says for how
// long.
func TestSoak(t *testing.T) {
	span := 3 * time.Second
	if text := os.Getenv("SOAK"); text != "" {
		var err error
		if span, err = time.ParseDuration(text); err != nil {
			t.Fatal(err)
		}
	}
	a := upgradable(t, "--max-procs", "200", "--proc-buf-bytes", "8388608")
	versions := []image{good(t, "2"), good(t, "1")}
	a.upgrade(versions[0])
	a.upgrade(versions[1])
	before := a.descriptors()
	end := time.Now().Add(span)
	var group sync.WaitGroup
	counted := counter{digests: map[string]string{}}
	for slot := range soakers {
		group.Go(func() { soak(t, a, slot, end, &counted) })
	}
	var memory []int // KiB, of each image as it begins
	for time.Now().Before(end) && !t.Failed() {
		a.upgrade(versions[len(memory)%2])
		memory = append(memory, a.status("RssAnon"))
	}
	group.Wait()
	t.Logf("%d upgrades in %v; %d processes, %d bytes", len(memory), span, len(counted.digests), counted.bytes)
	eventually(t, "as many descriptors as before", func() bool { return a.descriptors() <= before })
	staysFlat(t, memory)
	counted.checkJournal(t, a)
}

// staysFlat fails if the agent needs more memory at the end than early on, when
// the registry has filled up.
func staysFlat(t *testing.T, memory []int) {
	t.Helper()
	fifth := len(memory) / 5
	if fifth < 4 { // too few to tell growth from chance
		return
	}
	early, late := median(memory[fifth:2*fifth+1]), median(memory[4*fifth:])
	if t.Logf("RssAnon is %d KiB early, %d KiB late", early, late); late > early+early/4+4<<10 {
		t.Error("the agent grows from image to image")
	}
}

func median(numbers []int) int {
	sorted := slices.Sorted(slices.Values(numbers))
	return sorted[len(sorted)/2]
}

// counter counts what was checked.
type counter struct {
	sync.Mutex
	bytes   int
	digests map[string]string // of all that a process wrote, by handle
}

func (c *counter) add(handle string, output []byte) {
	c.Lock()
	defer c.Unlock()
	sum := sha256.Sum256(output)
	c.digests[handle] = hex.EncodeToString(sum[:])
	c.bytes += len(output)
}

// checkJournal compares what clients read with what the images hashed, one
// after the other, on the way.
func (c *counter) checkJournal(t *testing.T, a *agent) {
	t.Helper()
	checked := 0
	err := a.eachRecord(func(r record) {
		want, ok := c.digests[r.Handle]
		if !ok || r.Kind != statemachine.KindDrained {
			return
		}
		if checked++; r.Data["stdout_sha256"] != want {
			t.Errorf("%s: the digest is %v, not %v", r.Handle, r.Data["stdout_sha256"], want)
		}
	})
	if err != nil || checked == 0 {
		t.Errorf("%d digests were compared, %v", checked, err)
	}
	t.Logf("%d digests compared", checked)
}

// soak runs one process after the other, of one kind after the other.
func soak(t *testing.T, a *agent, slot int, end time.Time, counted *counter) {
	kinds := []func(ctx context.Context, c *client.Client, key string, seed int) (string, []byte, error){pipeSoak, echoSoak, ptySoak, signalSoak}
	for i := slot; time.Now().Before(end) && !t.Failed(); i++ {
		ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
		err := persist(func() error {
			c, err := client.Dial(ctx, a.addr())
			if err != nil {
				return err
			}
			defer c.Close()
			handle, output, err := kinds[i%len(kinds)](ctx, c, fmt.Sprintf("%d-%d", slot, i), i)
			if err == nil {
				counted.add(handle, output)
			}
			return err
		})
		cancel()
		if err != nil {
			t.Errorf("slot %d, round %d: %v", slot, i, err)
		}
	}
}

// persist repeats what an upgrade got in the way of.
func persist(f func() error) error {
	for {
		err := f()
		if !passing(err) {
			return err
		}
		time.Sleep(time.Millisecond)
	}
}

// passing is an error that an upgrade explains.
func passing(err error) bool {
	return errors.Is(err, client.ErrDisconnected) || errors.Is(err, client.ErrUnavailable)
}

// begin starts a process once, however often it has to ask.
func begin(ctx context.Context, c *client.Client, r client.StartRequest) (handle string, err error) {
	err = persist(func() error {
		reply, err := c.Start(ctx, r)
		handle = reply.Handle
		return err
	})
	return handle, err
}

// finish checks what a process wrote and how it ended.
func finish(ctx context.Context, c *client.Client, handle string, want []byte, code int) (string, []byte, error) {
	out, err := output(ctx, c, handle)
	if err != nil {
		return "", nil, err
	}
	if out[0] != string(want) || out[1] != "" {
		return "", nil, fmt.Errorf("%s wrote %d bytes of %d, and %q", handle, len(out[0]), len(want), out[1])
	}
	e, err := c.Wait(ctx, handle)
	if err == nil && (e.Running || e.ExitCode != code || e.Signal != max(0, code-128)) {
		err = fmt.Errorf("%s ended as %+v, not with %d", handle, e, code)
	}
	return handle, want, err
}

func pipeSoak(ctx context.Context, c *client.Client, key string, seed int) (handle string, output []byte, err error) {
	lines, code := 1000+seed%50*200, seed%100
	h, err := begin(ctx, c, client.StartRequest{Cmd: testproc.Argv("paced", fmt.Sprint(lines), fmt.Sprint(code)), Idem: key})
	if err != nil {
		return "", nil, err
	}
	return finish(ctx, c, h, numbered(lines), code)
}

func ptySoak(ctx context.Context, c *client.Client, key string, seed int) (handle string, output []byte, err error) {
	lines, code := 500+seed%50*100, seed%100
	h, err := begin(ctx, c, client.StartRequest{Cmd: testproc.Argv("paced", fmt.Sprint(lines), fmt.Sprint(code)), PTY: true, Idem: key})
	if err != nil {
		return "", nil, err
	}
	return finish(ctx, c, h, bytes.ReplaceAll(numbered(lines), []byte("\n"), []byte("\r\n")), code)
}

// echoSoak writes piece by piece and expects all of it back.
func echoSoak(ctx context.Context, c *client.Client, key string, seed int) (handle string, output []byte, err error) {
	h, err := begin(ctx, c, client.StartRequest{Cmd: []string{"cat"}, Idem: key})
	if err != nil {
		return "", nil, err
	}
	want := numbered(4000)
	for rest := want; len(rest) > 0; time.Sleep(5 * time.Millisecond) {
		n, err := c.Stdin(ctx, h, rest[:min(len(rest), 1000+seed%7*1000)])
		rest = rest[n:] // a request that was not answered was not executed
		if err != nil && !passing(err) && !errors.Is(err, client.ErrWriteDeadline) {
			return "", nil, err
		}
	}
	err = persist(func() error {
		err := c.CloseStdin(ctx, h)
		if errors.Is(err, client.ErrStdinClosed) || errors.Is(err, client.ErrNotRunning) {
			return nil // the answer to the first request was lost
		}
		return err
	})
	if err != nil {
		return "", nil, err
	}
	return finish(ctx, c, h, want, 0)
}

// signalSoak ends a process by a signal and expects its code.
func signalSoak(ctx context.Context, c *client.Client, key string, seed int) (handle string, output []byte, err error) {
	h, err := begin(ctx, c, client.StartRequest{Cmd: []string{"/bin/sh", "-c", "echo ready; exec sleep 600"}, Idem: key})
	if err != nil {
		return "", nil, err
	}
	time.Sleep(time.Duration(seed%20) * time.Millisecond) // over upgrades or not
	signal := []syscall.Signal{syscall.SIGTERM, syscall.SIGKILL, syscall.SIGUSR1}[seed%3]
	ready := func() bool {
		m, err := c.Logs(ctx, client.LogsRequest{Handle: h, WaitMS: 1000})
		return err == nil && strings.HasPrefix(string(m.Stdout), "ready")
	}
	for !ready() {
		if ctx.Err() != nil {
			return "", nil, ctx.Err()
		}
	}
	err = persist(func() error {
		err := c.Signal(ctx, h, int(signal), true)
		if errors.Is(err, client.ErrNotRunning) {
			return nil // as above
		}
		return err
	})
	if err != nil {
		return "", nil, err
	}
	return finish(ctx, c, h, []byte("ready\n"), 128+int(signal))
}
