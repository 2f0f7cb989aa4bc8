package engine

import (
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// oomWatch tells whether the kernel killed a process for want of memory. The
// kernel log names its victims; where it cannot be read, the count of OOM kills
// in the agent's cgroup v2, which its children share, is the next best word.
// It is for one goroutine.
type oomWatch struct {
	log    int              // /dev/kmsg, -1 if it cannot be read
	killed map[int]struct{} // pids that the log named and nobody asked about yet
	events string           // the cgroup's memory.events, "" if there is none
	count  int64            // its oom_kill when last read
}

// maxKilled bounds the victims remembered that are none of ours.
const maxKilled = 1024

func newOOMWatch() *oomWatch {
	w := &oomWatch{killed: map[int]struct{}{}, events: memoryEvents()}
	var err error
	w.log, err = unix.Open("/dev/kmsg", unix.O_RDONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		w.log = -1
	} else if _, err := unix.Seek(w.log, 0, unix.SEEK_END); err != nil {
		w.close()
	}
	w.count = w.oomKills()
	return w
}

func (w *oomWatch) close() {
	if w.log >= 0 {
		unix.Close(w.log)
		w.log = -1
	}
}

// took tells whether a process that just died of SIGKILL was the kernel's
// victim.
func (w *oomWatch) took(pid int) bool {
	if w.log >= 0 {
		w.readLog()
		_, yes := w.killed[pid]
		delete(w.killed, pid)
		return yes
	}
	before := w.count
	w.count = w.oomKills()
	return w.count > before
}

// victim is the kernel's line about a process that it killed (mm/oom_kill.c).
var victim = regexp.MustCompile(`[Oo]ut of memory: Kill(?:ed)? process (\d+)`)

// readLog takes what the kernel has logged since the last look, one record a
// read(2). EPIPE says that records were overwritten before they were read.
func (w *oomWatch) readLog() {
	var buf [8192]byte
	for {
		n, err := unix.Read(w.log, buf[:])
		switch {
		case errors.Is(err, unix.EPIPE), errors.Is(err, unix.EINTR):
			continue
		case err != nil || n == 0:
			return
		}
		m := victim.FindSubmatch(buf[:n])
		if m == nil || len(w.killed) >= maxKilled {
			continue
		}
		if pid, err := strconv.Atoi(string(m[1])); err == nil {
			w.killed[pid] = struct{}{}
		}
	}
}

// memoryEvents finds the agent's memory.events in the cgroup v2 hierarchy.
func memoryEvents() string {
	b, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return ""
	}
	for line := range strings.Lines(string(b)) {
		if path, ok := strings.CutPrefix(strings.TrimSpace(line), "0::"); ok {
			file := filepath.Join("/sys/fs/cgroup", path, "memory.events")
			if _, err := os.Stat(file); err == nil {
				return file
			}
		}
	}
	return ""
}

// oomKills reads the count of OOM kills, 0 where there is none.
func (w *oomWatch) oomKills() int64 {
	if w.events == "" {
		return 0
	}
	b, err := os.ReadFile(w.events)
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(b)) {
		if count, ok := strings.CutPrefix(strings.TrimSpace(line), "oom_kill "); ok {
			n, _ := strconv.ParseInt(count, 10, 64) // 0 if the kernel changed its mind
			return n
		}
	}
	return 0
}
