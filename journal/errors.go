package journal

import (
	"errors"
	"fmt"
	"io/fs"
	"syscall"
)

// The kinds of error. What the package returns is one line that names the file and says what is wrong, and wraps one of
// these (and the cause, where there is one).
var (
	// ErrDamaged: the file was a journal, and part of it is missing or altered.
	ErrDamaged = errors.New("journal is damaged")
	// ErrForeign: the file is something else.
	ErrForeign = errors.New("not a journal")
	// ErrNewer: a later version of this package wrote the file.
	ErrNewer = errors.New("journal has a newer format")
	// ErrLocked: another process holds the lock.
	ErrLocked = errors.New("in use by another process")
	// ErrFull: the disk or the quota is full. Nothing was committed; a later Append may succeed.
	ErrFull = errors.New("no space left for the journal")
	// ErrFailed: a write or a sync failed for another reason. Whether the last batch is on the disk is unknown, and
	// stays so until the file is opened again: no later Append of this Journal can succeed.
	ErrFailed = errors.New("journal cannot be written any more")
	// ErrClosed: the Journal was closed.
	ErrClosed = errors.New("journal is closed")
	// ErrTooLarge: a payload, a batch or a snapshot is over its limit. Nothing was written.
	ErrTooLarge = errors.New("too large for the journal")
	// ErrMismatch: a snapshot does not fit the chain. Nothing was written.
	ErrMismatch = errors.New("snapshot does not fit the journal")
)

// BadRecord is the first record found wrong. It is (errors.Is) ErrDamaged.
type BadRecord struct {
	Seq uint64
	Why string
}

// Error names the record and what is wrong with it.
func (e *BadRecord) Error() string { return fmt.Sprintf("record %d: %s", e.Seq, e.Why) }

// Is makes every bad record a damage.
func (e *BadRecord) Is(target error) bool { return target == ErrDamaged }

func bad(seq uint64, format string, args ...any) error {
	return &BadRecord{Seq: seq, Why: fmt.Sprintf(format, args...)}
}

// fault is an error of the given kind about the file at path.
func fault(kind error, path, format string, args ...any) error {
	return fmt.Errorf("%s: %w: %w", path, kind, fmt.Errorf(format, args...))
}

// about says which file err is about, and that the file is damaged if that is what err means.
func about(path string, err error) error {
	var record *BadRecord
	if errors.As(err, &record) {
		return fault(ErrDamaged, path, "%w", err)
	}
	return fmt.Errorf("%s: %w", path, err)
}

// isFull reports a write refused for want of room. A sync that says so is no such thing: by then pages may be lost.
func isFull(err error) bool {
	var write *fs.PathError
	return errors.As(err, &write) && (errors.Is(write.Err, syscall.ENOSPC) || errors.Is(write.Err, syscall.EDQUOT))
}
