package engine

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"supervisor/wire"
)

// testCursor is one with the events of some numbers.
func testCursor(name string, saves, first, last int) wire.SessionCursor {
	c := wire.SessionCursor{
		Name: name, Saves: uint64(saves), LastSeq: uint64(last), Sent: uint64(first - 1),
		Procs: []wire.ProcCursor{{ProcID: "p", Offset: [2]int64{3, 4}, Done: true}},
	}
	c.Events = testEvents(first, last)
	return c
}

func testEvents(first, last int) (lines [][]byte) {
	for n := first; n <= last; n++ {
		lines = append(lines, fmt.Appendf(nil, `{"type":"x","seq":%d}`+"\n", n))
	}
	return lines
}

func save(t *testing.T, d *cursors, c wire.SessionCursor) {
	t.Helper()
	if err := d.save(c); err != nil {
		t.Fatal(err)
	}
}

// Wherever a SIGKILL cuts the storing of a cursor, it is either the one before
// or the one that was stored, with all events up to it, and more can follow.
func TestCursorOverACrash(t *testing.T) {
	const name = "s_0"
	older, newer := testCursor(name, 2, 3, 4), testCursor(name, 3, 5, 7)
	for cut := 0; ; cut++ {
		dir := filepath.Join(t.TempDir(), "sessions")
		d := newCursors(dir)
		save(t, d, testCursor(name, 1, 1, 2))
		save(t, d, older)
		before := snapshotOf(t, dir)
		save(t, d, newer)
		whole := tear(t, dir, before, cut)

		d = newCursors(dir)
		got, want := d.load(name), older
		if got.Saves == newer.Saves {
			want = newer
		}
		want.Events = testEvents(1, int(want.LastSeq))
		if diff := cmp.Diff(want, got); diff != "" {
			t.Fatalf("cut after %d bytes: %s", cut, diff)
		}
		save(t, d, testCursor(name, int(got.Saves)+1, int(got.LastSeq)+1, 9))
		if diff := cmp.Diff(testEvents(1, 9), newCursors(dir).load(name).Events); diff != "" {
			t.Fatalf("cut after %d bytes, and gone on: %s", cut, diff)
		}
		if whole {
			return
		}
	}
}

// snapshotOf reads a folder.
func snapshotOf(t *testing.T, dir string) map[string][]byte {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	files := map[string][]byte{}
	for _, e := range entries {
		if files[e.Name()], err = os.ReadFile(filepath.Join(dir, e.Name())); err != nil {
			t.Fatal(err)
		}
	}
	return files
}

// tear undoes what was written since before, but for the first bytes: those of
// the events, then those of the cursor. It reports whether that was all.
func tear(t *testing.T, dir string, before map[string][]byte, bytes int) (whole bool) {
	t.Helper()
	after := snapshotOf(t, dir)
	whole = true
	names := slices.Sorted(maps.Keys(after))
	slices.SortStableFunc(names, func(a, b string) int { return len(b) - len(a) }) // events have longer names
	for _, name := range names {
		now, was := after[name], before[name]
		start := 0
		if filepath.Ext(name) != ".a" && filepath.Ext(name) != ".b" {
			start = len(was)
		} else if string(now) == string(was) {
			continue
		}
		n := min(bytes, len(now)-start)
		bytes -= n
		if start+n < len(now) {
			whole = false
			now = append(now[:start+n:start+n], was[min(len(was), start+n):]...)
		}
		if err := os.WriteFile(filepath.Join(dir, name), now, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return whole
}

// As many events are kept as a session repeats, and not many more.
func TestEventFilesAreBounded(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "sessions")
	d := newCursors(dir)
	const events, batch = 20_000, 100
	for n := 1; n < events; n += batch {
		save(t, d, testCursor("s_0", n, n, n+batch-1))
	}
	got := newCursors(dir).load("s_0").Events
	kept := len(slices.Concat(got...))
	if kept < 256<<10 || kept > 3*eventFileBytes+batch*100 {
		t.Errorf("%d bytes are kept", kept)
	}
	if diff := cmp.Diff(testEvents(events-len(got)+1, events), got); diff != "" {
		t.Error(diff)
	}
	onDisk := 0
	for _, b := range snapshotOf(t, dir) {
		onDisk += len(b)
	}
	if onDisk > kept+10_000 {
		t.Errorf("%d bytes are stored for %d", onDisk, kept)
	}
}

// Numbers that leave some out, as after the loss of the machine, leave nothing
// of before; a file that the kernel did not finish ends where it is damaged.
func TestEventFilesWithHoles(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "sessions")
	d := newCursors(dir)
	save(t, d, testCursor("s_0", 1, 1, 3))
	save(t, d, testCursor("s_0", 2, 8, 9))
	if diff := cmp.Diff(testEvents(8, 9), newCursors(dir).load("s_0").Events); diff != "" {
		t.Error(diff)
	}
	path := filepath.Join(dir, "s_0.e0000000000000008")
	if err := os.WriteFile(path, make([]byte, 100), 0o600); err != nil {
		t.Fatal(err)
	}
	d = newCursors(dir)
	if got := d.load("s_0"); got.LastSeq != 9 || len(got.Events) != 0 {
		t.Errorf("%+v", got)
	}
	save(t, d, testCursor("s_0", 3, 10, 11))
	if diff := cmp.Diff(testEvents(10, 11), newCursors(dir).load("s_0").Events); diff != "" {
		t.Error(diff)
	}
}

// What is kept of sessions that are gone is removed, that of others stays. A
// folder that cannot be written is complained of once.
func TestCursorsKept(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "sessions")
	d := newCursors(dir)
	if err := d.keep(nil); err != nil {
		t.Errorf("without a folder: %v", err)
	}
	save(t, d, testCursor("s_0", 1, 1, 2))
	save(t, d, testCursor("s_1", 1, 1, 2))
	if err := d.keep(map[string]bool{"s_1": true}); err != nil {
		t.Fatal(err)
	}
	if files := snapshotOf(t, dir); len(files) != 2 || d.load("s_1").LastSeq != 2 {
		t.Errorf("left is %v", files)
	}
	d.remove("s_1")
	if files := snapshotOf(t, dir); len(files) != 0 {
		t.Errorf("left is %v", files)
	}
	if err := errors.Join(os.Remove(dir), os.WriteFile(dir, nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	first, second := d.save(testCursor("s_2", 1, 1, 1)), d.save(testCursor("s_2", 2, 2, 2))
	if first == nil || second != nil {
		t.Errorf("complained of: %v, %v", first, second)
	}
}
