package journal

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.etcd.io/bbolt"

	"supervisor/internal/testproc"
)

// sample is the bytes of a sound journal with n records in segments of 500, and a snapshot.
func sample(t testing.TB, n int) []byte {
	t.Helper()
	path := place(t)
	j := open(t, path, Options{SegmentRecords: 500})
	fill(t, j, n, 200)
	head := j.Head()
	if err := j.WriteSnapshot(Snapshot{Seq: head.Seq, Hash: head.Hash, Blob: bytes.Repeat([]byte("s"), 10_000)}); err != nil {
		t.Fatal(err)
	}
	mustClose(t, j)
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// refused opens data as a journal for writing and for reading: both must fail with one of the kinds, in one line that names
// the file, without a change.
func refused(t *testing.T, data []byte, kinds ...error) {
	t.Helper()
	path := place(t)
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
	_, writeErr := Open(path, Options{})
	_, readErr := OpenReadOnly(path)
	for _, err := range []error{writeErr, readErr} {
		wantError(t, err, path, kinds...)
	}
	if after, err := os.ReadFile(path); err != nil || !bytes.Equal(after, data) {
		t.Errorf("the file was changed (%v)", err)
	}
	if entries, _ := os.ReadDir(filepath.Dir(path)); len(entries) != 1 {
		t.Errorf("left behind: %v", entries)
	}
}

func wantError(t *testing.T, err error, path string, kinds ...error) {
	t.Helper()
	if err == nil {
		t.Errorf("no error, want one of %v", kinds)
		return
	}
	if line := err.Error(); !strings.HasPrefix(line, path+": ") || strings.HasPrefix(line, path+": "+path) || strings.Contains(line, "\n") {
		t.Errorf("not one line about the file: %q", line)
	}
	for _, kind := range kinds {
		if errors.Is(err, kind) {
			return
		}
	}
	t.Errorf("%v: not one of %v", err, kinds)
}

// C29.
func TestWrongFilesAreRefused(t *testing.T) {
	data := sample(t, 2000)
	random := make([]byte, 100_000)
	rand.NewChaCha8([32]byte{1}).Read(random)
	zeroed := bytes.Clone(data)
	clear(zeroed[:2*pageSize])

	cut := func(n int) []byte { return data[:n] }
	for _, c := range []struct {
		name  string
		data  []byte
		kinds []error
	}{
		{"text", []byte("Dear diary,\n"), []error{ErrForeign}},
		{"long text", bytes.Repeat([]byte("Dear diary,\n"), 10_000), []error{ErrForeign}},
		{"random bytes", random, []error{ErrForeign}},
		{"1 byte", cut(1), []error{ErrForeign, ErrDamaged}},
		{"100 bytes", cut(100), []error{ErrDamaged}},
		{"one page", cut(pageSize), []error{ErrDamaged}},
		{"8192 bytes", cut(8192), []error{ErrDamaged}},
		{"16384 bytes", cut(16384), []error{ErrDamaged}},
		{"half", cut(len(data) / 2), []error{ErrDamaged}},
		{"last byte cut", cut(len(data) - 1), []error{ErrDamaged}},
		{"both meta pages zeroed", zeroed, []error{ErrForeign, ErrDamaged}},
		{"zeros", make([]byte, 100_000), []error{ErrForeign}},
	} {
		t.Run(c.name, func(t *testing.T) { refused(t, c.data, c.kinds...) })
	}
}

// One torn meta page is what a power cut leaves: the other one holds, and says one transaction less.
func TestOneTornMetaPage(t *testing.T) {
	path := place(t)
	for page := range 2 {
		j := open(t, path, Options{})
		mustAppend(t, j, []byte("x"), []byte("y"))
		before := j.Head()
		mustClose(t, j)
		data, _ := os.ReadFile(path)
		data[page*pageSize+70] ^= 1
		torn := place(t)
		if err := os.WriteFile(torn, data, 0o600); err != nil {
			t.Fatal(err)
		}
		j = open(t, torn, Options{})
		if got := j.Head().Seq; got != before.Seq && got != before.Seq-2 {
			t.Errorf("meta page %d torn: head %d, was %d", page, got, before.Seq)
		}
		mustAppend(t, j, []byte("z"))
	}
}

func TestNewerFormats(t *testing.T) {
	data := sample(t, 10)
	for page := range 2 {
		binary.NativeEndian.PutUint32(data[page*pageSize+20:], 3)
	}
	refused(t, data, ErrNewer)

	path := place(t)
	mustClose(t, open(t, path, Options{}))
	change(t, path, func(tx *bbolt.Tx) error { return tx.Bucket(metaBucket).Put(versionKey, []byte{0, 0, 0, 2}) })
	data, _ = os.ReadFile(path)
	refused(t, data, ErrNewer)
	change(t, path, func(tx *bbolt.Tx) error { return tx.Bucket(metaBucket).Put(versionKey, []byte{0, 0, 0, 1}) })
}

// change alters a journal as a stranger with bbolt could.
func change(t *testing.T, path string, fn func(*bbolt.Tx) error) {
	t.Helper()
	db, err := bbolt.Open(path, 0o600, &bbolt.Options{Timeout: time.Second})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if err := db.Update(fn); err != nil {
		t.Fatal(err)
	}
}

func TestForeignDatabases(t *testing.T) {
	for name, o := range map[string]*bbolt.Options{"": {}, "without a list of free pages": {NoFreelistSync: true}} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "other.db")
			db, err := bbolt.Open(path, 0o600, o)
			if err != nil {
				t.Fatal(err)
			}
			err = db.Update(func(tx *bbolt.Tx) error {
				_, err := tx.CreateBucket([]byte("widgets"))
				return err
			})
			if err := errors.Join(err, db.Close()); err != nil {
				t.Fatal(err)
			}
			data, _ := os.ReadFile(path)
			refused(t, data, ErrForeign)
		})
	}
}

