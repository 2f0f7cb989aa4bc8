package e2e

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// pending is how many bytes wait in a pipe (TIOCINQ of ioctl_tty(2)).
func pending(f *os.File) (n int, err error) {
	return unix.IoctlGetInt(int(f.Fd()), unix.TIOCINQ)
}

func kill(pid int) error { return unix.Kill(pid, unix.SIGKILL) }

// stat are the fields of /proc/PID/stat behind the name: state, ppid, pgrp…
func stat(pid string) []string {
	b, err := os.ReadFile("/proc/" + pid + "/stat")
	if err != nil {
		return nil
	}
	return strings.Fields(string(b[bytes.LastIndexByte(b, ')')+1:]))
}

// eachProcess calls f with every pid and its stat fields.
func eachProcess(t *testing.T, f func(pid int, fields []string)) {
	t.Helper()
	entries, err := os.ReadDir("/proc")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if fields := stat(e.Name()); err == nil && fields != nil {
			f(pid, fields)
		}
	}
}

// groupMembers are the live processes of a group.
func groupMembers(t *testing.T, group int) (pids []int) {
	t.Helper()
	eachProcess(t, func(pid int, fields []string) {
		if fields[2] == fmt.Sprint(group) && fields[0] != "Z" {
			pids = append(pids, pid)
		}
	})
	return pids
}

// zombiesOf counts a process's dead children that it did not reap.
func zombiesOf(t *testing.T, parent int) (n int) {
	t.Helper()
	eachProcess(t, func(_ int, fields []string) {
		if fields[0] == "Z" && fields[1] == fmt.Sprint(parent) {
			n++
		}
	})
	return n
}

func openTerminals(t *testing.T) int {
	t.Helper()
	entries, err := os.ReadDir("/dev/pts")
	if err != nil {
		t.Fatal(err)
	}
	return len(entries)
}
