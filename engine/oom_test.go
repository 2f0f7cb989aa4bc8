package engine

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"supervisor/wire"
)

// C35: a process that the kernel killed for want of memory says so.
func TestOutOfMemory(t *testing.T) {
	group, join := memoryGroup(t)
	a := newAgent(t)
	defer a.killAll()
	if a.oom.log < 0 {
		t.Skip("the kernel log cannot be read")
	}
	h := a.start(wire.StartRequest{Cmd: []string{"/bin/sh", "-c",
		`echo $$ >"$0" && x=$(head -c 200000000 /dev/zero | tr '\0' x); echo survived`, join}})
	if e := a.wait(h); e.Reason != "oom" || e.Signal != 9 {
		t.Errorf("ended as %+v (memory cgroup %s)", e, group)
	}
	plain := a.sh("kill -KILL $$")
	if e := a.wait(plain); e.Reason != "signal" {
		t.Errorf("a plain SIGKILL ended as %+v", e)
	}
}

// memoryGroup makes a memory cgroup of 16 MiB, of whichever version there is.
func memoryGroup(t *testing.T) (dir, join string) {
	t.Helper()
	for _, v := range []struct{ root, limit, swap string }{
		{"/sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.memsw.limit_in_bytes"},
		{"/sys/fs/cgroup", "memory.max", "memory.swap.max"},
	} {
		dir := filepath.Join(v.root, "supervisor-test-"+strings.ReplaceAll(t.Name(), "/", "-"))
		if os.Mkdir(dir, 0o755) != nil {
			continue
		}
		t.Cleanup(func() { _ = os.Remove(dir) })
		if os.WriteFile(filepath.Join(dir, v.limit), []byte("16777216"), 0o644) != nil {
			continue
		}
		_ = os.WriteFile(filepath.Join(dir, v.swap), []byte("16777216"), 0o644) // not there without swap accounting
		return dir, filepath.Join(dir, "cgroup.procs")
	}
	t.Skip("no memory cgroup can be made here")
	return "", ""
}
