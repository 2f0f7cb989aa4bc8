package main

import (
	"encoding/json"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"supervisor/journal"
	"supervisor/statemachine"
)

// tellStory makes a journal of a random story with a snapshot in the middle,
// behind which the oldest records are pruned if that is asked for.
func tellStory(t *testing.T, rt *rapid.T, prune bool) (s *story, path string, cut int) {
	t.Helper()
	s = newStory()
	s.add("", &statemachine.AgentStarted{Version: "1"})
	tell(rt, s, s.registry(t, 1))
	dir, err := os.MkdirTemp(t.TempDir(), "")
	if err != nil {
		t.Fatal(err)
	}
	path = dir + "/journal.db"
	o := journal.Options{SegmentRecords: 5}
	if prune {
		o.MaxBytes = 1
	}
	cut = rapid.IntRange(1, len(s.records)).Draw(rt, "snapshot")
	write(t, path, o, s.payloads()[:cut])
	edit(t, path, o, func(j *journal.Journal) {
		takeSnapshot(t, j, s.registry(t, cut))
		if cut < len(s.records) {
			if _, err := j.Append(s.payloads()[cut:]...); err != nil {
				t.Fatal(err)
			}
		}
	})
	return s, path, cut
}

// why never contradicts state: of every process that there is at a moment it
// tells the same, row for row, also where the past was pruned; and of one that
// was forgotten what was last known.
func TestWhyAgreesWithState(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		prune := rapid.Bool().Draw(rt, "prune")
		s, path, cut := tellStory(t, rt, prune)
		src, err := openFile(path)
		if err != nil {
			t.Fatal(err)
		}
		defer src.close()
		least := 1
		if prune {
			least = cut + 1 // all up to the snapshot may be gone
		}
		if least > len(s.records) {
			return
		}
		at := rapid.IntRange(least, len(s.records)).Draw(rt, "at")
		there := s.registry(t, at)
		for handle, last := range lastKnown(t, s, at) {
			p := there.Get(handle)
			if p == nil && prune {
				continue // its records may be gone
			}
			if p == nil {
				p = last
			}
			agree(t, src, at, p)
		}
	})
}

// lastKnown is every process that was there up to a record, as it was last.
func lastKnown(t *testing.T, s *story, at int) map[string]*statemachine.Process {
	all := map[string]*statemachine.Process{}
	r := s.registry(t, 0)
	for i := range s.records[:at] {
		if err := r.Apply(&s.records[i]); err != nil {
			t.Fatal(err)
		}
		if p := r.Get(s.records[i].Handle); p != nil {
			last := *p
			all[p.Handle] = &last
		}
	}
	return all
}

func agree(t *testing.T, src source, at int, p *statemachine.Process) {
	t.Helper()
	var moment position
	if err := moment.Set(strconv.Itoa(at)); err != nil {
		t.Fatal(err)
	}
	c, l, err := findLife(src, &moment, p.Handle)
	if err != nil {
		t.Fatalf("%s at %d: %v", p.Handle, at, err)
	}
	got := c.account(l).Process
	if p.State == statemachine.StateRequested {
		if got != nil {
			t.Errorf("%s at %d: it only was asked for, but: %+v", p.Handle, at, got)
		}
		return
	}
	want := procRow(p)
	if diff := cmp.Diff(&want, got); diff != "" {
		t.Errorf("%s at %d: (-state +why)\n%s", p.Handle, at, diff)
	}
}

// The summary names what the state's reason names.
func TestSummaries(t *testing.T) {
	path := place(t)
	write(t, path, journal.Options{}, crowd(300).payloads())
	stdout, _, _ := invoke("state", "--json", path)
	var state stateJSON
	if err := json.Unmarshal([]byte(stdout), &state); err != nil {
		t.Fatal(err)
	}
	says := map[string]string{
		"exited": "exited with code", "signal": "which no request had sent", "killed": "sent by uid=0 pid=42 (guest front, proc_signal)",
		"timeout": "had run out", "oom": "out of memory", "lost": "while no agent watched", "": "ran at the last record",
	}
	for _, p := range state.Procs {
		stdout, stderr, code := invoke("why", "--json", path, p.Handle)
		var a account
		if err := json.Unmarshal([]byte(stdout), &a); err != nil || code != exitOK || stderr != "" {
			t.Fatal(err, stderr)
		}
		if !strings.Contains(a.Summary, says[p.Reason]) {
			t.Errorf("%s, reason %q: %s", p.Handle, p.Reason, a.Summary)
		}
		if diff := cmp.Diff(&p, a.Process); diff != "" {
			t.Errorf("(-state +why)\n%s", diff)
		}
	}
}

// A process with very many records is told in bounded memory, alike ones as
// one, and what is left out is counted.
func TestManySteps(t *testing.T) {
	s := newStory()
	s.start(web, 142, "sleep", "60")
	for i := range 3000 {
		s.add(web, &statemachine.Signalled{Signal: 10 + i%2})
		s.verb(web, "proc_signal", "", 1)
	}
	for range 50 {
		s.add(web, &statemachine.Stdin{Bytes: 3})
		s.verb(web, "proc_stdin", "", 1)
	}
	path := place(t)
	write(t, path, journal.Options{}, s.payloads())
	stdout, _, _ := invoke("why", "--json", path, web)
	var a account
	if err := json.Unmarshal([]byte(stdout), &a); err != nil {
		t.Fatal(err)
	}
	told := 0
	for _, step := range a.Steps {
		told += max(step.Count, 1)
	}
	last := a.Steps[len(a.Steps)-1]
	if last.Says != "took 150 bytes of input" || last.Count != 50 || last.By == nil {
		t.Errorf("the last step is %+v", last)
	}
	if len(a.Steps) > whySteps || !strings.HasPrefix(a.Unknown[len(a.Unknown)-1], strconv.Itoa(3052-told)+" steps in the middle") {
		t.Errorf("%d steps of %d records; unknown: %q", len(a.Steps), told, a.Unknown)
	}
}

func TestNearestHandles(t *testing.T) {
	for _, c := range []struct{ asked, handle, hint string }{
		{"p_00000000000000a2", "p_00000000000000a1", "; did you mean p_00000000000000a1?"},
		{"p_0000", "p_00000000000000a1", "; did you mean p_00000000000000a1?"},
		{"p_", "p_00000000000000a1", ""},
		{"p_ffffffffffffffff", "p_00000000000000a1", ""},
		{"", "p_00000000000000a1", ""},
	} {
		n := nearest{to: c.asked}
		n.see(c.handle)
		n.see(c.handle)
		if got := n.hint(); got != c.hint {
			t.Errorf("%q: %q", c.asked, got)
		}
	}
}