func TestNotRegularFiles(t *testing.T) {
	dir := t.TempDir()
	if _, err := Open(dir, Options{}); !errors.Is(err, ErrForeign) {
		t.Errorf("a folder: %v", err)
	}
	if _, err := OpenReadOnly(dir); !errors.Is(err, ErrForeign) {
		t.Errorf("a folder, to read: %v", err)
	}
	if _, err := OpenReadOnly(filepath.Join(dir, "none")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("no file, to read: %v", err)
	}
	if _, err := Open(filepath.Join(dir, "none", "journal.db"), Options{}); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("no folder: %v", err)
	}
}

// A file of zero length is a new journal, for the reader too.
func TestZeroLength(t *testing.T) {
	path := place(t)
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if head := verifyFile(t, path); head != (Head{}) {
		t.Errorf("head %v", head)
	}
	if info, err := os.Stat(path); err != nil || info.Size() != 0 {
		t.Errorf("reading wrote: %v, %v", info, err)
	}
	mustAppend(t, open(t, path, Options{}), []byte("one"))
}

// Whichever page is overwritten, with zeros, with noise, or with another page, it is seen by Open or by Verify, as damage
// and not as a panic. Pages that hold nothing now may hold anything.
func TestEveryPageOverwritten(t *testing.T) {
	data := sample(t, 2000)
	path := place(t)
	head := rewrite(t, path, data)
	noise := make([]byte, pageSize)
	rand.NewChaCha8([32]byte{2}).Read(noise)
	for name, with := range map[string][]byte{
		"zeros": make([]byte, pageSize), "noise": noise, "another page": data[6*pageSize : 7*pageSize],
	} {
		seen, pages := 0, len(data)/pageSize
		for page := 2; page < pages; page++ {
			overwrite(t, path, page*pageSize, with)
			if got, err := verified(path); err != nil {
				wantError(t, err, path, ErrDamaged, ErrForeign)
				seen++
			} else if got != head {
				t.Errorf("%s in page %d: unseen, and the head is %v instead of %v", name, page, got, head)
			}
			overwrite(t, path, page*pageSize, data[page*pageSize:][:pageSize])
		}
		if seen < pages/2 {
			t.Errorf("%s: seen in only %d of %d pages", name, seen, pages)
		}
	}
}

