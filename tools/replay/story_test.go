package main

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"supervisor/journal"
	"supervisor/statemachine"
)

// The processes of the stories.
const (
	web   = "p_00000000000000a1"
	job   = "p_00000000000000b2"
	shell = "p_00000000000000c3"
	ghost = "p_00000000000000d4"
	fresh = "p_00000000000000e5"
)

// story is a journal in the making, on a clock of its own.
type story struct {
	enc     statemachine.Encoder
	now     time.Time
	records []statemachine.Record
}

func newStory() *story {
	return &story{now: time.Date(2026, 3, 1, 23, 59, 58, 0, time.UTC)}
}

// add appends an event, a little later than the one before.
func (s *story) add(handle string, e statemachine.Event) {
	s.now = s.now.Add(100*time.Millisecond + 250*time.Microsecond)
	boot := statemachine.Boot{0x7b, 0x1c}
	stamp := statemachine.Stamp{Instant: statemachine.Instant{Wall: s.now.UnixNano(), Mono: s.now.UnixNano() - 1e18, Boot: boot}}
	s.records = append(s.records, statemachine.Record{Seq: uint64(len(s.records) + 1), Stamp: stamp, Handle: handle, Event: e})
}

// start adds a start that succeeds.
func (s *story) start(handle string, pid int, cmd ...string) {
	s.add(handle, &statemachine.Requested{Spec: statemachine.Spec{Cmd: cmd, Cwd: "/", EnvNames: []string{"HOME"}}})
	s.add(handle, &statemachine.Started{PID: pid, StartTicks: 4711, StdoutIno: 1, StderrIno: 2})
}

// verb adds a request.
func (s *story) verb(handle, op, code string, count int) {
	v := &statemachine.Verb{Op: op, Front: "guest", Peer: "uid=0 pid=42", OK: code == "", Code: code, TookUS: 1234, Count: count}
	if count > 1 {
		v.First = s.now.Add(-time.Second).UnixNano()
	}
	s.add(handle, v)
}

// payloads are the stored forms.
func (s *story) payloads() [][]byte {
	var all [][]byte
	for i := range s.records {
		all = append(all, s.enc.Encode(&s.records[i]))
	}
	return all
}

// registry is the fold of the first n records.
func (s *story) registry(t testing.TB, n int) *statemachine.Registry {
	t.Helper()
	r := statemachine.NewRegistry()
	for i := range s.records[:n] {
		if err := r.Apply(&s.records[i]); err != nil {
			t.Fatal(err)
		}
	}
	return r
}

// write makes a journal of the payloads.
func write(t testing.TB, path string, o journal.Options, payloads [][]byte) {
	t.Helper()
	edit(t, path, o, func(j *journal.Journal) {
		for batch := range slices.Chunk(payloads, 5000) {
			if _, err := j.Append(batch...); err != nil {
				t.Fatal(err)
			}
		}
	})
}

// edit opens a journal, and checks it in the end.
func edit(t testing.TB, path string, o journal.Options, do func(*journal.Journal)) {
	t.Helper()
	o.Sync = journal.Off
	j, err := journal.Open(path, o)
	if err != nil {
		t.Fatal(err)
	}
	do(j)
	if err := j.Verify(nil); err != nil {
		t.Fatal(err)
	}
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
}

// place is where a test's journal is.
func place(t testing.TB) string { return filepath.Join(t.TempDir(), "journal.db") }

