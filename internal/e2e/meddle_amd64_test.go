package e2e

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"supervisor/internal/testproc"
)

func init() {
	testproc.Register("meddle", meddle)
	any, fallible := anyBut(), anyBut(infallible...)
	kinds["any"], kinds["fallible"] = any, fallible
}

// infallible are those whose failure is not an upgrade's: the journal's, which
// is another test, and what is simply done again.
var infallible = []string{"any", "pwrite", "fdatasync", "accept"}

// anyBut is all kinds that there are so far but those.
func anyBut(names ...string) func(systemCall) bool {
	var fit []func(systemCall) bool
	for name, fits := range kinds {
		if !slices.Contains(names, name) {
			fit = append(fit, fits)
		}
	}
	return func(c systemCall) bool {
		return slices.ContainsFunc(fit, func(fits func(systemCall) bool) bool { return fits(c) })
	}
}

// A point is the nth time that any thread of an agent is about to make a kind
// of system call.
type point struct {
	after string // counted from the first call of this kind on; "" from the beginning
	call  string
	nth   int
}

func (p point) String() string {
	if p.after == "" {
		return fmt.Sprintf("%s %d", p.call, p.nth)
	}
	return fmt.Sprintf("%s %d after %s", p.call, p.nth, p.after)
}

// deadly is the error number of a call that is the agent's last: it is killed
// before it is made.
const deadly = unix.Errno(0)

// meddling is an agent that has a point before it.
type meddling struct {
	cmd  *exec.Cmd
	said *bufio.Reader
}

// meddle has a call of the agent fail, or be its last.
func (a *agent) meddle(p point, with unix.Errno) *meddling {
	a.t.Helper()
	argv := testproc.Argv("meddle", fmt.Sprint(a.cmd.Process.Pid), p.after, p.call, fmt.Sprint(p.nth), fmt.Sprint(int(with)))
	m := &meddling{cmd: exec.Command(argv[0], argv[1:]...)}
	m.cmd.Stderr = os.Stderr
	out, err := m.cmd.StdoutPipe()
	if err == nil {
		err = m.cmd.Start()
	}
	if err != nil {
		a.t.Fatal(err)
	}
	m.said = bufio.NewReader(out)
	if line, _ := m.said.ReadString('\n'); line != "ready\n" {
		_ = m.cmd.Wait()
		a.t.Skip("needs ptrace: ", line)
	}
	return m
}

// end lets go of the agent, and tells which call it met, "" if none.
func (m *meddling) end(t testing.TB) (met string) {
	t.Helper()
	_ = m.cmd.Process.Signal(unix.SIGTERM)
	met, _ = m.said.ReadString('\n')
	_ = m.cmd.Wait() // it died of the signal
	return strings.TrimSpace(met)
}

// kinds of calls, by the names that points use. What wakes threads is left out: a
// Go program does not outlive that this fails.
var kinds = map[string]func(c systemCall) bool{
	"memfd_create": is(unix.SYS_MEMFD_CREATE),
	"openat":       is(unix.SYS_OPENAT),
	"fstat":        func(c systemCall) bool { return c.nr == unix.SYS_FSTAT && !c.isJournal() },
	"fstatfs":      is(unix.SYS_FSTATFS),
	"lseek":        is(unix.SYS_LSEEK),
	"fchmod":       is(unix.SYS_FCHMOD),
	"fsync":        is(unix.SYS_FSYNC),
	"linkat":       is(unix.SYS_LINKAT),
	"renameat":     is(unix.SYS_RENAMEAT, unix.SYS_RENAMEAT2),
	"unlinkat":     is(unix.SYS_UNLINKAT),
	"execve":       is(unix.SYS_EXECVE),
	"accept":       is(unix.SYS_ACCEPT4),
	"epoll_ctl":    func(c systemCall) bool { return c.nr == unix.SYS_EPOLL_CTL && !strings.Contains(c.link(2), "eventfd") },
	"pread":        is(unix.SYS_PREAD64),
	"pwrite":       is(unix.SYS_PWRITE64),
	"fdatasync":    is(unix.SYS_FDATASYNC),
	"flock":        is(unix.SYS_FLOCK),
	"mmap":         func(c systemCall) bool { return c.nr == unix.SYS_MMAP && int32(c.args[4]) >= 0 },
	"fork":         func(c systemCall) bool { return c.nr == unix.SYS_CLONE && c.args[0]&unix.CLONE_VFORK != 0 },
	"write":        func(c systemCall) bool { return c.nr == unix.SYS_WRITE && c.isFile() },
	"seal":         func(c systemCall) bool { return c.nr == unix.SYS_FCNTL && c.args[1] == unix.F_ADD_SEALS },
	"keep":         func(c systemCall) bool { return c.nr == unix.SYS_FCNTL && c.args[1] == unix.F_SETFD && c.args[2] == 0 },
	"dup":          func(c systemCall) bool { return c.nr == unix.SYS_FCNTL && c.args[1] == unix.F_DUPFD_CLOEXEC },
}

