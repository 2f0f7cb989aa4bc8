package journal

import (
	"bytes"
	"errors"
	"math"
	"os"
	"slices"
	"testing"

	"go.etcd.io/bbolt"
	"pgregory.net/rapid"
)

func snapshotAt(t testing.TB, j *Journal, seq uint64, blob string) Snapshot {
	t.Helper()
	records, err := j.Read(seq-1, 1, 0)
	if err != nil || len(records) != 1 {
		t.Fatalf("record %d: %v, %v", seq, records, err)
	}
	s := Snapshot{Seq: seq, Hash: records[0].Hash, Version: 7, Blob: []byte(blob)}
	if err := j.WriteSnapshot(s); err != nil {
		t.Fatal(err)
	}
	return s
}

func TestSnapshotReplacesTheOlderOne(t *testing.T) {
	path := place(t)
	j := open(t, path, Options{})
	if _, found, err := j.Snapshot(); found || err != nil {
		t.Errorf("a new journal has a snapshot: %v, %v", found, err)
	}
	fill(t, j, 10, 20)
	snapshotAt(t, j, 9, "older")
	want := snapshotAt(t, j, 4, "newer") // the order of writing counts, not that of Seq
	mustClose(t, j)

	r, err := OpenReadOnly(path)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	got, found, err := r.Snapshot()
	if err != nil || !found || got.Seq != want.Seq || got.Hash != want.Hash || got.Version != 7 || string(got.Blob) != "newer" {
		t.Errorf("got %+v, %v, %v", got, found, err)
	}
	if r.FirstSeq() != 1 {
		t.Errorf("pruned to %d without need", r.FirstSeq())
	}
}

