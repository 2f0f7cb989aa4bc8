package procs

import (
	"io"
	"os"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"

	"supervisor/internal/testproc"
)

// benchTable makes a Table that calls observe.
func benchTable(b *testing.B, observe func(Observation)) *Table {
	b.Helper()
	t, err := New(Options{Dir: b.TempDir(), Observe: observe, TailBytes: 8192})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { t.Close() })
	return t
}

// BenchmarkStart starts /bin/true and waits until it has exited and its
// streams have ended, against os.StartProcess with two pipes read to the end.
func BenchmarkStart(b *testing.B) {
	for _, clients := range []int{1, 8, 64} {
		b.Run("table/"+strconv.Itoa(clients), func(b *testing.B) { benchStart(b, clients) })
		b.Run("os/"+strconv.Itoa(clients), func(b *testing.B) {
			concurrently(b, clients, func(int) { startBare(b) })
		})
	}
}

func benchStart(b *testing.B, clients int) {
	ended := make(map[string]chan struct{}, b.N)
	for i := range b.N {
		ended["p"+strconv.Itoa(i)] = make(chan struct{}, 2)
	}
	t := benchTable(b, func(o Observation) {
		switch o.(type) {
		case Exited, Closed:
			ended[o.handle()] <- struct{}{}
		case SpawnFailed:
			b.Error(o)
			close(ended[o.handle()])
		}
	})
	env := os.Environ()
	b.ResetTimer()
	concurrently(b, clients, func(i int) {
		h := "p" + strconv.Itoa(i)
		t.Start(h, Spec{Argv: []string{"/bin/true"}, Cwd: "/", Env: env})
		<-ended[h]
		<-ended[h]
		t.Forget(h)
	})
}

// concurrently calls f for 0..b.N-1 from some goroutines.
func concurrently(b *testing.B, clients int, f func(i int)) {
	var wg sync.WaitGroup
	next := make(chan int, clients)
	for range clients {
		wg.Go(func() {
			for i := range next {
				f(i)
			}
		})
	}
	for i := range b.N {
		next <- i
	}
	close(next)
	wg.Wait()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "starts/s")
}

func startBare(b *testing.B) {
	var ours, theirs [2]*os.File
	for i := range ours {
		var err error
		if ours[i], theirs[i], err = os.Pipe(); err != nil {
			b.Error(err)
			return
		}
		defer ours[i].Close()
	}
	p, err := os.StartProcess("/bin/true", []string{"/bin/true"}, &os.ProcAttr{
		Dir: "/", Files: []*os.File{nil, theirs[0], theirs[1]}, Sys: &syscall.SysProcAttr{Setsid: true},
	})
	theirs[0].Close()
	theirs[1].Close()
	if err != nil {
		b.Error(err)
		return
	}
	for _, r := range ours {
		_, _ = io.Copy(io.Discard, r)
	}
	_, _ = p.Wait()
}

// BenchmarkOutput pumps 500 MB of a writer of 64 KiB pieces into the ring,
// against reading the pipe in 64 KiB pieces and throwing them away.
func BenchmarkOutput(b *testing.B) {
	const bytes = 500 << 20
	argv := []string{"/usr/bin/head", "-c", strconv.Itoa(bytes), "/dev/zero"}
	b.Run("table", func(b *testing.B) { benchPump(b, argv, bytes) })
	b.Run("discard", func(b *testing.B) { benchDiscard(b, argv, bytes, 64<<10) })
}

// BenchmarkSmallWrites pumps the output of a writer of 100 bytes at a time,
// against a goroutine in the poller of the Go runtime.
func BenchmarkSmallWrites(b *testing.B) {
	const bytes = 100 << 20
	argv := testproc.Argv("small", strconv.Itoa(bytes))
	b.Run("table", func(b *testing.B) { benchPump(b, argv, bytes) })
	b.Run("netpoller", func(b *testing.B) { benchDiscard(b, argv, bytes, 32<<10) })
}

func benchPump(b *testing.B, argv []string, bytes int64) {
	closed := make(chan Closed, 1)
	t := benchTable(b, func(o Observation) {
		if c, ok := o.(Closed); ok {
			closed <- c
		}
	})
	b.SetBytes(bytes)
	cpu := cpuTime()
	for i := range b.N {
		h := "p" + strconv.Itoa(i)
		t.Start(h, Spec{Argv: argv, Env: os.Environ()})
		if c := <-closed; c.StdoutLen != bytes {
			b.Fatalf("%d bytes", c.StdoutLen)
		}
		t.Forget(h)
	}
	reportCPU(b, cpu, bytes)
}

func benchDiscard(b *testing.B, argv []string, bytes int64, piece int) {
	b.SetBytes(bytes)
	cpu := cpuTime()
	buf := make([]byte, piece)
	for range b.N {
		r, w, err := os.Pipe()
		if err != nil {
			b.Fatal(err)
		}
		p, err := os.StartProcess(argv[0], argv, &os.ProcAttr{Files: []*os.File{nil, w, nil}})
		w.Close()
		if err != nil {
			b.Fatal(err)
		}
		for err == nil {
			_, err = r.Read(buf)
		}
		r.Close()
		_, _ = p.Wait()
	}
	reportCPU(b, cpu, bytes)
}

// cpuTime is what this process, without its children, has used.
func cpuTime() time.Duration {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

func reportCPU(b *testing.B, before time.Duration, bytes int64) {
	used := (cpuTime() - before).Seconds()
	b.ReportMetric(used/(float64(b.N)*float64(bytes)/1e9), "cpu-s/GB")
}
