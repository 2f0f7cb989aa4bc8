package journal

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

// open opens a journal, and has it closed and checked by the end of the test.
func open(t testing.TB, path string, o Options) *Journal {
	t.Helper()
	j, err := Open(path, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := j.Close(); err != nil && !errors.Is(err, ErrClosed) {
			t.Errorf("Close: %v", err)
		}
		verifyFile(t, path)
	})
	return j
}

// verifyFile checks a closed journal from end to end and returns its head.
func verifyFile(t testing.TB, path string) Head {
	t.Helper()
	r, err := OpenReadOnly(path)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if err := r.Verify(nil); err != nil {
		t.Errorf("Verify: %v", err)
	}
	return r.Head()
}

func place(t testing.TB) string { return filepath.Join(t.TempDir(), "journal.db") }

func mustAppend(t testing.TB, j *Journal, payloads ...[]byte) uint64 {
	t.Helper()
	first, err := j.Append(payloads...)
	if err != nil {
		t.Fatal(err)
	}
	return first
}

func mustClose(t testing.TB, j *Journal) {
	t.Helper()
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
}

// payload is a record that differs from all others.
func payload(i, size int) []byte {
	return append(fmt.Appendf(nil, "%d ", i), bytes.Repeat([]byte{'x'}, size)...)[:size]
}

func TestAppendThenReadAfterReopen(t *testing.T) {
	path := place(t)
	j := open(t, path, Options{})
	if h := j.Head(); h != (Head{}) || j.FirstSeq() != 1 {
		t.Fatalf("a new journal has head %v, first %d", h, j.FirstSeq())
	}
	if first := mustAppend(t, j, []byte("one"), []byte("two")); first != 1 {
		t.Errorf("the first record has sequence %d", first)
	}
	if first := mustAppend(t, j, nil); first != 3 {
		t.Errorf("an empty payload got sequence %d, want 3", first)
	}
	head := j.Head()
	mustClose(t, j)

	j = open(t, path, Options{})
	if j.Head() != head || head.Seq != 3 {
		t.Errorf("head %v after reopening, was %v", j.Head(), head)
	}
	records, err := j.Read(1, 0, 0)
	if err != nil || len(records) != 2 || string(records[0].Payload) != "two" || records[1].Hash != head.Hash {
		t.Errorf("read %v, %v", records, err)
	}
	if j.Bytes() != 6 {
		t.Errorf("%d bytes retained, want 6", j.Bytes())
	}
}

// The chain as doc.go tells it to a stranger, computed here without the package's own code.
func TestChainIsAsDocumented(t *testing.T) {
	j := open(t, place(t), Options{})
	mustAppend(t, j, []byte("one"), []byte("two"))
	records, _ := j.Read(0, 0, 0)
	const one, two = "\x00\x00\x00\x00\x00\x00\x00\x01one", "\x00\x00\x00\x00\x00\x00\x00\x02two"
	hash := sum(make([]byte, 32), one)
	if !bytes.Equal(records[0].Hash[:], hash) {
		t.Errorf("hash 1 is %v, want %x", records[0].Hash, hash)
	}
	if want := fmt.Sprintf("%x", sum(hash, two)); records[1].Hash.String() != want {
		t.Errorf("hash 2 is %v, want %s", records[1].Hash, want)
	}
}

func TestReadBounds(t *testing.T) {
	j := open(t, place(t), Options{SegmentRecords: 100})
	for range 30 {
		var batch [][]byte
		for i := range 100 {
			batch = append(batch, payload(i, 300))
		}
		mustAppend(t, j, batch...)
	}
	for _, c := range []struct {
		name            string
		after           uint64
		limit, maxBytes int
		first           uint64
		want            int
	}{
		{"all", 0, 0, 0, 1, 3000},
		{"past a chunk", 10, 2500, 0, 11, 2500},
		{"by size", 0, 0, 3 * 300, 1, 3},
		{"one over the size", 0, 0, 3*300 - 1, 1, 2},
		{"size past a chunk", 0, 0, 2000 * 300, 1, 2000},
		{"at least one", 7, 10, 1, 8, 1},
		{"the last", 2999, 10, 0, 3000, 1},
		{"none at the head", 3000, 10, 0, 0, 0},
		{"none past it", 1 << 60, 10, 0, 0, 0},
		{"the highest number", ^uint64(0), 10, 0, 0, 0},
	} {
		records, err := j.Read(c.after, c.limit, c.maxBytes)
		if err != nil || len(records) != c.want || c.want > 0 && records[0].Seq != c.first {
			t.Errorf("%s: %d records, %v; want %d from %d", c.name, len(records), err, c.want, c.first)
		}
	}
}