func TestSnapshotThatDoesNotFit(t *testing.T) {
	j := open(t, place(t), Options{MaxBytes: 1})
	fill(t, j, 10, 20)
	head := j.Head()
	for name, s := range map[string]Snapshot{
		"another hash":  {Seq: 5, Hash: head.Hash},
		"past the head": {Seq: 11, Hash: head.Hash},
		"before all":    {Seq: 0, Hash: head.Hash},
	} {
		if err := j.WriteSnapshot(s); !errors.Is(err, ErrMismatch) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, found, _ := j.Snapshot(); found || j.FirstSeq() != 1 {
		t.Error("something was changed")
	}
	if err := j.WriteSnapshot(Snapshot{Blob: make([]byte, MaxSnapshot+1)}); !errors.Is(err, ErrTooLarge) {
		t.Errorf("a large one: %v", err)
	}
}

// In mode Batch a snapshot covers what was queued before it.
func TestSnapshotWaitsForQueuedRecords(t *testing.T) {
	j := open(t, place(t), Options{Sync: Batch})
	mustAppend(t, j, []byte("one"))
	c := newChain(Head{})
	c.extend([]byte("one"))
	if err := j.WriteSnapshot(Snapshot{Seq: 1, Hash: c.Hash}); err != nil {
		t.Error(err)
	}
	mustAppend(t, j, []byte("two"))
	if err := j.WriteSnapshot(Snapshot{Seq: 2}); err != nil { // whatever the newest record's hash is
		t.Error(err)
	}
	if s, _, err := j.Snapshot(); err != nil || s.Hash != j.Head().Hash {
		t.Errorf("%v of %v, %v", s.Hash, j.Head(), err)
	}
	mustAppend(t, j, []byte("three"))
	if err := j.WriteSnapshot(Snapshot{Seq: 2}); !errors.Is(err, ErrMismatch) {
		t.Errorf("no hash, and not the newest: %v", err)
	}
}

func TestPruneAllAndGoOn(t *testing.T) {
	path := place(t)
	j := open(t, path, Options{MaxBytes: 10})
	fill(t, j, 100, 20)
	snapshotAt(t, j, 100, "")
	if j.FirstSeq() != 101 || j.Bytes() != 0 || j.Head().Seq != 100 {
		t.Errorf("first %d, %d bytes, head %d", j.FirstSeq(), j.Bytes(), j.Head().Seq)
	}
	mustClose(t, j)
	j = open(t, path, Options{MaxBytes: 10})
	if first := mustAppend(t, j, []byte("next")); first != 101 {
		t.Errorf("went on with %d", first)
	}
	if records, err := j.Read(0, 0, 0); err != nil || len(records) != 1 || records[0].Seq != 101 {
		t.Errorf("a reader that is behind got %v, %v", records, err)
	}
}

func TestDamagedSnapshot(t *testing.T) {
	data := sample(t, 10)
	blob := bytes.Index(data, bytes.Repeat([]byte("s"), 10_000))
	data[blob+5000] ^= 1
	path := place(t)
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
	r, err := OpenReadOnly(path)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	_, _, err = r.Snapshot()
	wantError(t, err, path, ErrDamaged)
	wantError(t, r.Verify(nil), path, ErrDamaged)
}

// A snapshot that is whole but belongs to another history.
func TestSnapshotOfAnotherChain(t *testing.T) {
	path := place(t)
	j := open(t, path, Options{})
	fill(t, j, 10, 20)
	mustClose(t, j)
	foreign := func(seq uint64) func(tx *bbolt.Tx) error {
		return func(tx *bbolt.Tx) error { return tx.Bucket(snapshotBucket).Put(key(seq), Snapshot{Seq: seq}.marshal()) }
	}
	for _, seq := range []uint64{5, 10, 11} {
		change(t, path, foreign(seq))
		_, err := verified(path)
		wantError(t, err, path, ErrDamaged)
		change(t, path, func(tx *bbolt.Tx) error { return tx.Bucket(snapshotBucket).Delete(key(seq)) })
	}
}

// The file stays small for ever when snapshots prune it.
func TestFileStaysBounded(t *testing.T) {
	const maxBytes, size, records, commit = 1 << 20, 200, 40_000, 16
	path := place(t)
	j := open(t, path, Options{MaxBytes: maxBytes})
	blob := string(bytes.Repeat([]byte("state "), 10_000))
	since := 0
	for range records / commit {
		fill(t, j, commit, size)
		if since += commit * size; since >= maxBytes/4 {
			snapshotAt(t, j, j.Head().Seq, blob)
			since = 0
		}
	}
	if most := int64(maxBytes + maxBytes/4 + maxBytes/8); j.Bytes() > most {
		t.Errorf("%d bytes retained, more than %d", j.Bytes(), most)
	}
	info, err := os.Stat(path)
	if err != nil || info.Size() > 12<<20 {
		t.Errorf("the file has %d bytes, %v", info.Size(), err)
	}
	t.Logf("%d bytes retained, file of %d", j.Bytes(), info.Size())
}

// Snapshots that vary, and are as large as what is retained, leave no holes that nothing fits: each takes one run of pages.
func TestFileStaysBoundedByLargeSnapshots(t *testing.T) {
	const maxBytes, blob = 1 << 20, 600_000
	path := place(t)
	j := open(t, path, Options{MaxBytes: maxBytes})
	var sizes []int64
	for i := range 80 {
		for began := j.Head().Seq; j.Head().Seq < began+2000; {
			fill(t, j, 150+i%13, 100+i%71)
		}
		snapshotAt(t, j, j.Head().Seq, string(make([]byte, blob/2+i*4000+i*7919%50_000)))
		if info, err := os.Stat(path); err != nil {
			t.Fatal(err)
		} else if i%16 == 15 {
			sizes = append(sizes, info.Size())
		}
	}
	t.Log(sizes)
	if last := sizes[len(sizes)-1]; last > 6*maxBytes {
		t.Errorf("the file has %v bytes", sizes)
	}
}

// A slow reader of a journal that is pruned under it gets ascending records, all of them good, and a gap where they are gone.
func TestReadersWhilePruning(t *testing.T) {
	j := open(t, place(t), Options{MaxBytes: 100_000, SegmentRecords: 100})
	done := make(chan struct{})
	go func() {
		defer close(done)
		for range 100 {
			fill(t, j, 100, 200)
			head := j.Head()
			if err := j.WriteSnapshot(Snapshot{Seq: head.Seq, Hash: head.Hash}); err != nil {
				t.Error(err)
			}
		}
	}()
	for at := uint64(0); at < 10_000; {
		records, err := j.Read(at, 1500, 0)
		if err != nil {
			t.Fatal(err)
		}
		for i, r := range records {
			if r.Seq <= at || i > 0 && r.Seq != at+1 {
				t.Fatalf("record %d after %d", r.Seq, at)
			}
			at = r.Seq
		}
		if err := j.Verify(nil); err != nil {
			t.Fatal(err)
		}
	}
	<-done
}

// model is what a journal is: a list of payloads, of which a beginning may be gone.
type model struct {
	payloads [][]byte
	first    uint64
}

func (m *model) head() uint64 { return uint64(len(m.payloads)) }

func (m *model) bytes() (n int64) {
	for _, p := range m.payloads[m.first-1:] {
		n += int64(len(p))
	}
	return n
}

// Law: journal = model under append, read, snapshot with prune, close and reopen.
func TestJournalIsAList(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		path := place(t)
		o := Options{
			SegmentRecords: rapid.IntRange(1, 9).Draw(rt, "segment"),
			MaxBytes:       int64(rapid.IntRange(1, 500).Draw(rt, "max")),
		}
		j, err := Open(path, o)
		if err != nil {
			rt.Fatal(err)
		}
		m := &model{first: 1}
		rt.Repeat(map[string]func(*rapid.T){
			"append":   func(rt *rapid.T) { m.append(rt, j) },
			"read":     func(rt *rapid.T) { m.read(rt, j) },
			"snapshot": func(rt *rapid.T) { m.snapshot(rt, j, o) },
			"reopen": func(rt *rapid.T) {
				if err := j.Close(); err != nil {
					rt.Fatal(err)
				}
				if j, err = Open(path, o); err != nil {
					rt.Fatal(err)
				}
			},
			"": func(rt *rapid.T) {
				if j.Head().Seq != m.head() || j.FirstSeq() != m.first || j.Bytes() != m.bytes() {
					rt.Fatalf("head %d, first %d, %d bytes; want %d, %d, %d",
						j.Head().Seq, j.FirstSeq(), j.Bytes(), m.head(), m.first, m.bytes())
				}
			},
		})
		if err := j.Verify(nil); err != nil {
			rt.Error(err)
		}
		mustClose(t, j)
		verifyFile(t, path)
	})
}

