package statemachine

import (
	"crypto/sha256"
	"fmt"
	"strings"
	"testing"
)

// busyDay is the journal of an agent that is polled a lot: for each process
// the records of its life and forty verbs.
func busyDay(processes int) [][]byte {
	var enc Encoder
	var payloads [][]byte
	add := func(handle string, e Event) {
		seq := uint64(len(payloads) + 1)
		stamp := Stamp{Instant{1_790_000_000_000_000_000 + int64(seq)*1e6, int64(seq) * 1e6, testBoot}, 3}
		payloads = append(payloads, enc.Encode(&Record{Seq: seq, Stamp: stamp, Handle: handle, Event: e}))
	}
	add("", &AgentStarted{Version: "1.4.2", PID: 412, ImageSHA256: strings.Repeat("ab", 32)})
	for i := range processes {
		h := fmt.Sprintf("p_%032x", i)
		add(h, &Requested{Spec{Cmd: []string{"python3", "-c", "print(1)"}, Cwd: "/home/user", EnvNames: []string{"HOME", "PATH", "LANG"}}})
		add(h, &Started{PID: 1000 + i, StartTicks: uint64(88000 + i), StdoutIno: 5511, StderrIno: 5512})
		for range 40 {
			add(h, &Verb{Op: "proc_logs", Front: "guest", Peer: "vsock:2", OK: true, TookUS: 84, Count: 61, First: 1_790_000_000_000_000_000})
		}
		add(h, &Exited{Reason: ReasonExited, Rusage: Rusage{UserUS: 8123, SysUS: 2044, MaxRSSKiB: 9120}})
		add(h, &Drained{StdoutLen: 2, StdoutSHA256: strings.Repeat("cd", 32), StdoutTail: []byte("1\n")})
		if i >= 64 {
			add(fmt.Sprintf("p_%032x", i-64), &Collected{Why: WhyRetention})
		}
	}
	return payloads
}

// BenchmarkFold compares a replay's work for a record, reading and applying
// it, with hashing it, which a replay that verifies the chain cannot avoid.
func BenchmarkFold(b *testing.B) {
	payloads := busyDay(500)
	bytes := 0
	for _, p := range payloads {
		bytes += len(p)
	}
	run := func(name string, day func()) {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				day()
			}
			n := float64(b.N * len(payloads))
			b.ReportMetric(n/b.Elapsed().Seconds(), "records/s")
			b.ReportMetric(float64(bytes)/float64(len(payloads)), "B/record")
		})
	}
	run("decode+apply", func() {
		if _, err := fold(payloads); err != nil {
			b.Fatal(err)
		}
	})
	run("sha256", func() {
		var chain [sha256.Size]byte
		for _, p := range payloads {
			h := sha256.New()
			h.Write(chain[:])
			h.Write(p)
			h.Sum(chain[:0])
		}
	})
}
