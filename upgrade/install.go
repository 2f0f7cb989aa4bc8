package upgrade

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// Previous is where Install keeps the image that runs.
func Previous(installed string) string { return installed + ".prev" }

// disk is what Install asks of the file system, so that a test can have each
// call fail.
type disk struct {
	running string // the running image

	open    func(name string, flag int, mode os.FileMode) (*os.File, error)
	chmod   func(f *os.File, mode os.FileMode) error
	sync    func(f *os.File) error
	link    func(from, to string) error
	rename  func(from, to string) error
	syncDir func(path string) error
}

var realDisk = disk{
	running: "/proc/self/exe",
	open:    os.OpenFile, chmod: (*os.File).Chmod, sync: (*os.File).Sync,
	link: os.Link, rename: os.Rename, syncDir: syncDir,
}

// Install puts the copy at the installed path, in one rename(2), and keeps
// the running image as Previous. Both are durable when it returns, and undo puts
// the previous image back. On an error everything is as it was, with no scrap
// left; those of an Install that was killed are removed.
func (img *Image) Install(installed string) (undo func() error, err error) {
	folder := filepath.Dir(installed)
	claimed, err := claim(folder)
	if err != nil {
		return nil, err
	}
	defer claimed.Close()
	_ = sweep(folder) // a scrap that stays is in nobody's way
	if err := img.install(installed); err != nil {
		return nil, err
	}
	return func() error { return Restore(installed) }, nil
}

func (img *Image) install(installed string) error {
	d, folder := img.disk, filepath.Dir(installed)
	fresh, digest, err := d.write(folder, io.NewSectionReader(img.file, 0, img.size))
	if err != nil {
		return err
	}
	defer os.Remove(fresh) // renamed away if all went well, like replaced
	if digest != img.SHA256 {
		return fmt.Errorf("%s: %s was written instead of %s", folder, digest, img.SHA256)
	}
	replaced, err := d.keep(installed)
	if err != nil {
		return err
	}
	defer os.Remove(replaced)
	if err := d.rename(fresh, installed); err != nil {
		return err
	}
	if err := d.rename(replaced, Previous(installed)); err != nil {
		return errors.Join(err, os.Rename(replaced, installed))
	}
	if err := d.syncDir(folder); err != nil {
		return errors.Join(err, Restore(installed))
	}
	return nil
}

// Restore puts the previous image back in place.
func Restore(installed string) error {
	if err := os.Rename(Previous(installed), installed); err != nil {
		return err
	}
	return syncDir(filepath.Dir(installed))
}

// write makes a new executable in folder, durably, of what it reads, and
// tells the SHA-256 of that.
func (d disk) write(folder string, from io.Reader) (path, digest string, err error) {
	// No child may be forked while the file is open for writing: it would hold
	// it open, and execve would answer ETXTBSY.
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	f, err := d.open(scrapIn(folder), os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o700)
	if err != nil {
		return "", "", err
	}
	defer func() {
		if err = errors.Join(err, f.Close()); err != nil {
			os.Remove(f.Name())
		}
	}()
	h := sha256.New()
	if _, err := io.Copy(io.MultiWriter(f, h), from); err != nil {
		return "", "", err
	}
	if err := d.chmod(f, 0o755); err != nil {
		return "", "", err
	}
	return f.Name(), hex.EncodeToString(h.Sum(nil)), d.sync(f)
}

// keep gives the running image a name beside the installed one, which it
// returns. That is a link, or a copy where there are no links, and where the
// installed file is another one: a package manager has replaced or removed it.
func (d disk) keep(installed string) (path string, err error) {
	folder := filepath.Dir(installed)
	path = scrapIn(folder)
	if sameFile(installed, d.running) && d.link(installed, path) == nil {
		return path, nil
	}
	image, err := os.Open(d.running)
	if err != nil {
		return "", err
	}
	defer image.Close()
	path, _, err = d.write(folder, image)
	return path, err
}

func sameFile(one, other string) bool {
	a, errOne := os.Stat(one)
	b, errOther := os.Stat(other)
	return errOne == nil && errOther == nil && os.SameFile(a, b)
}

// scrapPrefix begins the names of files that are about to become an image.
const scrapPrefix = ".supervisor-"

// scrapIn names a file that nobody has yet.
func scrapIn(folder string) string { return filepath.Join(folder, scrapPrefix+rand.Text()) }

// Sweep removes the scraps of an Install that was killed.
func Sweep(installed string) error {
	folder := filepath.Dir(installed)
	claimed, err := claim(folder)
	if err != nil {
		return err
	}
	defer claimed.Close()
	return sweep(folder)
}

// sweep needs the folder claimed: the scraps are nobody's then.
func sweep(folder string) error {
	entries, err := os.ReadDir(folder)
	for _, e := range entries {
		name := e.Name()
		if strings.HasPrefix(name, scrapPrefix) && len(name) == len(scrapPrefix)+len(rand.Text()) {
			err = errors.Join(err, os.Remove(filepath.Join(folder, name)))
		}
	}
	return err
}

// claim keeps other agents from installing in a folder until the file is
// closed, unless its file system has no such locks (flock(2)).
func claim(folder string) (*os.File, error) {
	d, err := os.Open(folder)
	if err != nil {
		return nil, err
	}
	err = control(d, func(fd int) error { return unix.Flock(fd, unix.LOCK_EX|unix.LOCK_NB) })
	if errors.Is(err, unix.EWOULDBLOCK) {
		d.Close()
		return nil, fmt.Errorf("another upgrade is under way in %s", folder)
	}
	return d, nil
}

// syncDir makes renames in a folder durable.
func syncDir(path string) error {
	d, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
