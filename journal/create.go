package journal

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

// disk is the part of the file system that create uses. A nil function is the real one.
type disk struct {
	openFile func(name string, flag int, mode os.FileMode) (*os.File, error)
	rename   func(from, to string) error
	syncDir  func(dir string) error
}

func (d disk) withDefaults() disk {
	if d.openFile == nil {
		d.openFile = os.OpenFile
	}
	if d.rename == nil {
		d.rename = os.Rename
	}
	if d.syncDir == nil {
		d.syncDir = syncDir
	}
	return d
}

// create makes an empty journal appear at path, whole or not at all: it is written and synced under another name, and
// renamed. A crash leaves at most that other file, which the next create replaces.
func create(path string, d disk) error {
	d = d.withDefaults()
	temp := path + ".new"
	if err := os.Remove(temp); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	file, err := d.openFile(temp, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	if err := initialize(file); err != nil {
		return errors.Join(err, os.Remove(temp))
	}
	if err := d.rename(temp, path); err != nil {
		return errors.Join(err, os.Remove(temp))
	}
	return d.syncDir(filepath.Dir(path))
}

// initialize writes an empty journal into an empty file, syncs and closes it.
func initialize(file *os.File) error {
	db, err := openDB(file, false)
	if err != nil {
		return err // bbolt has closed the file
	}
	return errors.Join(db.Update(writeHeader), file.Sync(), db.Close())
}

// syncDir makes a rename in dir durable (fsync(2)).
func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// SetAside renames the file at path, whatever it is, to path.damaged-<time, UTC>, so that a new journal can be created, and
// returns the new name. It replaces nothing. The rename is durable when it returns.
func SetAside(path string, now time.Time) (string, error) {
	aside := path + ".damaged-" + now.UTC().Format("20060102T150405.000000000Z")
	if err := unix.Renameat2(unix.AT_FDCWD, path, unix.AT_FDCWD, aside, unix.RENAME_NOREPLACE); err != nil {
		return "", fmt.Errorf("%s: cannot set the journal aside as %s: %w", path, aside, err)
	}
	return aside, syncDir(filepath.Dir(path))
}