// busyDay has a record of every kind, over midnight.
func busyDay() *story {
	s := newStory()
	s.add("", &statemachine.AgentStarted{Version: "1.4.2", PID: 1, ImageSHA256: strings.Repeat("ab", 32), SetAside: "journal.db.damaged-20260301"})
	s.start(web, 142, "python3", "-m", "http.server", "8000")
	s.verb(web, "proc_start", "", 1)
	s.add(job, &statemachine.Requested{Spec: statemachine.Spec{
		Cmd: []string{"sh", "-c", "echo \"a b\"; printf '\x1b[2J'; exit 3"}, Cwd: "/home/me", TimeoutMS: 90_000, Session: "s_0123456789ab"}})
	s.add(job, &statemachine.Started{PID: 143})
	s.add(job, &statemachine.Stdin{Bytes: 17})
	s.add(job, &statemachine.StdinClosed{})
	s.add(job, &statemachine.Exited{ExitCode: 3, Reason: statemachine.ReasonExited, Rusage: statemachine.Rusage{UserUS: 2000, SysUS: 1000, MaxRSSKiB: 3072}})
	s.add(job, &statemachine.Drained{StdoutLen: 20_000, StderrLen: 4, StdoutTail: []byte("\xff\x00last words\n"), StderrTail: []byte("why\n")})
	s.add(ghost, &statemachine.Requested{Spec: statemachine.Spec{Cmd: []string{"/no/such"}, Cwd: "/"}})
	s.add(ghost, &statemachine.StartFailed{Error: "/no/such: not found\nor so"})
	s.verb("", "proc_start", "spawn_failed", 1)
	s.add(shell, &statemachine.Requested{Spec: statemachine.Spec{Cmd: []string{"bash", "-i"}, Cwd: "/", PTY: true, Cols: 80, Rows: 24}})
	s.add(shell, &statemachine.Started{PID: 144})
	s.add(shell, &statemachine.Resized{Cols: 120, Rows: 40})
	s.verb(web, "proc_logs", "", 61)
	s.add(web, &statemachine.Signalled{Signal: 15, Group: true})
	s.add(web, &statemachine.Deadline{})
	s.add(web, &statemachine.Exited{ExitCode: 143, Signal: 15, Reason: statemachine.ReasonKilled, CoreDumped: true,
		Rusage: statemachine.Rusage{UserUS: 61_000_000, SysUS: 123_456, MaxRSSKiB: 9 << 10}})
	s.add("", &statemachine.AgentStopped{Reason: "SIGTERM"})
	s.now = s.now.Add(26 * time.Hour)
	s.add("", &statemachine.AgentStarted{Version: "1.5.0", PID: 1, ImageSHA256: strings.Repeat("cd", 32)})
	s.add(shell, &statemachine.Orphaned{Stdout: true})
	s.add(web, &statemachine.Drained{StdoutLen: 1})
	s.add(shell, &statemachine.Lost{})
	s.add(job, &statemachine.Collected{Why: statemachine.WhyRetention})
	s.add("", &statemachine.Snapshot{ThroughSeq: 26})
	s.add("", &statemachine.Pruned{ThroughSeq: 4})
	s.add(fresh, &statemachine.Requested{Spec: statemachine.Spec{Cmd: []string{"true"}, Cwd: "/"}})
	return s
}

// future is a day with a record of a kind that is yet to be invented: a map
// of one entry, from "x" to 1.
func future() *story {
	s := newStory()
	s.start(web, 142, "sleep", "60")
	s.add(web, &statemachine.Unknown{Name: "proc.frozen", Data: []byte{0x81, 0xa1, 'x', 0x01}})
	return s
}

// busySignals is a process that is signalled n times.
func busySignals(n int) *story {
	s := newStory()
	s.start(web, 142, "sleep", "60")
	s.start(job, 143, "true")
	s.add(job, &statemachine.Exited{Reason: statemachine.ReasonExited})
	s.add(job, &statemachine.Drained{StdoutLen: 3, StdoutTail: []byte("ok\n")})
	for range n {
		s.add(web, &statemachine.Signalled{Signal: 18})
	}
	return s
}

// writePruned makes a journal whose oldest records were pruned behind a
// snapshot of the first 300.
func writePruned(t testing.TB, path string) *story {
	s := busySignals(400)
	payloads := s.payloads()
	o := journal.Options{MaxBytes: 16 << 10, SegmentRecords: 20}
	write(t, path, o, payloads[:300])
	edit(t, path, o, func(j *journal.Journal) {
		takeSnapshot(t, j, s.registry(t, 300))
		if _, err := j.Append(payloads[300:]...); err != nil {
			t.Fatal(err)
		}
		if j.FirstSeq() < 10 {
			t.Fatalf("nothing was pruned: first record %d", j.FirstSeq())
		}
	})
	return s
}

// takeSnapshot stores a registry as that of the journal's head.
func takeSnapshot(t testing.TB, j *journal.Journal, r *statemachine.Registry) {
	t.Helper()
	head := j.Head()
	err := j.WriteSnapshot(journal.Snapshot{
		Seq: head.Seq, Hash: head.Hash, Version: statemachine.SnapshotVersion, Blob: r.EncodeSnapshot(),
	})
	if err != nil {
		t.Fatal(err)
	}
}
