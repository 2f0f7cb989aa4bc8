package main

import (
	"cmp"
	"encoding/json"
	"maps"
	"slices"
	"strconv"
	"testing"

	diffs "github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

// rawState is a state as state --json prints it, as anybody would read it.
type rawState struct {
	endpointJSON
	Procs    []fieldsJSON `json:"procs"`
	Starting []fieldsJSON `json:"starting"`
}

// change makes the changes of a diff to a list of rows.
func change(rows []fieldsJSON, c changesJSON) []fieldsJSON {
	byName := byHandle(rows)
	for _, handle := range c.Removed {
		delete(byName, handle)
	}
	for _, row := range c.Added {
		byName[row.text("handle")] = row
	}
	for _, changed := range c.Changed {
		for name, f := range changed.Fields {
			if f.To == nil {
				delete(byName[changed.Handle], name)
			} else {
				byName[changed.Handle][name] = f.To
			}
		}
	}
	order := func(f fieldsJSON) int { n, _ := strconv.Atoi(string(f["requested_seq"])); return n }
	changed := slices.AppendSeq([]fieldsJSON{}, maps.Values(byName))
	slices.SortFunc(changed, func(a, b fieldsJSON) int { return cmp.Compare(order(a), order(b)) })
	return changed
}

// What diff --json says, made to the state at A, is the state at B, whichever
// is later.
func TestDiffLeadsToTheOtherState(t *testing.T) {
	read := func(v any, args ...string) {
		t.Helper()
		stdout, stderr, code := invoke(args...)
		if err := json.Unmarshal([]byte(stdout), v); err != nil || code != exitOK {
			t.Fatalf("%v: exit %d, %q, %v", args, code, stderr, err)
		}
	}
	rapid.Check(t, func(rt *rapid.T) {
		s, path, _ := tellStory(t, rt, false)
		moment := rapid.Map(rapid.IntRange(1, len(s.records)), strconv.Itoa)
		a, b := moment.Draw(rt, "a"), moment.Draw(rt, "b")
		var before, after rawState
		read(&before, "state", "--json", "--at", a, path)
		read(&after, "state", "--json", "--at", b, path)
		var d diffJSON
		read(&d, "diff", "--json", path, a, b)
		if diff := diffs.Diff(before.endpointJSON, d.From); diff != "" {
			t.Error(diff)
		}
		got := rawState{d.To, change(before.Procs, d.Procs), change(before.Starting, d.Starting)}
		if diff := diffs.Diff(plain(after), plain(got)); diff != "" {
			t.Errorf("from %s to %s: (-want +got)\n%s", a, b, diff)
		}
	})
}

// plain is a state without the difference of how its JSON is laid out.
func plain(s rawState) (v any) {
	b, err := json.Marshal(s)
	if err == nil {
		err = json.Unmarshal(b, &v)
	}
	if err != nil {
		panic(err)
	}
	return v
}
