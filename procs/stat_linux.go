package procs

import (
	"bytes"
	"fmt"
	"strconv"

	"golang.org/x/sys/unix"
)

// procStat is what is needed of /proc/PID/stat; see proc_pid_stat(5).
type procStat struct {
	state    byte // 'Z': ended, not reaped
	pgrp     int
	session  int
	ticks    uint64 // start time since boot, in clock ticks
	exitWord int    // as wait(2) would give it; 0 unless we may trace the process
}

// readStat reads /proc/PID/stat.
func readStat(pid int) (procStat, error) {
	path := "/proc/" + strconv.Itoa(pid) + "/stat"
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return procStat{}, fmt.Errorf("open %s: %w", path, err)
	}
	defer unix.Close(fd)
	var buf [1024]byte
	n, err := ignoringEINTR(func() (int, error) { return unix.Read(fd, buf[:]) })
	if err != nil {
		return procStat{}, fmt.Errorf("read %s: %w", path, err)
	}
	st, ok := parseStat(buf[:n])
	if !ok {
		return procStat{}, fmt.Errorf("read %s: unknown format", path)
	}
	return st, nil
}

// parseStat parses the line. The command name, in parentheses, may hold
// anything, parentheses too: fields count from the last one.
func parseStat(line []byte) (st procStat, ok bool) {
	line = line[bytes.LastIndexByte(line, ')')+1:]
	for field := 3; ; field++ {
		var word []byte
		line = bytes.TrimLeft(line, " ")
		word, line, _ = bytes.Cut(line, []byte(" "))
		if len(word) == 0 {
			return st, false
		}
		v, _ := strconv.ParseInt(string(bytes.TrimSpace(word)), 10, 64)
		switch field {
		case 3:
			st.state = word[0]
		case 5:
			st.pgrp = int(v)
		case 6:
			st.session = int(v)
		case 22:
			st.ticks = uint64(v)
		case 52:
			st.exitWord = int(v)
			return st, true
		}
	}
}
