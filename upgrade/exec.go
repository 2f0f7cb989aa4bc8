package upgrade

import (
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Variable names the state to the new image: /proc/self/fd/N.
const Variable = "PT_AGENT_HANDOFF"

// Exec replaces this process by the image at path. state and the descriptors in
// keep stay open in it, under their numbers. It returns only an error, and then
// everything is as it was: they are close-on-exec again.
func Exec(path string, argv, environ []string, state *os.File, keep []int) error {
	// A fork between the clearing of close-on-exec and the execve would leak
	// the descriptors into a child that nobody knows.
	syscall.ForkLock.Lock()
	defer syscall.ForkLock.Unlock()
	defer postponeSignals()()
	limit := descriptorLimit()
	carried := append([]int{fdOf(state)}, keep...)
	defer func() { _ = closeOnExec(carried, true) }() // what is not open needs no flag
	if err := closeOnExec(carried, false); err != nil {
		return err
	}
	err := syscall.Exec(path, argv, handoffEnviron(environ, state))
	restoreLimit(limit)
	return fmt.Errorf("execve %s: %w", path, err)
}

// postponeSignals keeps what would end an image that has not come up yet for the
// moment when it catches that: an execve(2) preserves the mask of its thread and
// what is pending.
func postponeSignals() (undo func()) {
	runtime.LockOSThread()
	var ending, before unix.Sigset_t
	for _, s := range []syscall.Signal{unix.SIGTERM, unix.SIGINT, unix.SIGHUP} {
		ending.Val[0] |= 1 << (s - 1) // as the kernel numbers them
	}
	_ = unix.PthreadSigmask(unix.SIG_BLOCK, &ending, &before)
	return func() {
		_ = unix.PthreadSigmask(unix.SIG_SETMASK, &before, nil)
		runtime.UnlockOSThread()
	}
}

func handoffEnviron(environ []string, state *os.File) []string {
	out := slices.DeleteFunc(slices.Clone(environ), func(kv string) bool { return strings.HasPrefix(kv, Variable+"=") })
	return append(out, Variable+"=/proc/self/fd/"+strconv.Itoa(fdOf(state)))
}

// Inheritance is what an earlier image has left to this one.
type Inheritance struct {
	RolledBack string // why a later image gave up and this one is back; "" otherwise
	// Keep are the descriptors that RollBack hands back. Until it is set, they
	// are all that are not close-on-exec.
	Keep []int

	state   *os.File // sealed
	doubled []int    // descriptors of which Duplicate made another
}

// Inherit returns what an earlier image has left, nil if this image was not
// started by Exec. It must be called before anything else opens descriptors.
// The variables are gone from the environment then.
func Inherit() (*Inheritance, error) {
	value, rolledBack := os.Getenv(Variable), os.Getenv(rollbackVariable)
	if err := errors.Join(os.Unsetenv(Variable), os.Unsetenv(rollbackVariable)); err != nil || value == "" {
		return nil, err
	}
	digits, ok := strings.CutPrefix(value, "/proc/self/fd/")
	fd, err := strconv.Atoi(digits)
	if !ok || err != nil || fd < 3 {
		return nil, fmt.Errorf("%s=%q does not name a descriptor", Variable, value)
	}
	if err := closeOnExec([]int{fd}, true); err != nil {
		return nil, err
	}
	return &Inheritance{RolledBack: rolledBack, state: os.NewFile(uintptr(fd), "handoff")}, nil
}

// State reads the state from its beginning.
func (h *Inheritance) State() io.Reader { return io.NewSectionReader(h.state, 0, math.MaxInt64) }

// Duplicate returns another descriptor of the same file, for those who may
// close it: the inherited one can still be handed back then. Accept closes that.
func (h *Inheritance) Duplicate(fd int) (int, error) {
	another, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 3)
	if err != nil {
		return -1, fmt.Errorf("descriptor %d: %w", fd, err)
	}
	h.doubled = append(h.doubled, fd)
	return another, nil
}

// Accept ends what RollBack needs: this image goes on.
func (h *Inheritance) Accept() {
	h.state.Close()
	for _, fd := range h.doubled {
		unix.Close(fd)
	}
}

// RollBack puts the previous image back in place and replaces this one by it,
// with everything as it was inherited. It returns only an error. An image that
// is itself the result of one has no way back.
func (h *Inheritance) RollBack(installed string, argv, environ []string, cause error) error {
	if h.RolledBack != "" {
		return fmt.Errorf("%w; and so did the image after this one: %s", cause, h.RolledBack)
	}
	keep, err := h.Keep, error(nil)
	if keep == nil {
		if keep, err = openOnExec(); err != nil {
			return errors.Join(cause, err)
		}
	}
	path := installed
	if err := Restore(installed); err != nil {
		path = Previous(installed)
	}
	err = Exec(path, argv, append(environ, rollbackVariable+"="+reason(cause)), h.state, keep)
	return fmt.Errorf("%w; and there is no way back: %w", cause, err)
}

// reason is an error as an environment variable can hold it (execve(2)).
func reason(err error) string {
	const most = 4096
	said := strings.ReplaceAll(err.Error(), "\x00", "")
	return said[:min(most, len(said))]
}

// rollbackVariable tells an image that is back why the later one gave up.
const rollbackVariable = "PT_AGENT_ROLLED_BACK"

// openOnExec lists the descriptors from 3 up that an execve would leave open.
// What the Go runtime opens itself is not among them.
func openOnExec() ([]int, error) {
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return nil, err
	}
	var fds []int
	for _, e := range entries {
		fd, err := strconv.Atoi(e.Name())
		if err != nil || fd < 3 {
			continue
		}
		if flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); err == nil && flags&unix.FD_CLOEXEC == 0 {
			fds = append(fds, fd)
		}
	}
	return fds, nil
}

// closeOnExec sets or clears the flag of descriptors.
func closeOnExec(fds []int, on bool) error {
	flag := 0
	if on {
		flag = unix.FD_CLOEXEC
	}
	var errs error
	for _, fd := range fds {
		if _, err := unix.FcntlInt(uintptr(fd), unix.F_SETFD, flag); err != nil {
			errs = errors.Join(errs, fmt.Errorf("descriptor %d: %w", fd, err))
		}
	}
	return errs
}

// descriptorLimit reads RLIMIT_NOFILE, which the Go runtime has raised for
// itself. syscall.Exec puts the original one back, also if it fails.
func descriptorLimit() (l unix.Rlimit) {
	prlimit(nil, &l)
	return l
}

// restoreLimit raises the limit again without the runtime noticing: it must
// still know the original one, for children.
func restoreLimit(l unix.Rlimit) { prlimit(&l, nil) }

func prlimit(set, get *unix.Rlimit) {
	unix.RawSyscall6(unix.SYS_PRLIMIT64, 0, unix.RLIMIT_NOFILE,
		uintptr(unsafe.Pointer(set)), uintptr(unsafe.Pointer(get)), 0, 0)
}
