package e2e

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
)

// systemCall is one that a thread of the agent is about to make, or has made.
type systemCall struct {
	pid  int // the agent
	tid  int
	nr   uint64
	args [6]uint64
	made bool
	err  bool // made, and failed
}

// link says what a descriptor in the arguments is.
func (c systemCall) link(arg int) string {
	link, _ := os.Readlink(fmt.Sprintf("/proc/%d/fd/%d", c.pid, int32(c.args[arg])))
	return link
}

// isJournal tells the journal from other files.
func (c systemCall) isJournal() bool { return strings.HasSuffix(c.link(0), "/journal.db") }

// tracer stops a process at each of its system calls, in all of its threads and
// in none of its children, over execve too, and shows them to see (ptrace(2)).
// strace can only count calls, and counts them for each thread, which in a Go
// program is up to chance.
type tracer struct {
	pid   int
	whom  int // which children follow waits for (wait4(2))
	see   func(systemCall)
	execs int                // so far
	calls map[int]systemCall // by thread: what it is in
}

// tracerOptions are those of every thread.
const tracerOptions = unix.PTRACE_O_TRACESYSGOOD | unix.PTRACE_O_TRACECLONE | unix.PTRACE_O_TRACEEXEC

// follow lets the threads go on from stop to stop, until there is none.
func (tr *tracer) follow() {
	tr.calls = map[int]systemCall{}
	for {
		var status unix.WaitStatus
		tid, err := unix.Wait4(tr.whom, &status, unix.WALL|unix.WNOTHREAD, nil)
		switch {
		case err == unix.EINTR:
		case err != nil:
			return
		case status.Stopped():
			_ = unix.PtraceSyscall(tid, tr.stopped(tid, status)) // a thread that is gone needs no more
		case tid == tr.pid:
			return
		}
	}
}

// stopped looks at why a thread has stopped, and gives the signal that it is to
// see.
func (tr *tracer) stopped(tid int, status unix.WaitStatus) (pass int) {
	_, known := tr.calls[tid]
	switch signal := status.StopSignal(); {
	case signal == unix.SIGTRAP|0x80: // PTRACE_O_TRACESYSGOOD
		if c, ok := tr.call(tid); ok {
			tr.see(c)
		}
	case status>>16 == unix.PTRACE_EVENT_EXEC:
		tr.execs++
	case status>>16 != 0: // another event, or a stop
	case signal == unix.SIGSTOP && !known: // a new thread
		tr.calls[tid] = systemCall{}
	default:
		return int(signal)
	}
	return 0
}

// syscallInfo is struct ptrace_syscall_info of ptrace(2).
type syscallInfo struct {
	op   uint8
	_    [3]uint8
	arch uint32
	ip   uint64
	sp   uint64
	data [8]uint64 // entering: the number and six arguments; leaving: the result
}

// call asks which call a thread enters or leaves.
func (tr *tracer) call(tid int) (systemCall, bool) {
	const entry, exit = 1, 2 // PTRACE_SYSCALL_INFO_ENTRY, …_EXIT
	var info syscallInfo
	_, _, errno := unix.Syscall6(unix.SYS_PTRACE, unix.PTRACE_GET_SYSCALL_INFO, uintptr(tid),
		unsafe.Sizeof(info), uintptr(unsafe.Pointer(&info)), 0, 0)
	c := tr.calls[tid]
	switch {
	case errno != 0:
		return c, false
	case info.op == entry:
		c = systemCall{pid: tr.pid, tid: tid, nr: info.data[0], args: [6]uint64(info.data[1:7])}
	case info.op == exit:
		c.made, c.err = true, int64(info.data[0]) < 0
	}
	tr.calls[tid] = c
	return c, true
}

// killer kills an agent with SIGKILL at the call that it was told: one that is
// about to be made is never made then.
type killer struct {
	*tracer
	at    atomic.Pointer[func(systemCall) bool]
	ended chan struct{} // the agent is gone
}

// traced starts a command under a killer. Its Wait must not be called.
func traced(t testing.TB, cmd *exec.Cmd, at func(systemCall) bool) *killer {
	t.Helper()
	k := &killer{ended: make(chan struct{})}
	k.at.Store(&at)
	started := make(chan error)
	go func() {
		runtime.LockOSThread() // ptrace(2) answers one thread alone; it ends with the goroutine
		defer close(k.ended)
		err := k.start(cmd)
		started <- err
		if err == nil {
			k.follow()
		}
	}()
	if err := <-started; errors.Is(err, unix.EPERM) || errors.Is(err, unix.ENOSYS) {
		t.Skipf("tracing: %v", err) // some sandboxes forbid it
	} else if err != nil {
		t.Fatal(err)
	}
	return k
}

// start takes hold of the agent as it stops at its execve. It has a group of its
// own, which is waited for: the thread can have forked others before, whose ends
// are not ours.
func (k *killer) start(cmd *exec.Cmd) error {
	cmd.SysProcAttr = &syscall.SysProcAttr{Ptrace: true, Setpgid: true}
	if err := cmd.Start(); err != nil {
		return err
	}
	pid := cmd.Process.Pid
	k.tracer = &tracer{pid: pid, whom: -pid, see: k.see}
	if _, err := unix.Wait4(pid, nil, unix.WALL, nil); err != nil {
		return err
	}
	if err := unix.PtraceSetOptions(pid, tracerOptions|unix.PTRACE_O_EXITKILL); err != nil {
		return err
	}
	return unix.PtraceSyscall(pid, 0)
}

func (k *killer) see(c systemCall) {
	if (*k.at.Load())(c) {
		_ = unix.Kill(c.pid, unix.SIGKILL)
	}
}
