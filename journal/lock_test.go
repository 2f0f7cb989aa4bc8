package journal

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func TestLock(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	if err := os.WriteFile(path, []byte("123456789012345678\n"), 0o600); err != nil { // of an earlier holder
		t.Fatal(err)
	}
	held, err := Lock(path)
	if err != nil {
		t.Fatal(err)
	}
	if flags, err := unix.FcntlInt(held.Fd(), unix.F_GETFD, 0); err != nil || flags&unix.FD_CLOEXEC == 0 {
		t.Errorf("the lock would leak into children: %#x, %v", flags, err)
	}
	_, err = Lock(path)
	wantError(t, err, path, ErrLocked)
	if pid := fmt.Sprintf("(pid %d)", os.Getpid()); !strings.Contains(err.Error(), pid) {
		t.Errorf("%v does not name the holder, %s", err, pid)
	}
	held.Close()
	again, err := Lock(path)
	if err != nil {
		t.Fatal(err)
	}
	again.Close()
}

// C28: a second writer and a reader of a journal that is open get an answer, and soon.
func TestOpenIsExclusive(t *testing.T) {
	path := place(t)
	j := open(t, path, Options{})
	start := time.Now()
	_, err := Open(path, Options{})
	wantError(t, err, path, ErrLocked)
	_, err = OpenReadOnly(path)
	wantError(t, err, path, ErrLocked)
	if took := time.Since(start); took > 2*time.Second {
		t.Errorf("it took %v", took)
	}
	mustAppend(t, j, []byte("unharmed"))
}

// A reader that is copying delays Open and does not fail it.
func TestOpenWaitsForAReader(t *testing.T) {
	path := place(t)
	mustClose(t, open(t, path, Options{}))
	reader, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := flock(reader, unix.LOCK_SH); err != nil {
		t.Fatal(err)
	}
	time.AfterFunc(50*time.Millisecond, func() { reader.Close() })
	mustClose(t, open(t, path, Options{}))
}

// A Reader has its copy, whatever happens to the journal; and it leaves the journal free.
func TestReaderIsDetached(t *testing.T) {
	path := place(t)
	j := open(t, path, Options{})
	fill(t, j, 3000, 100)
	head := j.Head()
	mustClose(t, j)
	r, err := OpenReadOnly(path)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	j = open(t, path, Options{})
	fill(t, j, 3000, 100)
	if err := os.Truncate(path, 0); err != nil {
		t.Fatal(err)
	}
	if err := r.Verify(nil); err != nil || r.Head() != head {
		t.Errorf("head %v, %v; want %v", r.Head(), err, head)
	}
	if records, err := r.Read(2990, 0, 0); err != nil || len(records) != 10 {
		t.Errorf("%d records, %v", len(records), err)
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	j.Close()
	mustClose(t, open(t, path, Options{}))
}

func TestVerifyStopsWithTheVisitorsError(t *testing.T) {
	j := open(t, place(t), Options{})
	fill(t, j, 10, 20)
	stop := errors.New("enough")
	var seen uint64
	err := j.Verify(func(r Record) error {
		if seen = r.Seq; seen == 4 {
			return stop
		}
		return nil
	})
	if err != stop || seen != 4 {
		t.Errorf("stopped at %d with %v", seen, err)
	}
}

func TestSetAside(t *testing.T) {
	path := place(t)
	now := time.Date(2026, 1, 2, 3, 4, 5, 6, time.FixedZone("", 3600))
	if err := os.WriteFile(path, []byte("damaged"), 0o600); err != nil {
		t.Fatal(err)
	}
	aside, err := SetAside(path, now)
	if want := path + ".damaged-20260102T020405.000000006Z"; err != nil || aside != want {
		t.Fatalf("%s, %v; want %s", aside, err, want)
	}
	mustClose(t, open(t, path, Options{}))
	if _, err := SetAside(path, now); !errors.Is(err, os.ErrExist) {
		t.Errorf("a second one at the same time: %v", err)
	}
	if data, _ := os.ReadFile(aside); string(data) != "damaged" {
		t.Errorf("it holds %q", data)
	}
}

// A new journal appears whole or not at all: whichever step fails, the next Open finds a sound place.
func TestCreateFails(t *testing.T) {
	broken := errors.New("broken")
	for name, d := range map[string]disk{
		"open":      {openFile: func(string, int, os.FileMode) (*os.File, error) { return nil, broken }},
		"write":     {openFile: func(name string, flag int, mode os.FileMode) (*os.File, error) { return readOnly(name, mode) }},
		"rename":    {rename: func(string, string) error { return broken }},
		"sync":      {syncDir: func(string) error { return broken }},
		"no folder": {rename: func(string, string) error { return os.ErrNotExist }},
	} {
		t.Run(name, func(t *testing.T) {
			path := place(t)
			_, err := Open(path, Options{disk: d})
			if err == nil || !strings.HasPrefix(err.Error(), path+": cannot create the journal: ") {
				t.Errorf("got %v", err)
			}
			if _, err := os.Stat(path + ".new"); err == nil {
				t.Error("it left a file behind")
			}
			mustAppend(t, open(t, path, Options{}), []byte("one"))
		})
	}
}

// readOnly creates a file that cannot be written.
func readOnly(name string, mode os.FileMode) (*os.File, error) {
	return os.OpenFile(name, os.O_RDONLY|os.O_CREATE|os.O_EXCL, mode)
}

// What a crash left of an earlier attempt is replaced.
func TestCreateOverLeftovers(t *testing.T) {
	path := place(t)
	if err := os.WriteFile(path+".new", []byte("half"), 0o600); err != nil {
		t.Fatal(err)
	}
	mustAppend(t, open(t, path, Options{}), []byte("one"))
}

// A killed agent's lock can be held for some milliseconds by a child that was on its way to execve.
func TestLockOutlivesItsHolderForAMoment(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	heir, err := Lock(path)
	if err != nil {
		t.Fatal(err)
	}
	time.AfterFunc(heirPatience/5, func() { heir.Close() })
	file, err := Lock(path)
	if err != nil {
		t.Fatal(err)
	}
	file.Close()
}
