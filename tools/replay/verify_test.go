package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	"supervisor/journal"
	"supervisor/statemachine"
)

func TestVerifyNamesTheFirstBadRecord(t *testing.T) {
	good := busyDay()
	altered := func(change func(s *story)) [][]byte {
		s := busyDay()
		change(s)
		return s.payloads()
	}
	cases := []struct {
		name     string
		payloads [][]byte
		want     string
	}{
		{"does not decode", append(good.payloads()[:7], []byte("noise")), "record 8: not a record"},
		{"cannot follow", altered(func(s *story) { s.records[8].Handle = fresh }),
			"record 9: proc.exited of " + fresh + " cannot follow in state absent"},
		{"wrong state", altered(func(s *story) {
			s.records[8].Event = &statemachine.Exited{ExitCode: 3, Signal: 9, Reason: statemachine.ReasonExited}
		}), "record 9: the state after it is wrong: process " + job},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			path := place(t)
			write(t, path, journal.Options{}, c.payloads)
			stdout, stderr, code := invoke("verify", path)
			if code != exitFailed || stdout != "" || !strings.HasPrefix(stderr, "replay: "+c.want) || strings.Count(stderr, "\n") != 1 {
				t.Errorf("exit %d, %q, %q; want %q", code, stdout, stderr, c.want)
			}
		})
	}
}

// A changed byte of a stored record is found and blamed on that record, and
// the file is left as it was.
func TestVerifyFindsAnyChangedByte(t *testing.T) {
	path := place(t)
	s := busyDay()
	write(t, path, journal.Options{}, s.payloads())
	raw, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for i, payload := range s.payloads() {
		at := bytes.Index(raw, payload)
		if at < 0 {
			t.Fatalf("record %d is not in the file", i+1)
		}
		for _, offset := range []int{0, len(payload) / 2, len(payload) - 1} {
			bad := bytes.Clone(raw)
			bad[at+offset] ^= 1
			if err := os.WriteFile(path, bad, 0o600); err != nil {
				t.Fatal(err)
			}
			_, stderr, code := invoke("verify", path)
			if want := fmt.Sprintf("record %d: does not match its hash", i+1); code != exitFailed || !strings.Contains(stderr, want) {
				t.Errorf("exit %d, %q; want %q", code, stderr, want)
			}
			if after, err := os.ReadFile(path); err != nil || !bytes.Equal(after, bad) {
				t.Errorf("the file was changed: %v", err)
			}
		}
	}
}

func TestVerifyComparesTheSnapshot(t *testing.T) {
	s := busyDay()
	cases := []struct {
		name   string
		change func(*journal.Snapshot)
		stdout string
		stderr string
	}{
		{"the right one", func(*journal.Snapshot) {}, "ok: records 1..29, head ", ""},
		{"of another moment", func(snapshot *journal.Snapshot) { snapshot.Blob = s.registry(t, 19).EncodeSnapshot() }, "",
			"replay: record 20: the snapshot after it is not the state that the records give\n"},
		{"of another version", func(snapshot *journal.Snapshot) { snapshot.Version++ }, "ok: records 1..29, head ",
			fmt.Sprintf("replay: the snapshot at record 20 was not compared: it has version %d, this program knows %d\n",
				statemachine.SnapshotVersion+1, statemachine.SnapshotVersion)},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			path := place(t)
			write(t, path, journal.Options{}, s.payloads()[:20])
			edit(t, path, journal.Options{}, func(j *journal.Journal) {
				snapshot := journal.Snapshot{
					Seq: 20, Hash: j.Head().Hash, Version: statemachine.SnapshotVersion, Blob: s.registry(t, 20).EncodeSnapshot(),
				}
				c.change(&snapshot)
				if err := j.WriteSnapshot(snapshot); err != nil {
					t.Fatal(err)
				}
				if _, err := j.Append(s.payloads()[20:]...); err != nil {
					t.Fatal(err)
				}
			})
			stdout, stderr, code := invoke("verify", path)
			if !strings.HasPrefix(stdout, c.stdout) || stderr != c.stderr || (code == exitOK) != (c.stdout != "") {
				t.Errorf("exit %d, %q, %q", code, stdout, stderr)
			}
		})
	}
}

// Damage in a record is told before that in the snapshot: a careless hand that
// changes all copies of a text hits both.
func TestVerifyNamesTheRecordBeforeTheSnapshot(t *testing.T) {
	path := place(t)
	s := busyDay()
	write(t, path, journal.Options{}, s.payloads())
	edit(t, path, journal.Options{}, func(j *journal.Journal) { takeSnapshot(t, j, s.registry(t, len(s.records))) })
	raw, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ old, want string }{
		{"http.server", "record 2: does not match its hash"},
		{"requested_seq", "the snapshot at record 29 does not match its digest"}, // a name that only snapshots hold
	} {
		bad := bytes.ReplaceAll(raw, []byte(c.old), bytes.ToUpper([]byte(c.old)))
		if err := os.WriteFile(path, bad, 0o600); err != nil {
			t.Fatal(err)
		}
		if _, stderr, code := invoke("verify", path); code != exitFailed || !strings.Contains(stderr, c.want) {
			t.Errorf("%s: exit %d, %q; want %q", c.old, code, stderr, c.want)
		}
	}
}

// A journal that was pruned and whose snapshot cannot be read has no state.
func TestPrunedWithoutReadableSnapshot(t *testing.T) {
	path := place(t)
	writePruned(t, path)
	var seq uint64
	edit(t, path, journal.Options{}, func(j *journal.Journal) {
		s, _, err := j.Snapshot()
		s.Version, s.Blob, seq = 99, []byte("from the future"), s.Seq
		if err = errors.Join(err, j.WriteSnapshot(s)); err != nil {
			t.Fatal(err)
		}
	})
	want := fmt.Sprintf("replay: the snapshot at record %d: not a snapshot of this version", seq)
	for _, command := range []string{"verify", "state"} {
		_, stderr, code := invoke(command, path)
		if code != exitFailed || !strings.HasPrefix(stderr, want) {
			t.Errorf("%s: exit %d, %q; want %q", command, code, stderr, want)
		}
	}
}

// Where the newest snapshot cannot be read, an older one and the records after
// it give the same state.
func TestUnreadableSnapshotIsPassedOver(t *testing.T) {
	path := place(t)
	writePruned(t, path)
	before, _, _ := invoke("state", path)
	edit(t, path, journal.Options{}, func(j *journal.Journal) {
		s := journal.Snapshot{Seq: j.Head().Seq, Version: 99, Blob: []byte("from the future")}
		if err := j.WriteSnapshot(s); err != nil {
			t.Fatal(err)
		}
	})
	if after, stderr, _ := invoke("state", path); after != before {
		t.Errorf("state is %q, was %q; %s", after, before, stderr)
	}
	if _, stderr, code := invoke("verify", path); code != exitOK || !strings.Contains(stderr, "has version 99") {
		t.Errorf("verify: exit %d, %q", code, stderr)
	}
}
