package journal

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// lockPatience is how long Open waits for a reader that is copying the file.
	lockPatience = 900 * time.Millisecond
	// heirPatience is how long Lock waits for the lock of a process that was killed: a child of it that was between fork
	// and execve at that moment holds the descriptor until it gets there.
	heirPatience = 500 * time.Millisecond
	lockInterval = 10 * time.Millisecond
)

// Lock takes the lock file at path, which makes its holder the one that may Open journals beside it, and writes the
// process id into it. The lock belongs to the open file (flock(2)): it lasts until the last descriptor of it is closed, and
// can be handed over with one. The descriptor is close-on-exec. ErrLocked, within a second, if it is held.
func Lock(path string) (*os.File, error) {
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("%s: cannot open the lock file: %w", path, err)
	}
	if err := lockWithin(file, heirPatience); err != nil {
		defer file.Close()
		return nil, fmt.Errorf("%s: %w%s", path, err, holder(file))
	}
	if err := writePID(file); err != nil {
		file.Close()
		return nil, fmt.Errorf("%s: cannot write the lock file: %w", path, err)
	}
	return file, nil
}

// holder is what the lock file says about who holds it.
func holder(file *os.File) string {
	text, err := io.ReadAll(io.LimitReader(file, 32))
	if pid := strings.TrimSpace(string(text)); err == nil && pid != "" {
		return fmt.Sprintf(" (pid %s)", pid)
	}
	return ""
}

func writePID(file *os.File) error {
	if err := file.Truncate(0); err != nil {
		return err
	}
	_, err := file.WriteAt(fmt.Appendln(nil, os.Getpid()), 0)
	return err
}

// flock takes a lock of the given kind, LOCK_EX or LOCK_SH, without waiting. ErrLocked if it cannot be had.
func flock(file *os.File, kind int) error {
	conn, err := file.SyscallConn()
	if err != nil {
		return err
	}
	var result error
	if err := conn.Control(func(fd uintptr) { result = unix.Flock(int(fd), kind|unix.LOCK_NB) }); err != nil {
		return err
	}
	if errors.Is(result, unix.EWOULDBLOCK) {
		return ErrLocked
	}
	return result
}

// lockWithin takes an exclusive lock, and waits up to patience for it.
func lockWithin(file *os.File, patience time.Duration) error {
	deadline := time.Now().Add(patience)
	for {
		err := flock(file, unix.LOCK_EX)
		if !errors.Is(err, ErrLocked) || time.Now().After(deadline) {
			return err
		}
		time.Sleep(lockInterval)
	}
}
