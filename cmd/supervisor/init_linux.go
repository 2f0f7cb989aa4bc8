package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"supervisor/engine"
)

// isInit tells whether this process is PID 1: of a machine, or of a PID
// namespace. It must never simply exit, since the kernel panics then.
func isInit() bool { return os.Getpid() == 1 }

// initPath is the PATH of children where nobody has set one: the kernel does
// not.
const initPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// serveAsInit serves as PID 1. Then it ends the machine: SIGINT, which the
// kernel sends for ctrl-alt-del, reboots it, anything else powers it off.
// Where it may not, it returns, and exiting ends the namespace.
func serveAsInit(ctx context.Context, o options, inherited *engine.Inheritance, stderr io.Writer) error {
	warn := func(err error) {
		if err != nil {
			tell(stderr, "supervisor: %v\n", err)
		}
	}
	for _, m := range mounts {
		warn(m.mount())
	}
	warn(linkStdio())
	_ = unix.Reboot(unix.LINUX_REBOOT_CMD_CAD_OFF) // not allowed in a namespace
	if os.Getenv("PATH") == "" {
		warn(os.Setenv("PATH", initPath))
	}
	o.killOnExit = true
	o.engine.Crashed = func(reason any, stack []byte) { restart(stderr, reason, stack) }
	reason, err := serve(ctx, o, inherited, stderr)
	warn(err)
	_ = unix.Kill(-1, unix.SIGKILL) // nobody may be left
	unix.Sync()
	how := unix.LINUX_REBOOT_CMD_POWER_OFF
	if reason == unix.SignalName(unix.SIGINT) {
		how = unix.LINUX_REBOOT_CMD_RESTART
	}
	if err := unix.Reboot(how); !errors.Is(err, unix.EPERM) {
		warn(err)
	}
	return nil
}

// mount is a file system that children expect.
type mount struct {
	dir, fstype string
	flags       uintptr
	data        string
	proof       string // what is there if it is mounted; "": anything
}

const hardened = unix.MS_NOSUID | unix.MS_NOEXEC | unix.MS_NODEV

var mounts = []mount{
	{"/proc", "proc", hardened, "", "self"},
	{"/sys", "sysfs", hardened, "", "kernel"},
	{"/dev", "devtmpfs", unix.MS_NOSUID, "mode=0755", "null"},
	{"/dev/pts", "devpts", unix.MS_NOSUID | unix.MS_NOEXEC, "mode=0620,ptmxmode=0666,gid=5", "ptmx"},
	{"/dev/shm", "tmpfs", unix.MS_NOSUID | unix.MS_NODEV, "mode=1777", ""},
	{"/run", "tmpfs", unix.MS_NOSUID | unix.MS_NODEV, "mode=0755", ""},
	{"/tmp", "tmpfs", unix.MS_NOSUID | unix.MS_NODEV, "mode=1777", ""},
}

// mount mounts it if it is missing. Nothing that is there is hidden.
func (m mount) mount() error {
	if m.mounted() {
		return nil
	}
	if err := os.MkdirAll(m.dir, 0o755); err != nil {
		return err
	}
	if err := unix.Mount(m.fstype, m.dir, m.fstype, m.flags, m.data); err != nil {
		return fmt.Errorf("mounting %s: %w", m.dir, err)
	}
	return nil
}

func (m mount) mounted() bool {
	if m.proof != "" {
		_, err := os.Lstat(filepath.Join(m.dir, m.proof))
		return err == nil
	}
	var at, above unix.Stat_t
	if unix.Stat(m.dir, &at) != nil {
		return false
	}
	entries, _ := os.ReadDir(m.dir)
	return len(entries) > 0 || unix.Stat(filepath.Dir(m.dir), &above) == nil && at.Dev != above.Dev
}

// linkStdio makes the names in /dev that the kernel leaves to user space.
func linkStdio() error {
	var errs []error
	for name, target := range map[string]string{
		"fd": "/proc/self/fd", "stdin": "fd/0", "stdout": "fd/1", "stderr": "fd/2", "ptmx": "pts/ptmx",
	} {
		if err := os.Symlink(target, filepath.Join("/dev", name)); err != nil && !errors.Is(err, os.ErrExist) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// termStrays sends SIGTERM to everybody who is in none of these sessions: to
// the orphans that PID 1 has.
func termStrays(sessions []int) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return
	}
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil || pid == os.Getpid() {
			continue
		}
		if session, err := unix.Getsid(pid); err == nil && !slices.Contains(sessions, session) {
			_ = unix.Kill(pid, unix.SIGTERM) // gone meanwhile, or of the kernel
		}
	}
}

// restart is the end of an image that panicked as PID 1: it begins again, finds
// its processes as after any crash, and does not return. The pause keeps a
// fault that is there from the start from burning a CPU.
func restart(stderr io.Writer, reason any, stack []byte) {
	tell(stderr, "supervisor: panic: %v: starting again\n%s", reason, stack)
	time.Sleep(time.Second)
	tell(stderr, "supervisor: %v\n", syscall.Exec("/proc/self/exe", os.Args, os.Environ()))
}
