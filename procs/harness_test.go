package procs

import (
	"bytes"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"supervisor/internal/testproc"
)

func TestMain(m *testing.M) {
	testproc.Register("agent", agentRole)
	testproc.Register("disposition", dispositionRole)
	testproc.Register("orphans", orphansRole)
	testproc.Main()
	CatchIgnored() // as the agent does: make(1) starts us with signals ignored
	os.Exit(m.Run())
}

const patience = 20 * time.Second

// world is a Table under test with everything that was observed.
type world struct {
	*Table
	t testing.TB

	mu       sync.Mutex
	seen     map[string][]Observation
	arrived  *sync.Cond
	handleNo int
}

// newWorld makes a Table that the test leaves without descriptors, children
// or goroutines.
func newWorld(t testing.TB, change ...func(*Options)) *world {
	t.Helper()
	testproc.NoLeaks(t)
	return anotherWorld(t, change...)
}

// anotherWorld is newWorld beside one whose leaks are looked for already.
func anotherWorld(t testing.TB, change ...func(*Options)) *world {
	t.Helper()
	w := &world{t: t, seen: make(map[string][]Observation)}
	w.arrived = sync.NewCond(&w.mu)
	o := Options{Dir: t.TempDir(), TailBytes: 64, Observe: w.observe}
	for _, c := range change {
		c(&o)
	}
	table, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	w.Table = table
	t.Cleanup(w.end)
	return w
}

// end kills what still runs and closes the Table.
func (w *world) end() {
	for handle := range w.procs {
		_ = w.Signal(handle, 9, true)
	}
	testproc.Eventually(patience, func() bool {
		for handle, p := range w.procs {
			w.Sweep()
			p.mu.Lock()
			running := p.running
			p.mu.Unlock()
			if running || w.Leftovers(handle) {
				return false
			}
		}
		return true
	})
	if err := w.Close(); err != nil {
		w.t.Error(err)
	}
}

func (w *world) observe(o Observation) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.seen[o.handle()] = append(w.seen[o.handle()], o)
	w.arrived.Broadcast()
}

// await returns the observation of type T, waiting for it.
func await[T Observation](w *world, handle string) T {
	w.t.Helper()
	o, ok := awaitOr[T](w, handle, patience)
	if !ok {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.t.Fatalf("%s: no %T in %v, only %+v", handle, o, patience, w.seen[handle])
	}
	return o
}

func awaitOr[T Observation](w *world, handle string, within time.Duration) (o T, ok bool) {
	deadline := time.Now().Add(within)
	timer := time.AfterFunc(within, w.arrived.Broadcast)
	defer timer.Stop()
	w.mu.Lock()
	defer w.mu.Unlock()
	for {
		for _, o := range w.seen[handle] {
			if o, ok := o.(T); ok {
				return o, true
			}
		}
		if !time.Now().Before(deadline) {
			return o, false
		}
		w.arrived.Wait()
	}
}

// begin starts a process and waits until it runs.
func (w *world) begin(s Spec) string {
	w.t.Helper()
	handle := w.launch(s)
	o, _ := awaitOr[Spawned](w, handle, patience)
	if o.PID == 0 {
		w.t.Fatalf("%q did not start: %+v", s.Argv, w.seen[handle])
	}
	return handle
}

// launch starts a process.
func (w *world) launch(s Spec) string {
	w.mu.Lock()
	w.handleNo++
	handle := handleOf(w.handleNo)
	w.mu.Unlock()
	if s.Env == nil {
		s.Env = os.Environ()
	}
	w.Start(handle, s)
	return handle
}

func handleOf(n int) string { return fmt.Sprintf("p_%016x", n) }

// newBareWorld is newWorld for a process that is no test: fail prints what is
// wrong and returns the exit code.
func newBareWorld(dir string) (w *world, fail func(...any) int) {
	fail = func(what ...any) int {
		fmt.Fprintln(os.Stderr, what...)
		return 1
	}
	w = &world{seen: make(map[string][]Observation)}
	w.arrived = sync.NewCond(&w.mu)
	var err error
	if w.Table, err = New(Options{Dir: dir, Observe: w.observe}); err != nil {
		os.Exit(fail(err))
	}
	return w, fail
}

// result is a process that was waited for.
type result struct {
	exit           Exited
	stdout, stderr string
}

// run starts a process and waits until it has ended and its streams too.
func (w *world) run(s Spec) result {
	w.t.Helper()
	return w.finish(w.begin(s))
}

func (w *world) finish(handle string) result {
	w.t.Helper()
	exit := await[Exited](w, handle)
	await[Closed](w, handle)
	return result{exit, w.read(handle, Stdout), w.read(handle, Stderr)}
}

// read returns all that a ring holds.
func (w *world) read(handle string, s Stream) string {
	w.t.Helper()
	r := w.Output(handle, s)
	var all bytes.Buffer
	buf := make([]byte, 100_000)
	for off := r.First(); ; {
		n, first, err := r.ReadAt(buf, off)
		if err != nil {
			w.t.Fatal(err)
		}
		if n == 0 {
			return all.String()
		}
		all.Write(buf[:n])
		off = max(off, first) + int64(n)
	}
}

// awaitOutput waits until the stdout of a process holds text.
func (w *world) awaitOutput(handle, text string) {
	w.t.Helper()
	r := w.Output(handle, Stdout)
	deadline := time.After(patience)
	for {
		changed := r.Changed()
		got := w.read(handle, Stdout)
		if strings.Contains(got, text) {
			return
		}
		if r.Ended() {
			w.t.Fatalf("%s ended without %q: %q", handle, text, got)
		}
		select {
		case <-changed:
		case <-deadline:
			w.t.Fatalf("%s: no %q in %q", handle, text, got)
		}
	}
}

func sh(script string) Spec   { return Spec{Argv: []string{"/bin/sh", "-c", script}} }
func bash(script string) Spec { return Spec{Argv: []string{"/bin/bash", "-c", script}} }
func onPTY(s Spec) Spec {
	s.PTY, s.Cols, s.Rows = true, 80, 24
	return s
}
