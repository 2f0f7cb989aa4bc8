package journal

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// Reader reads a copy of a journal, as it was when it was opened. Its methods are safe for concurrent use.
type Reader struct{ store }

// OpenReadOnly copies the journal at path and opens the copy, so that reading neither changes the journal nor keeps an agent
// from opening it: the lock is shared, taken without waiting, and held only while the copy is made, which is at once where
// the file system shares blocks (FICLONE). ErrLocked if an agent has the journal open; other errors as of Open, and
// fs.ErrNotExist. A file of zero length is a journal without records. The caller must Close the Reader, which leaves nothing
// behind, and nothing is left if it does not.
func OpenReadOnly(path string) (*Reader, error) {
	copied, err := snapshotFile(path)
	if err != nil {
		return nil, err
	}
	r := new(Reader)
	if err := r.open(path, copied, true, true); err != nil {
		return nil, err
	}
	return r, nil
}

// Close gives up the copy.
func (r *Reader) Close() error { return r.close() }

// snapshotFile returns a copy, without a name, of the journal at path.
func snapshotFile(path string) (*os.File, error) {
	info, err := os.Stat(path)
	if err == nil && !info.Mode().IsRegular() {
		return nil, fault(ErrForeign, path, "not a regular file")
	}
	source, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("%s: cannot open the journal: %w", path, err)
	}
	defer source.Close() // and with it the lock
	if err := flock(source, unix.LOCK_SH); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	copied, err := clone(source)
	if err == nil && info.Size() == 0 {
		err = initializeCopy(copied)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: cannot copy the journal: %w", path, err)
	}
	return copied, nil
}

// clone shares the source's blocks where the file system can, and copies them into the temporary folder where not, so that
// a journal's nearly full disk is left alone.
func clone(source *os.File) (*os.File, error) {
	if shared, err := nameless(filepath.Dir(source.Name())); err == nil {
		if err := unix.IoctlFileClone(int(shared.Fd()), int(source.Fd())); err == nil {
			return shared, nil
		}
		shared.Close()
	}
	copied, err := nameless(os.TempDir())
	if err != nil {
		return nil, err
	}
	if _, err := io.Copy(copied, source); err != nil {
		copied.Close()
		return nil, err
	}
	return copied, nil
}

// initializeCopy makes an empty, nameless file a journal. What initialize closes is a second descriptor.
func initializeCopy(file *os.File) error {
	again, err := os.OpenFile(fmt.Sprintf("/proc/self/fd/%d", file.Fd()), os.O_RDWR, 0)
	if err != nil {
		return err
	}
	return initialize(again)
}

// nameless opens a new file that has no name in dir and vanishes with its last descriptor.
func nameless(dir string) (*os.File, error) {
	file, err := os.OpenFile(dir, os.O_RDWR|unix.O_TMPFILE, 0o600)
	if !errors.Is(err, unix.EOPNOTSUPP) && !errors.Is(err, fs.ErrInvalid) {
		return file, err
	}
	if file, err = os.CreateTemp(dir, "journal-*"); err != nil {
		return nil, err
	}
	return file, os.Remove(file.Name())
}
