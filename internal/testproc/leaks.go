package testproc

import (
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// NoLeaks fails the test if, within 5 s of its end, this process has not the
// descriptors, the children and the number of goroutines back that it had
// when NoLeaks was called. Call it first: cleanups run in reverse.
func NoLeaks(t testing.TB) {
	t.Helper()
	startPoller()
	fds, children, goroutines := Descriptors(), Children(), runtime.NumGoroutine()
	t.Cleanup(func() {
		ok := Eventually(5*time.Second, func() bool {
			return len(Descriptors()) <= len(fds) && len(Children()) <= len(children) && runtime.NumGoroutine() <= goroutines
		})
		if !ok {
			t.Errorf("left behind: descriptors %v, had %v; children %v, had %v; goroutines %d, had %d",
				Descriptors(), fds, Children(), children, runtime.NumGoroutine(), goroutines)
		}
	})
}

// Eventually polls until the condition holds or the time is over.
func Eventually(within time.Duration, condition func() bool) bool {
	for deadline := time.Now().Add(within); ; time.Sleep(time.Millisecond) {
		if condition() {
			return true
		}
		if time.Now().After(deadline) {
			return false
		}
	}
}

// startPoller makes the Go runtime open the descriptors that it keeps.
func startPoller() {
	if r, w, err := os.Pipe(); err == nil {
		r.Close()
		w.Close()
	}
}

// Descriptors lists what is open in this process, sorted.
func Descriptors() []string {
	dir, err := os.Open("/proc/self/fd")
	if err != nil {
		return nil
	}
	defer dir.Close()
	names, _ := dir.Readdirnames(-1)
	var open []string
	for _, name := range names {
		link, err := os.Readlink("/proc/self/fd/" + name)
		if err != nil || name == strconv.Itoa(int(dir.Fd())) {
			continue
		}
		open = append(open, name+"="+link)
	}
	slices.Sort(open)
	return open
}

// Children lists the pids of the children of this process, zombies included.
func Children() []string {
	tasks, _ := os.ReadDir("/proc/self/task")
	var pids []string
	for _, task := range tasks {
		list, _ := os.ReadFile("/proc/self/task/" + task.Name() + "/children")
		pids = append(pids, strings.Fields(string(list))...)
	}
	return pids
}
