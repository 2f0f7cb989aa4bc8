package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"supervisor/journal"
	"supervisor/statemachine"
)

const million = 1_000_000

// writeMillion makes the journal of an agent that is polled a lot: for each
// process the six records of its life and forty verbs.
func writeMillion(b *testing.B, path string) {
	s := newStory()
	j, err := journal.Open(path, journal.Options{Sync: journal.Off})
	if err != nil {
		b.Fatal(err)
	}
	for n := 0; n < million; n += len(s.records) {
		s.records = s.records[:0]
		for i := range min(100, (million-n+45)/46) {
			liveAndLeave(s, fmt.Sprintf("p_%016x", n+i), 1000+n+i)
		}
		s.records = s.records[:min(len(s.records), million-n)]
		if _, err := j.Append(s.payloads()...); err != nil {
			b.Fatal(err)
		}
	}
	if err := j.Close(); err != nil {
		b.Fatal(err)
	}
}

func liveAndLeave(s *story, handle string, pid int) {
	s.verb(handle, "proc_start", "", 1)
	s.start(handle, pid, "python3", "-c", "print(1)")
	for range 40 {
		s.verb(handle, "proc_logs", "", 61)
	}
	s.add(handle, &statemachine.Exited{Reason: statemachine.ReasonExited})
	s.add(handle, &statemachine.Drained{StdoutLen: 2, StdoutSHA256: strings.Repeat("cd", 32), StdoutTail: []byte("1\n")})
	s.add(handle, &statemachine.Collected{Why: statemachine.WhyRetention})
}

// BenchmarkMillion reads a journal of a million records: each command as a
// user calls it, and what it consists of. The file is made once.
func BenchmarkMillion(b *testing.B) {
	path := filepath.Join(b.TempDir(), "journal.db")
	writeMillion(b, path)
	info, err := os.Stat(path)
	if err != nil {
		b.Fatal(err)
	}
	b.Logf("%d MiB", info.Size()>>20)
	for _, args := range [][]string{{"verify", path}, {"state", path}, {"events", path}, {"events", "--json", path}} {
		measure(b, strings.Join(args[:len(args)-1], ""), func() error {
			_, stderr, code := invoke(args...)
			return when(code != exitOK, stderr)
		})
	}
	src, err := openFile(path)
	if err != nil {
		b.Fatal(err)
	}
	defer src.close()
	measure(b, "read", func() error {
		for _, err := range records(src, 0, million) {
			if err != nil {
				return err
			}
		}
		return nil
	})
	measure(b, "fold", func() error {
		_, err := foldTo(src, 1, million)
		return err
	})
}

func measure(b *testing.B, name string, do func() error) {
	b.Run(name, func(b *testing.B) {
		for b.Loop() {
			if err := do(); err != nil {
				b.Fatal(err)
			}
		}
		b.ReportMetric(million*float64(b.N)/b.Elapsed().Seconds(), "records/s")
	})
}

// when makes an error of a text.
func when(failed bool, text string) error {
	if failed {
		return errors.New(text)
	}
	return nil
}
