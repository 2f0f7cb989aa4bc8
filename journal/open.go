package journal

import (
	"errors"
	"fmt"
	"io/fs"
	"os"

	"go.etcd.io/bbolt"
)

const (
	// pageSize is fixed, so that a file moves between machines whose memory pages differ.
	pageSize = 4096
	// mapSize is address space, not memory: while the file is smaller, the writer never waits for readers to remap it.
	mapSize = 256 << 20
)

// openOrCreate opens and locks the file at path, after creating it if need be.
func openOrCreate(path string, d disk) (*os.File, error) {
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist), err == nil && info.Mode().IsRegular() && info.Size() == 0:
		if err := create(path, d); err != nil {
			return nil, fmt.Errorf("%s: cannot create the journal: %w", path, err)
		}
	case err != nil:
		return nil, fmt.Errorf("%s: cannot open the journal: %w", path, err)
	case !info.Mode().IsRegular():
		return nil, fault(ErrForeign, path, "not a regular file")
	}
	file, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return nil, fmt.Errorf("%s: cannot open the journal: %w", path, err)
	}
	if err := lockWithin(file, lockPatience); err != nil {
		file.Close()
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return file, nil
}

// open checks the file and opens it as a database. The store owns the file from then on; on an error it is closed.
// Structure is checked page by page if walk is set.
func (s *store) open(path string, file *os.File, walk, noSync bool) error {
	s.path, s.file = path, file
	if err := checkFile(file, walk); err != nil {
		file.Close()
		return about(path, err)
	}
	err := s.guard(func() (err error) {
		s.db, err = openDB(file, noSync)
		return err
	})
	if err != nil {
		file.Close()
		return about(path, err)
	}
	if err := s.stock(); err != nil {
		s.close()
		return err
	}
	return nil
}

// openDB opens a file, which it then owns, as a bbolt database.
func openDB(file *os.File, noSync bool) (*bbolt.DB, error) {
	return bbolt.Open(file.Name(), 0o600, &bbolt.Options{
		OpenFile:        func(string, int, os.FileMode) (*os.File, error) { return file, nil },
		Timeout:         lockPatience,
		PageSize:        pageSize,
		InitialMmapSize: mapSize,
		// First fit. The other type takes any run of pages that is long enough: snapshots, each in one run, then leave holes
		// that the next does not fit, and the file grows to many times what it holds.
		FreelistType: bbolt.FreelistArrayType,
		NoSync:       noSync,
		NoStatistics: true,
		// The file grows as pages are written, so its length says when its end was cut off, and a full disk is an error
		// of that write. What bbolt would do instead, ftruncate and fsync, was for kernels whose fdatasync forgot sizes.
		NoGrowSync: true,
	})
}