func is(nrs ...uint64) func(systemCall) bool {
	return func(c systemCall) bool { return slices.Contains(nrs, c.nr) }
}

// nameOf is the kind of a call.
func nameOf(c systemCall) string {
	for name, fits := range kinds {
		if name != "any" && name != "fallible" && fits(c) {
			return name
		}
	}
	return ""
}

// about says what file a call is about, for people.
func (c systemCall) about() string {
	switch c.nr {
	case unix.SYS_OPENAT, unix.SYS_UNLINKAT:
		path := make([]byte, 256)
		n, _ := unix.PtracePeekData(c.tid, uintptr(c.args[1]), path)
		return unix.ByteSliceToString(path[:n])
	case unix.SYS_EPOLL_CTL:
		return c.link(0) + " " + c.link(2)
	case unix.SYS_MMAP:
		return c.link(4)
	}
	return c.link(0)
}

// isFile tells a file, in memory or on a disk, from a socket or an eventfd, and
// from the log.
func (c systemCall) isFile() bool {
	return c.args[0] > 2 && strings.HasPrefix(c.link(0), "/")
}

// meddler has a call fail, or be the last.
type meddler struct {
	*tracer
	point
	with    unix.Errno
	started bool         // after was met
	seen    int          // calls since
	failing map[int]bool // threads in the call that fails
}

// meddle is a meddler in a process of its own, so that the agent's end is still
// its parent's to wait for.
func meddle(args []string) int {
	runtime.LockOSThread() // ptrace(2) answers one thread alone
	pid, _ := strconv.Atoi(args[0])
	nth, _ := strconv.Atoi(args[3])
	with, _ := strconv.Atoi(args[4])
	m := &meddler{point: point{args[1], args[2], nth}, with: unix.Errno(with), started: args[1] == "", failing: map[int]bool{}}
	m.tracer = &tracer{pid: pid, whom: -1, see: m.see}
	if err := m.seize(); err != nil {
		fmt.Println(err)
		return 1
	}
	fmt.Println("ready")
	m.follow()
	return 0
}

// seize attaches to all threads.
func (m *meddler) seize() error {
	tasks := fmt.Sprintf("/proc/%d/task", m.pid)
	for known := map[string]bool{}; ; {
		entries, err := os.ReadDir(tasks)
		if err != nil {
			return err
		}
		before := len(known)
		for _, e := range entries {
			tid, _ := strconv.Atoi(e.Name())
			if known[e.Name()] {
				continue
			}
			known[e.Name()] = true
			_, _, errno := unix.Syscall6(unix.SYS_PTRACE, unix.PTRACE_SEIZE, uintptr(tid), 0, tracerOptions, 0, 0)
			if errno == unix.EPERM && len(known) > 1 { // a new thread of one that is traced already
				continue
			}
			if errno != 0 {
				return errno
			}
			if err := unix.PtraceInterrupt(tid); err != nil {
				return err
			}
		}
		if len(known) == before {
			return nil
		}
	}
}

// see looks at a call before and behind it.
func (m *meddler) see(c systemCall) {
	switch {
	case c.made && m.failing[c.tid]:
		delete(m.failing, c.tid)
		m.setRegister(c, func(r *unix.PtraceRegs) { r.Rax = uint64(-int64(m.with)) })
	case c.made || !m.meets(c):
	default:
		fmt.Println(nameOf(c), m.nth, c.about())
		if m.with == deadly {
			_ = unix.Kill(c.pid, unix.SIGKILL)
			return
		}
		m.failing[c.tid] = true
		m.setRegister(c, func(r *unix.PtraceRegs) { r.Orig_rax = ^uint64(0) }) // no such call
	}
}

func (m *meddler) setRegister(c systemCall, set func(*unix.PtraceRegs)) {
	var regs unix.PtraceRegs
	if unix.PtraceGetRegs(c.tid, &regs) == nil {
		set(&regs)
		_ = unix.PtraceSetRegs(c.tid, &regs)
	}
}

// meets counts, and tells whether this is the point.
func (m *meddler) meets(c systemCall) bool {
	if m.after == "exec" {
		m.started = m.execs > 0
	}
	if !m.started {
		m.started = kinds[m.after] != nil && kinds[m.after](c)
		return false
	}
	if !kinds[m.point.call](c) {
		return false
	}
	m.seen++
	return m.seen == m.nth
}
