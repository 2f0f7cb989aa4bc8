package e2e

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"sync/atomic"
	"syscall"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
)

// systemCall is one that a thread of the agent is about to make, or has made.
type systemCall struct {
	pid  int // the agent
	nr   uint64
	args [6]uint64
	made bool
	err  bool // made, and failed
}

// file is what the call's first argument is open on.
func (c systemCall) file() string {
	path, _ := os.Readlink(fmt.Sprintf("/proc/%d/fd/%d", c.pid, int32(c.args[0])))
	return path
}

// crashTracer stops an agent at each of its system calls, in all of its threads and
// in none of its children, and kills it with SIGKILL at the one that it was
// told: a call that is about to be made is never made then. (strace can only
// count calls, and counts them for each thread.)
type crashTracer struct {
	at    atomic.Pointer[func(systemCall) bool]
	pid   int
	calls map[int]systemCall // by thread: what it is in
	ended chan struct{}      // the agent is gone
}

// traced starts a command under a crashTracer that kills at a call for which at is
// true. Its Wait must not be called.
func traced(t testing.TB, cmd *exec.Cmd, at func(systemCall) bool) *crashTracer {
	t.Helper()
	tr := &crashTracer{calls: map[int]systemCall{}, ended: make(chan struct{})}
	tr.at.Store(&at)
	started := make(chan error)
	go func() {
		runtime.LockOSThread() // ptrace(2) answers one thread alone; it ends with the goroutine
		defer close(tr.ended)
		cmd.SysProcAttr = &syscall.SysProcAttr{Ptrace: true}
		err := cmd.Start()
		if err == nil {
			tr.pid = cmd.Process.Pid
			err = tr.seize()
		}
		started <- err
		if err == nil {
			tr.follow()
		}
	}()
	if err := <-started; errors.Is(err, unix.EPERM) || errors.Is(err, unix.ENOSYS) {
		t.Skipf("tracing: %v", err)
	} else if err != nil {
		t.Fatal(err)
	}
	return tr
}

// seize takes hold of the agent as it stops at its execve.
func (tr *crashTracer) seize() error {
	if _, err := unix.Wait4(tr.pid, nil, unix.WALL, nil); err != nil {
		return err
	}
	const options = unix.PTRACE_O_TRACESYSGOOD | unix.PTRACE_O_TRACECLONE | unix.PTRACE_O_EXITKILL
	if err := unix.PtraceSetOptions(tr.pid, options); err != nil {
		return err
	}
	return unix.PtraceSyscall(tr.pid, 0)
}

// follow lets the threads go on from stop to stop, until there is none.
func (tr *crashTracer) follow() {
	for {
		var ws unix.WaitStatus
		tid, err := unix.Wait4(-1, &ws, unix.WALL|unix.WNOTHREAD, nil)
		switch {
		case err == unix.EINTR:
		case err != nil:
			return
		case ws.Stopped():
			_ = unix.PtraceSyscall(tid, tr.stopped(tid, ws.StopSignal())) // fails for one that was killed
		case tid == tr.pid:
			return
		}
	}
}

// stopped looks at why a thread has stopped, and gives the signal that it is to
// see.
func (tr *crashTracer) stopped(tid int, signal syscall.Signal) (pass int) {
	_, known := tr.calls[tid]
	switch {
	case signal == unix.SIGTRAP|0x80: // PTRACE_O_TRACESYSGOOD
		if c, ok := tr.call(tid); ok && (*tr.at.Load())(c) {
			_ = unix.Kill(tr.pid, unix.SIGKILL)
		}
	case signal == unix.SIGTRAP: // an event
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
func (tr *crashTracer) call(tid int) (systemCall, bool) {
	const entry, exit = 1, 2 // PTRACE_SYSCALL_INFO_ENTRY, …_EXIT
	var info syscallInfo
	_, _, errno := unix.Syscall6(unix.SYS_PTRACE, unix.PTRACE_GET_SYSCALL_INFO, uintptr(tid),
		unsafe.Sizeof(info), uintptr(unsafe.Pointer(&info)), 0, 0)
	c := tr.calls[tid]
	switch {
	case errno != 0:
		return c, false
	case info.op == entry:
		c = systemCall{pid: tr.pid, nr: info.data[0], args: [6]uint64(info.data[1:7])}
	case info.op == exit:
		c.made, c.err = true, int64(info.data[0]) < 0
	}
	tr.calls[tid] = c
	return c, true
}
