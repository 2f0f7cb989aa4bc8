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

// writeMany makes a journal of so many records, of an agent that is polled a lot:
// for each process the six records of its life and forty verbs, with snapshots as
// agents store them.
func writeMany(b testing.TB, path string, most int) {
	s, registry := newStory(), statemachine.NewRegistry()
	j, err := journal.Open(path, journal.Options{Sync: journal.Off, MaxBytes: 1 << 30})
	if err != nil {
		b.Fatal(err)
	}
	for n := 0; n < most; n += len(s.records) {
		s.records = s.records[:0]
		for i := range min(100, (most-n+45)/46) {
			liveAndLeave(s, fmt.Sprintf("p_%016x", n+i), 1000+n+i)
		}
		s.records = s.records[:min(len(s.records), most-n)]
		if _, err := j.Append(s.payloads()...); err != nil {
			b.Fatal(err)
		}
		const every = 60_000
		due := registry.Seq()/every != (registry.Seq()+uint64(len(s.records)))/every
		for _, r := range s.records {
			r.Seq = registry.Seq() + 1
			if err := registry.Apply(&r); err != nil {
				b.Fatal(err)
			}
		}
		if due {
			if err := j.WriteSnapshot(journal.Snapshot{
				Seq: registry.Seq(), Version: statemachine.SnapshotVersion, Blob: registry.EncodeSnapshot(),
			}); err != nil {
				b.Fatal(err)
			}
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

// However many records there are, few are folded to derive a state.
func TestStateStartsNear(t *testing.T) {
	const many, most = 200_000, 65_536
	path := place(t)
	writeMany(t, path, many)
	src, err := openFile(path)
	if err != nil {
		t.Fatal(err)
	}
	defer src.close()
	for at := uint64(1); at <= many; at += 9_999 {
		r, err := start(src, 1, at)
		if err != nil || r.Seq() > at || at-r.Seq() > most {
			t.Errorf("the state at record %d starts at %d: %v", at, r.Seq(), err)
		}
	}
}

// BenchmarkMillion reads a journal of a million records: each command as a
// user calls it, and what it consists of. The file is made once.
func BenchmarkMillion(b *testing.B) {
	path := filepath.Join(b.TempDir(), "journal.db")
	writeMany(b, path, million)
	info, err := os.Stat(path)
	if err != nil {
		b.Fatal(err)
	}
	b.Logf("%d MiB", info.Size()>>20)
	for _, args := range [][]string{
		{"verify", path}, {"state", path}, {"state", "--at", "59000", path}, {"state", "--at", "500000", path}, {"state", "--at", "999000", path},
		{"events", path}, {"events", "--json", path},
	} {
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
		f := fold{registry: statemachine.NewRegistry()}
		for stored, err := range records(src, 0, million) {
			if err == nil {
				_, err = f.apply(stored)
			}
			if err != nil {
				return err
			}
		}
		return nil
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