func (m *model) append(rt *rapid.T, j *Journal) {
	payloads := rapid.SliceOfN(rapid.SliceOfN(rapid.Byte(), 0, 60), 1, 12).Draw(rt, "payloads")
	first, err := j.Append(payloads...)
	if err != nil || first != m.head()+1 {
		rt.Fatalf("appended at %d, %v; want %d", first, err, m.head()+1)
	}
	m.payloads = append(m.payloads, payloads...)
}

func (m *model) read(rt *rapid.T, j *Journal) {
	after := rapid.Uint64Range(0, m.head()+2).Draw(rt, "after")
	limit := rapid.IntRange(0, 20).Draw(rt, "limit")
	maxBytes := rapid.IntRange(0, 300).Draw(rt, "maxBytes")
	got, err := j.Read(after, limit, maxBytes)
	if err != nil {
		rt.Fatal(err)
	}
	at, size := max(after, m.first-1), 0
	for _, r := range got {
		at++
		size += len(r.Payload)
		if r.Seq != at || !bytes.Equal(r.Payload, m.payloads[at-1]) {
			rt.Fatalf("record %d: %q where %d was due", r.Seq, r.Payload, at)
		}
	}
	if len(got) > 1 && (limit > 0 && len(got) > limit || maxBytes > 0 && size > maxBytes) {
		rt.Fatalf("%d records, %d bytes", len(got), size)
	}
	if at < m.head() && len(got) > 0 && len(got) != limit && (maxBytes == 0 || size+len(m.payloads[at]) <= maxBytes) {
		rt.Fatalf("stopped after %d, %d records, for no reason", at, len(got))
	}
	if at < m.head() && len(got) == 0 {
		rt.Fatalf("nothing after %d of %d", at, m.head())
	}
}

