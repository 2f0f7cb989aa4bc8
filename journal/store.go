package journal

import (
	"errors"
	"fmt"
	"os"
	"runtime/debug"
	"sync/atomic"

	"go.etcd.io/bbolt"
	berrors "go.etcd.io/bbolt/errors"
)

// store is an open file as readers see it. Its methods are safe for concurrent use.
type store struct {
	path   string
	file   *os.File // db's own descriptor; db closes it
	db     *bbolt.DB
	ledger atomic.Pointer[ledger] // as of the last durable commit
	broken atomic.Pointer[error]  // set for good once bbolt panicked: it may still hold its locks, so it is not called again
}

// Head returns the newest committed record; the zero Head of a journal without records. It takes no lock.
func (s *store) Head() Head { return s.ledger.Load().head }

// FirstSeq returns the sequence number of the oldest retained record, that of the head plus one if there is none.
func (s *store) FirstSeq() uint64 { return s.ledger.Load().base.Seq + 1 }

// Base returns the newest pruned record, from whose hash the chain of the retained ones goes on; the zero Head if none was
// pruned. It takes no lock.
func (s *store) Base() Head { return s.ledger.Load().base }

// Bytes returns the payload bytes of all retained records.
func (s *store) Bytes() int64 { return s.ledger.Load().bytes }

// view runs fn in a read transaction.
func (s *store) view(fn func(*bbolt.Tx) error) error {
	return s.guard(func() error { return s.db.View(fn) })
}

// guard runs fn, which calls bbolt, and turns a panic or a memory fault into ErrDamaged: bbolt checks little of what it
// reads, and reads through a mapping, where a file cut short is a fault and not an error (mmap(2), SIGBUS). Its errors do
// not name the file.
func (s *store) guard(fn func() error) (err error) {
	if broken := s.broken.Load(); broken != nil {
		return *broken
	}
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if cause := recover(); cause != nil {
			err = fmt.Errorf("%w: %v", ErrDamaged, cause)
			s.broken.CompareAndSwap(nil, &err)
		}
	}()
	if err = fn(); errors.Is(err, berrors.ErrDatabaseNotOpen) {
		return ErrClosed
	}
	return err
}

// stock reads the ledger. Its errors name the file.
func (s *store) stock() error {
	var l *ledger
	err := s.view(func(tx *bbolt.Tx) (err error) {
		l, err = readLedger(tx)
		return err
	})
	if err != nil {
		return about(s.path, err)
	}
	s.ledger.Store(l)
	return nil
}

// close lets go of the file. A broken bbolt may never give its locks back: then only the descriptor is closed.
func (s *store) close() error {
	if s.broken.Load() != nil {
		return s.file.Close()
	}
	return s.db.Close()
}
