package upgrade

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
)

// Previous is where Install keeps what it replaces.
func Previous(installed string) string { return installed + ".prev" }

// Install puts the copy at the installed path, in one rename(2), and keeps
// what was there as Previous. Both are durable when it returns. undo puts the
// previous image back.
func (img *Image) Install(installed string) (undo func() error, err error) {
	fresh, err := img.write(filepath.Dir(installed))
	if err != nil {
		return nil, err
	}
	defer os.Remove(fresh) // renamed away if all went well
	if err := keep(installed); err != nil {
		return nil, err
	}
	if err := os.Rename(fresh, installed); err != nil {
		return nil, err
	}
	return func() error { return Restore(installed) }, syncFolder(filepath.Dir(installed))
}

// Restore puts the previous image back in place.
func Restore(installed string) error {
	if err := os.Rename(Previous(installed), installed); err != nil {
		return err
	}
	return syncFolder(filepath.Dir(installed))
}

// write writes the copy to a new file in folder, durably, and checks what was
// written against the digest.
func (img *Image) write(folder string) (path string, err error) {
	// No child may be forked while the file is open for writing: it would hold
	// it open, and execve would answer ETXTBSY.
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	f, err := os.OpenFile(filepath.Join(folder, ".supervisor-"+rand.Text()), os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o700)
	if err != nil {
		return "", err
	}
	defer func() {
		if err = errors.Join(err, f.Close()); err != nil {
			os.Remove(f.Name())
		}
	}()
	h := sha256.New()
	if _, err := io.Copy(io.MultiWriter(f, h), io.NewSectionReader(img.file, 0, img.size)); err != nil {
		return "", err
	}
	if got := hex.EncodeToString(h.Sum(nil)); got != img.SHA256 {
		return "", fmt.Errorf("%s: %s was written instead of %s", f.Name(), got, img.SHA256)
	}
	if err := f.Chmod(0o755); err != nil {
		return "", err
	}
	return f.Name(), f.Sync()
}

// keep links the installed image as the previous one. Without an installed
// image, removed while it ran, the previous one stays what it is.
func keep(installed string) error {
	fresh := filepath.Join(filepath.Dir(installed), ".supervisor-"+rand.Text())
	if err := os.Link(installed, fresh); errors.Is(err, fs.ErrNotExist) {
		return nil
	} else if err != nil {
		return err
	}
	return os.Rename(fresh, Previous(installed))
}

// syncFolder makes renames in a folder durable.
func syncFolder(path string) error {
	d, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
