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
func anyBut(names ...string) func(call) bool {
	var fit []func(call) bool
	for name, fits := range kinds {
		if !slices.Contains(names, name) {
			fit = append(fit, fits)
		}
	}
	return func(c call) bool {
		return slices.ContainsFunc(fit, func(fits func(call) bool) bool { return fits(c) })
	}
}

// A point is the nth time that any thread of an agent is about to make a kind
// of system call. strace counts in each thread of its own, which in a Go
// program is up to chance.
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
var kinds = map[string]func(c call) bool{
	"memfd_create": is(unix.SYS_MEMFD_CREATE),
	"openat":       is(unix.SYS_OPENAT),
	"fstat":        func(c call) bool { return c.nr == unix.SYS_FSTAT && !c.isJournal() },
	"fstatfs":      is(unix.SYS_FSTATFS),
	"lseek":        is(unix.SYS_LSEEK),
	"fchmod":       is(unix.SYS_FCHMOD),
	"fsync":        is(unix.SYS_FSYNC),
	"linkat":       is(unix.SYS_LINKAT),
	"renameat":     is(unix.SYS_RENAMEAT, unix.SYS_RENAMEAT2),
	"unlinkat":     is(unix.SYS_UNLINKAT),
	"execve":       is(unix.SYS_EXECVE),
	"accept":       is(unix.SYS_ACCEPT4),
	"epoll_ctl":    func(c call) bool { return c.nr == unix.SYS_EPOLL_CTL && !strings.Contains(c.link(2), "eventfd") },
	"pread":        is(unix.SYS_PREAD64),
	"pwrite":       is(unix.SYS_PWRITE64),
	"fdatasync":    is(unix.SYS_FDATASYNC),
	"flock":        is(unix.SYS_FLOCK),
	"mmap":         func(c call) bool { return c.nr == unix.SYS_MMAP && int32(c.args[4]) >= 0 },
	"fork":         func(c call) bool { return c.nr == unix.SYS_CLONE && c.args[0]&unix.CLONE_VFORK != 0 },
	"write":        func(c call) bool { return c.nr == unix.SYS_WRITE && c.isFile() },
	"seal":         func(c call) bool { return c.nr == unix.SYS_FCNTL && c.args[1] == unix.F_ADD_SEALS },
	"keep":         func(c call) bool { return c.nr == unix.SYS_FCNTL && c.args[1] == unix.F_SETFD && c.args[2] == 0 },
	"dup":          func(c call) bool { return c.nr == unix.SYS_FCNTL && c.args[1] == unix.F_DUPFD_CLOEXEC },
}

// call is a system call at its entry.
type call struct {
	nr   uint64
	args [6]uint64
	pid  int
}

func is(nrs ...uint64) func(call) bool {
	return func(c call) bool { return slices.Contains(nrs, c.nr) }
}

// nameOf is the kind of a call.
func nameOf(c call) string {
	for name, fits := range kinds {
		if name != "any" && name != "fallible" && fits(c) {
			return name
		}
	}
	return ""
}

// isJournal tells the journal, which a live agent does not trust after an error.
func (c call) isJournal() bool { return strings.HasSuffix(c.link(0), "journal.db") }

// about says what file a call is about, for people.
func (c call) about(tid int) string {
	switch c.nr {
	case unix.SYS_OPENAT, unix.SYS_UNLINKAT:
		path := make([]byte, 256)
		n, _ := unix.PtracePeekData(tid, uintptr(c.args[1]), path)
		return unix.ByteSliceToString(path[:n])
	case unix.SYS_EPOLL_CTL:
		return c.link(0) + " " + c.link(2)
	case unix.SYS_MMAP:
		return c.link(4)
	}
	return c.link(0)
}

// link says what a descriptor in the arguments is.
func (c call) link(arg int) string {
	link, _ := os.Readlink(fmt.Sprintf("/proc/%d/fd/%d", c.pid, int32(c.args[arg])))
	return link
}

// isFile tells a file, in memory or on a disk, from a socket or an eventfd, and
// from the log.
func (c call) isFile() bool {
	return c.args[0] > 2 && strings.HasPrefix(c.link(0), "/")
}

// tracer is meddle at work.
type tracer struct {
	point
	pid     int
	with    unix.Errno
	started bool         // after was met
	seen    int          // calls since
	failing map[int]bool // threads in the call that fails
}

// meddle follows every thread of a process, over execve too (ptrace(2)).
func meddle(args []string) int {
	runtime.LockOSThread() // the tracer is a thread
	pid, _ := strconv.Atoi(args[0])
	nth, _ := strconv.Atoi(args[3])
	with, _ := strconv.Atoi(args[4])
	tr := &tracer{point{args[1], args[2], nth}, pid, unix.Errno(with), args[1] == "", 0, map[int]bool{}}
	if err := tr.seize(); err != nil {
		fmt.Println(err)
		return 1
	}
	fmt.Println("ready")
	for {
		var status unix.WaitStatus
		tid, err := unix.Wait4(-1, &status, unix.WALL, nil)
		if err != nil { // nothing is left to be traced
			return 0
		}
		if status.Stopped() {
			tr.stopped(tid, status)
		}
	}
}

// seize attaches to all threads.
func (tr *tracer) seize() error {
	const options = unix.PTRACE_O_TRACESYSGOOD | unix.PTRACE_O_TRACECLONE | unix.PTRACE_O_TRACEEXEC
	tasks := fmt.Sprintf("/proc/%d/task", tr.pid)
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
			_, _, errno := unix.Syscall6(unix.SYS_PTRACE, unix.PTRACE_SEIZE, uintptr(tid), 0, options, 0, 0)
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

// stopped decides how a thread goes on.
func (tr *tracer) stopped(tid int, status unix.WaitStatus) {
	signal := 0
	switch s := status.StopSignal(); {
	case s == unix.SIGTRAP|0x80:
		tr.atCall(tid)
	case status>>16 == 0:
		signal = int(s)
	case status>>16 == unix.PTRACE_EVENT_EXEC && tr.after == "exec":
		tr.started = true
	}
	_ = unix.PtraceSyscall(tid, signal) // a thread that is gone needs no more
}

// atCall is where a system call begins or ends.
func (tr *tracer) atCall(tid int) {
	var regs unix.PtraceRegs
	if unix.PtraceGetRegs(tid, &regs) != nil {
		return
	}
	if tr.failing[tid] {
		delete(tr.failing, tid)
		regs.Rax = uint64(-int64(tr.with))
		_ = unix.PtraceSetRegs(tid, &regs)
		return
	}
	if int64(regs.Rax) != -int64(unix.ENOSYS) { // it ends
		return
	}
	c := call{regs.Orig_rax, [6]uint64{regs.Rdi, regs.Rsi, regs.Rdx, regs.R10, regs.R8, regs.R9}, tr.pid}
	if !tr.meets(c) {
		return
	}
	fmt.Println(nameOf(c), tr.nth, c.about(tid))
	if tr.with == deadly {
		_ = unix.Kill(tr.pid, unix.SIGKILL)
		return
	}
	regs.Orig_rax = ^uint64(0) // no such call
	_ = unix.PtraceSetRegs(tid, &regs)
	tr.failing[tid] = true
}

// meets counts, and tells whether this is the point.
func (tr *tracer) meets(c call) bool {
	if !tr.started {
		tr.started = kinds[tr.after] != nil && kinds[tr.after](c)
		return false
	}
	if !kinds[tr.call](c) {
		return false
	}
	tr.seen++
	return tr.seen == tr.nth
}
