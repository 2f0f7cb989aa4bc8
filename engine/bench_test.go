package engine

import (
	"context"
	"fmt"
	"os"
	"sync/atomic"
	"testing"

	"supervisor/wire"
)

// BenchmarkStartWait is a durable start and the wait for its exit, beside the
// bare start and wait of the same program.
func BenchmarkStartWait(b *testing.B) {
	for _, clients := range []int{1, 8, 64} {
		b.Run(fmt.Sprintf("engine/clients=%d", clients), func(b *testing.B) {
			a := newAgent(b, func(c *Config) { c.MaxProcs = 1000 })
			parallel(b, clients, func() {
				r, err := a.Start(context.Background(), caller("proc_start"), wire.StartRequest{Cmd: []string{"/bin/true"}})
				if err != nil {
					b.Error(err)
					return
				}
				a.wait(r.Handle)
			})
		})
		b.Run(fmt.Sprintf("bare/clients=%d", clients), func(b *testing.B) {
			parallel(b, clients, func() { bareStartWait(b) })
		})
	}
}

// parallel runs f b.N times from that many goroutines.
func parallel(b *testing.B, clients int, f func()) {
	var next atomic.Int64
	done := make(chan struct{})
	b.ResetTimer()
	for range clients {
		go func() {
			for next.Add(1) <= int64(b.N) {
				f()
			}
			done <- struct{}{}
		}()
	}
	for range clients {
		<-done
	}
	b.StopTimer()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "starts/s")
}

// bareStartWait starts /bin/true with two pipes and waits for it.
func bareStartWait(b *testing.B) {
	outR, outW, err := os.Pipe()
	if err != nil {
		b.Error(err)
		return
	}
	defer outR.Close()
	errR, errW, err := os.Pipe()
	if err != nil {
		b.Error(err)
		return
	}
	defer errR.Close()
	p, err := os.StartProcess("/bin/true", []string{"true"}, &os.ProcAttr{Files: []*os.File{nil, outW, errW}})
	outW.Close()
	errW.Close()
	if err != nil {
		b.Error(err)
		return
	}
	if _, err := p.Wait(); err != nil {
		b.Error(err)
	}
}