func (m *model) snapshot(rt *rapid.T, j *Journal, o Options) {
	if m.first > m.head() {
		rt.Skip("no record to stand at")
	}
	seq := rapid.Uint64Range(m.first, m.head()).Draw(rt, "seq")
	blob := rapid.SliceOfN(rapid.Byte(), 0, 5000).Draw(rt, "blob")
	records, err := j.Read(seq-1, 1, 0)
	if err != nil {
		rt.Fatal(err)
	}
	if err := j.WriteSnapshot(Snapshot{Seq: seq, Hash: records[0].Hash, Blob: blob}); err != nil {
		rt.Fatal(err)
	}
	switch first := j.FirstSeq(); {
	case first < m.first || first > seq+1:
		rt.Fatalf("snapshot at %d pruned to %d, from %d", seq, first, m.first)
	case first > m.first && m.bytes() <= o.MaxBytes:
		rt.Fatalf("pruned at %d bytes, although %d may stay", m.bytes(), o.MaxBytes)
	case j.Bytes() > o.MaxBytes && seq-first+1 >= uint64(o.SegmentRecords):
		rt.Fatalf("a whole segment from %d was left behind %d", first, seq)
	default:
		m.first = first
	}
	if s, found, err := j.Snapshot(); err != nil || !found || s.Seq != seq || !bytes.Equal(s.Blob, blob) {
		rt.Fatalf("snapshot %d, %v, %v", s.Seq, found, err)
	}
}

// Of snapshots that were near enough to each other those that stay are, too.
func TestSpreadSnapshotsStayInReach(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		base := rapid.SampledFrom([]uint64{0, 1, 1 << 40}).Draw(t, "base")
		seq, all := base, []stored(nil)
		for _, gap := range rapid.SliceOf(rapid.Uint64Range(1, snapshotReach)).Draw(t, "gaps") {
			seq += gap
			all = append(all, stored{seq, 1})
		}
		newest := seq + rapid.Uint64Range(1, snapshotReach).Draw(t, "newest")
		kept := spread(all, base, newest)
		if base > 0 && len(all) > 0 && (len(kept) == 0 || kept[0] != all[0]) {
			t.Errorf("the first one behind a base is gone: %v", kept)
		}
		before := base
		for _, s := range append(kept, stored{seq: newest}) {
			if s.seq-before > snapshotReach {
				t.Errorf("nothing is kept between %d and %d of %v", before, s.seq, all)
			}
			before = s.seq
		}
		if most := 2 + 2*(newest-base)/snapshotReach; uint64(len(kept)) > most {
			t.Errorf("%d of %d stay, %d suffice", len(kept), len(all), most)
		}
	})
}

// Snapshots that keep a way short stay, as long as they take little.
func TestOlderSnapshots(t *testing.T) {
	const apart = snapshotReach - 1
	path := place(t)
	j := open(t, path, Options{Sync: Off, MaxBytes: 64 << 20})
	last := uint64(0)
	more := func(n, size int) {
		fill(t, j, n, 8)
		last += uint64(n)
		if err := j.WriteSnapshot(Snapshot{Seq: last, Blob: make([]byte, size)}); err != nil {
			t.Fatal(err)
		}
	}
	for range 4 {
		more(apart, 100)
	}
	seqs := func(at uint64) (all []uint64) {
		for {
			s, found, err := j.SnapshotAt(at)
			if err != nil || !found {
				return all
			}
			all, at = append(all, s.Seq), s.Seq-1
		}
	}
	if got, want := seqs(2*apart+1), []uint64{2 * apart, apart}; !slices.Equal(got, want) {
		t.Errorf("snapshots of %v, want %v", got, want)
	}
	more(apart, 17<<20)
	more(apart, 100) // the large one is more than older ones may take
	if got, want := seqs(math.MaxUint64), []uint64{6 * apart}; !slices.Equal(got, want) {
		t.Errorf("snapshots of %v, want %v", got, want)
	}
	mustClose(t, j)
}
