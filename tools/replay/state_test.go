package main

import (
	"encoding/json"
	"fmt"
	"strconv"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"supervisor/journal"
	"supervisor/statemachine"
)

// tell adds to the story what a registry decides on random commands.
func tell(t *rapid.T, s *story, r *statemachine.Registry) {
	limits := statemachine.Limits{MaxProcs: 4, RetainNS: 2e9}
	handle := rapid.Custom(func(t *rapid.T) string { return fmt.Sprintf("p_%016x", rapid.IntRange(1, 6).Draw(t, "n")) })
	commands := rapid.Custom(func(t *rapid.T) statemachine.Command {
		h := handle.Draw(t, "handle")
		return rapid.SampledFrom([]statemachine.Command{
			statemachine.Start{Handle: h, Spec: statemachine.Spec{Cmd: []string{"true"}, Cwd: "/"}},
			statemachine.Spawned{Handle: h, Started: statemachine.Started{PID: 7}},
			statemachine.SpawnFailed{Handle: h, Error: "no"},
			statemachine.Ended{Handle: h, Known: true, Code: 130, Signal: 2},
			statemachine.StreamsEnded{Handle: h, Drained: statemachine.Drained{StdoutLen: 9}},
			statemachine.Missing{Handle: h},
			statemachine.Tick{},
			statemachine.Note{Event: &statemachine.Verb{Op: "proc_list", OK: true}},
		}).Draw(t, "command")
	})
	used := map[string]bool{} // a handle is never used again
	for range rapid.IntRange(1, 60).Draw(t, "commands") {
		command := commands.Draw(t, "command")
		if start, ok := command.(statemachine.Start); ok && used[start.Handle] {
			continue
		}
		now := statemachine.Instant{Wall: s.now.UnixNano(), Mono: s.now.UnixNano() - 1e18}
		for _, e := range r.Decide(limits, now, command).Events {
			used[e.Handle] = true
			s.add(e.Handle, e.Event)
			if err := r.Apply(&s.records[len(s.records)-1]); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// The state after each record is the fold of the records up to it, whether or
// not there is a snapshot.
func TestStateAtEveryRecord(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		s, path, _ := tellStory(t, rt, false)
		for seq := 1; seq <= len(s.records); seq++ {
			checkState(t, path, s, seq)
		}
		if _, stderr, code := invoke("verify", path); code != exitOK {
			t.Fatal(stderr)
		}
	})
}

// checkState compares what state prints with a fold of the story.
func checkState(t *testing.T, path string, s *story, seq int) {
	t.Helper()
	stdout, stderr, code := invoke("state", path, "--json", "--at", strconv.Itoa(seq))
	var got stateJSON
	if err := json.Unmarshal([]byte(stdout), &got); err != nil || code != exitOK || stderr != "" {
		t.Fatalf("at %d: exit %d, %q, %v", seq, code, stderr, err)
	}
	if got.Seq != uint64(seq) || !got.Time.Equal(*utc(s.records[seq-1].Stamp.Wall)) {
		t.Errorf("at %d: it says record %d of %s", seq, got.Seq, got.Time)
	}
	var procs, starting []string
	for _, p := range got.Procs {
		procs = append(procs, fmt.Sprintln(p.Handle, p.State, p.Running, p.Drained, p.ExitCode, p.Signal, p.Reason, p.StdoutLen))
	}
	for _, p := range got.Starting {
		starting = append(starting, p.Handle)
	}
	var wantProcs, wantStarting []string
	for _, p := range s.registry(t, seq).Processes() {
		drained := p.State == statemachine.StateClosed || p.State == statemachine.StateDrained
		if p.State == statemachine.StateRequested {
			wantStarting = append(wantStarting, p.Handle)
		} else {
			wantProcs = append(wantProcs, fmt.Sprintln(p.Handle, p.State, p.State.Alive(), drained,
				p.Exit.ExitCode, p.Exit.Signal, p.Exit.Reason, p.Output.StdoutLen))
		}
	}
	if diff := cmp.Diff(wantProcs, procs) + cmp.Diff(wantStarting, starting); diff != "" {
		t.Errorf("at %d: (-want +got)\n%s", seq, diff)
	}
}

// A moment is looked for by the last record that is not later, also where the
// clock was set back.
func TestStateAtATime(t *testing.T) {
	s := busyDay()
	for i := range s.records[20:] { // an hour back, after record 20
		s.records[20+i].Stamp.Wall = s.records[i].Stamp.Wall - 3600e9
	}
	path := place(t)
	write(t, path, journal.Options{}, s.payloads())
	for _, c := range []struct {
		at   int64
		want uint64
	}{
		{s.records[28].Stamp.Wall, 29},
		{s.records[27].Stamp.Wall, 28},
		{s.records[0].Stamp.Wall + 1, 29},
		{s.records[20].Stamp.Wall, 21},
	} {
		stdout, stderr, code := invoke("state", path, "--json", "--at", utc(c.at).Format("2006-01-02T15:04:05.999999999Z"))
		var got stateJSON
		if err := json.Unmarshal([]byte(stdout), &got); err != nil || code != exitOK || got.Seq != c.want {
			t.Errorf("at %s: record %d, want %d (%s)", utc(c.at), got.Seq, c.want, stderr)
		}
	}
}