// rewrite makes data the journal at path and returns its head.
func rewrite(t *testing.T, path string, data []byte) Head {
	t.Helper()
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
	return verifyFile(t, path)
}

func overwrite(t *testing.T, path string, at int, with []byte) {
	t.Helper()
	file, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if _, err := file.WriteAt(with, int64(at)); err != nil {
		t.Fatal(err)
	}
}

// verified is the head of a closed journal that verifies.
func verified(path string) (Head, error) {
	r, err := OpenReadOnly(path)
	if err != nil {
		return Head{}, err
	}
	defer r.Close()
	return r.Head(), r.Verify(nil)
}

// A file cut while it is open is a SIGBUS for whoever touches the mapping: an error here, and the journal is done with.
func TestCutWhileOpen(t *testing.T) {
	path := place(t)
	j, err := Open(path, Options{})
	if err != nil {
		t.Fatal(err)
	}
	fill(t, j, 5000, 200)
	if err := os.Truncate(path, 3*pageSize); err != nil {
		t.Fatal(err)
	}
	_, err = j.Read(0, 0, 0)
	wantError(t, err, path, ErrDamaged)
	_, err = j.Append([]byte("x"))
	wantError(t, err, path, ErrDamaged)
	wantError(t, j.Err(), path, ErrDamaged)
	j.Close()
}

// The same, met by the committer.
func TestCutUnderTheCommitter(t *testing.T) {
	path := place(t)
	j, err := Open(path, Options{})
	if err != nil {
		t.Fatal(err)
	}
	fill(t, j, 5000, 200)
	if err := os.Truncate(path, 0); err != nil {
		t.Fatal(err)
	}
	_, err = j.Append([]byte("x"))
	wantError(t, err, path, ErrDamaged)
	j.Close()
}

// A change of one byte in a stored record, or of one in its hash, is found by Verify, which names the record.
func TestTampering(t *testing.T) {
	const records, size = 10_000, 200
	data := sample(t, records)
	path := place(t)
	rewrite(t, path, data)
	for i := 1; i <= records; i += 251 {
		places := occurrences(data, payload(i, size))
		if len(places) == 0 {
			t.Fatalf("record %d is nowhere", i)
		}
		for _, offset := range []int{(i * 31) % size, size - 1, -1 - i%sha256.Size} {
			for _, at := range places {
				overwrite(t, path, at+offset, []byte{data[at+offset] ^ 1<<(i%8)})
			}
			wantBadRecord(t, path, uint64(i))
			for _, at := range places {
				overwrite(t, path, at+offset, data[at+offset:][:1])
			}
		}
	}
}

// occurrences are the places of a payload in the file: pages freed since may hold it too.
func occurrences(data, payload []byte) (places []int) {
	for from := 0; ; {
		i := bytes.Index(data[from:], payload)
		if i < 0 {
			return places
		}
		places = append(places, from+i)
		from += i + 1
	}
}

func wantBadRecord(t *testing.T, path string, seq uint64) {
	t.Helper()
	_, err := verified(path)
	var record *BadRecord
	if !errors.As(err, &record) || record.Seq != seq || !errors.Is(err, ErrDamaged) {
		t.Errorf("record %d was altered, and Verify says: %v", seq, err)
	}
}

// No file makes Open or Verify panic.
func FuzzFile(f *testing.F) {
	data := sample(f, 3)
	f.Add(data)
	f.Add(data[:len(data)-pageSize])
	f.Fuzz(func(t *testing.T, data []byte) {
		path := place(t)
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
		var err error
		testproc.AllocatesLike(t, data, 64, func() { _, err = verified(path) })
		if err != nil {
			wantError(t, err, path, ErrDamaged, ErrForeign, ErrNewer)
		}
	})
}
