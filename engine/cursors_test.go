package engine

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"supervisor/wire"
)

func testCursor(saves uint64, events ...string) wire.SessionCursor {
	c := wire.SessionCursor{
		Name: "s_0", Saves: saves, LastSeq: saves, Sent: saves - uint64(len(events)),
		Procs: []wire.ProcCursor{{ProcID: "p", Offset: [2]int64{3, 4}, Done: true}},
	}
	for _, e := range events {
		c.Events = append(c.Events, []byte(e))
	}
	return c
}

// Wherever a SIGKILL cuts the writing of a cursor, it is either the one before
// or the one that was written.
func TestCursorOverACrash(t *testing.T) {
	dir := cursors(filepath.Join(t.TempDir(), "sessions"))
	older, newer := testCursor(4, "{\"seq\":4}\n"), testCursor(5, "{\"seq\":4}\n", "{\"seq\":5}\n")
	for _, c := range []wire.SessionCursor{testCursor(3, "much longer, so that something of it is left\n"), older, newer} {
		if err := dir.save(c); err != nil {
			t.Fatal(err)
		}
	}
	path := dir.path("s_0", 1)
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for n := range len(whole) + 1 {
		b := make([]byte, len(whole)) // what was there before is of no length that ends here
		copy(b, whole[:n])
		if err := os.WriteFile(path, b, 0o600); err != nil {
			t.Fatal(err)
		}
		got := dir.load("s_0")
		if got.Saves == newer.Saves {
			if diff := cmp.Diff(newer, got); diff != "" {
				t.Fatalf("after %d bytes: %s", n, diff)
			}
			continue
		}
		if diff := cmp.Diff(older, got); diff != "" {
			t.Fatalf("after %d bytes: %s", n, diff)
		}
	}
	if got := dir.load("s_0"); got.Saves != newer.Saves {
		t.Errorf("whole, but %+v was loaded", got)
	}
}

// Cursors of sessions that are gone are removed, others stay.
func TestCursorsKept(t *testing.T) {
	dir := cursors(filepath.Join(t.TempDir(), "sessions"))
	if err := dir.keep(nil); err != nil {
		t.Errorf("without a folder: %v", err)
	}
	other := testCursor(1)
	other.Name = "s_1"
	for _, c := range []wire.SessionCursor{testCursor(1), other} {
		if err := dir.save(c); err != nil {
			t.Fatal(err)
		}
	}
	if err := dir.keep(map[string]bool{"s_1": true}); err != nil {
		t.Fatal(err)
	}
	if dir.load("s_0").Saves != 0 || dir.load("s_1").Saves != 1 {
		t.Error("the wrong one is left")
	}
	dir.remove("s_1")
	if entries, err := os.ReadDir(string(dir)); err != nil || len(entries) != 0 {
		t.Errorf("left are %v, %v", entries, err)
	}
}