func TestPayloadsMayBeReused(t *testing.T) {
	for _, mode := range []SyncMode{Always, Batch, Off} {
		t.Run(mode.String(), func(t *testing.T) {
			path := place(t)
			j := open(t, path, Options{Sync: mode})
			buffer := make([]byte, 1)
			for i := range 50 {
				buffer[0] = byte(i)
				if first := mustAppend(t, j, buffer); first != uint64(i+1) {
					t.Fatalf("record %d got sequence %d", i+1, first)
				}
			}
			mustClose(t, j)
			j = open(t, path, Options{})
			records, err := j.Read(0, 0, 0)
			if err != nil || len(records) != 50 {
				t.Fatalf("%d records, %v", len(records), err)
			}
			for i, r := range records {
				if r.Payload[0] != byte(i) {
					t.Errorf("record %d holds %d", r.Seq, r.Payload[0])
				}
			}
			records[0].Payload = append(records[0].Payload, 'x') // the caller's: it must not reach its neighbour
			if records[1].Payload[0] != 1 {
				t.Error("payloads share room")
			}
		})
	}
}

func TestConcurrentAppendsAreAtomicAndGapless(t *testing.T) {
	for _, mode := range []SyncMode{Always, Batch, Off} {
		t.Run(mode.String(), func(t *testing.T) {
			path := place(t)
			j := open(t, path, Options{Sync: mode, SegmentRecords: 7})
			const clients, rounds = 16, 20
			var clientsDone sync.WaitGroup
			for c := range clients {
				clientsDone.Go(func() {
					for i := range rounds {
						a, b := fmt.Appendf(nil, "%d/%d/a", c, i), fmt.Appendf(nil, "%d/%d/b", c, i)
						first, err := j.Append(a, b)
						if err != nil {
							t.Error(err)
							return
						}
						if mode != Always {
							continue
						}
						got, err := j.Read(first-1, 2, 0)
						if err != nil || len(got) != 2 || string(got[0].Payload) != string(a) || string(got[1].Payload) != string(b) {
							t.Errorf("record %d: %v, %v; want %s", first, got, err, a)
						}
					}
				})
			}
			clientsDone.Wait()
			mustClose(t, j)
			if head := verifyFile(t, path); head.Seq != 2*clients*rounds {
				t.Errorf("head %d, want %d", head.Seq, 2*clients*rounds)
			}
		})
	}
}

// Mode Batch does not make callers wait for the disk, and what it accepted is committed soon after.
func TestBatchCommitsByItself(t *testing.T) {
	j := open(t, place(t), Options{Sync: Batch})
	mustAppend(t, j, []byte("one"))
	waitFor(t, func() bool { return j.Head().Seq == 1 })
}

func waitFor(t testing.TB, condition func() bool) {
	t.Helper()
	for deadline := time.Now().Add(10 * time.Second); !condition(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("it did not happen")
		}
	}
}

func TestLimitsAreErrorsAndChangeNothing(t *testing.T) {
	j := open(t, place(t), Options{})
	many := make([][]byte, MaxAppend/MaxPayload+1)
	for i := range many {
		many[i] = make([]byte, MaxPayload)
	}
	if _, err := j.Append([]byte("fits"), make([]byte, MaxPayload+1)); !errors.Is(err, ErrTooLarge) {
		t.Errorf("a payload too large: %v", err)
	}
	if _, err := j.Append(many...); !errors.Is(err, ErrTooLarge) {
		t.Errorf("a batch too large: %v", err)
	}
	if first, err := j.Append(); first != 0 || err != nil {
		t.Errorf("no payload: %d, %v", first, err)
	}
	if j.Head() != (Head{}) {
		t.Error("something was written")
	}
	mustAppend(t, j, many[1:]...)
}

func TestClosedJournal(t *testing.T) {
	j := open(t, place(t), Options{})
	mustAppend(t, j, []byte("one"))
	mustClose(t, j)
	_, appendErr := j.Append([]byte("two"))
	_, readErr := j.Read(0, 0, 0)
	_, _, snapshotErr := j.Snapshot()
	for name, err := range map[string]error{
		"Append": appendErr, "Read": readErr, "Snapshot": snapshotErr, "Close": j.Close(), "WriteSnapshot": j.WriteSnapshot(Snapshot{}),
	} {
		if !errors.Is(err, ErrClosed) {
			t.Errorf("%s after Close: %v", name, err)
		}
	}
}

func TestParseSyncMode(t *testing.T) {
	for _, m := range []SyncMode{Always, Batch, Off} {
		if got, err := ParseSyncMode(m.String()); got != m || err != nil {
			t.Errorf("%v: %v, %v", m, got, err)
		}
	}
	if _, err := ParseSyncMode("never"); err == nil || !strings.Contains(err.Error(), `"never"`) {
		t.Errorf("an unknown mode: %v", err)
	}
}

// The next image of a process opens the journal by the descriptor that it inherited while the old one's lock is still held.
func TestHandedOverFile(t *testing.T) {
	path := place(t)
	old := open(t, path, Options{})
	mustAppend(t, old, []byte("one"))
	fd := dup(t, old.File())
	j, err := Open(path, Options{File: os.NewFile(fd, path)})
	if err != nil {
		t.Fatal(err)
	}
	if first := mustAppend(t, j, []byte("two")); first != 2 {
		t.Errorf("went on with record %d", first)
	}
	if err := j.Verify(nil); err != nil {
		t.Error(err)
	}
	mustClose(t, j)
}
