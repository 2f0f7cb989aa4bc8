package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"supervisor/client"
)

// agent is the product under measurement, in a folder of its own.
type agent struct {
	dir  string
	run  string // in memory, as /run is
	addr string
	cmd  *exec.Cmd
}

// startAgent returns when the agent answers. Later flags win.
func startAgent(binary string, flags ...string) (*agent, error) {
	dir, err := os.MkdirTemp("", "bench-")
	if err != nil {
		return nil, err
	}
	run, err := os.MkdirTemp("/dev/shm", "bench-")
	if err != nil {
		return nil, err
	}
	a := &agent{dir: dir, run: run, addr: "unix:" + filepath.Join(dir, "agent.sock")}
	log, err := os.Create(filepath.Join(dir, "log"))
	if err != nil {
		return nil, err
	}
	defer log.Close()
	a.cmd = exec.Command(binary, append([]string{"serve", "--listen", a.addr, "--state-dir", filepath.Join(dir, "state"),
		"--runtime-dir", run, "--max-procs", "1000", "--proc-buf-bytes", fmt.Sprint(2 * streamBytes)}, flags...)...)
	a.cmd.Stderr = log
	if err := a.cmd.Start(); err != nil {
		return nil, err
	}
	for end := time.Now().Add(10 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		c, err := client.Dial(context.Background(), a.addr)
		if err == nil {
			return a, c.Close()
		}
		if time.Now().After(end) {
			a.stop()
			return nil, err
		}
	}
}

func (a *agent) stop() {
	_ = a.cmd.Process.Signal(syscall.SIGTERM)
	_ = a.cmd.Wait()
	_ = os.RemoveAll(a.dir)
	_ = os.RemoveAll(a.run)
}

// memory is what the agent holds, as the kernel counts it.
func (a *agent) memory() (string, error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", a.cmd.Process.Pid))
	if err != nil {
		return "", err
	}
	var out []string
	for line := range strings.Lines(string(b)) {
		if name, value, _ := strings.Cut(line, ":"); name == "VmRSS" || name == "RssAnon" || name == "RssShmem" {
			out = append(out, name+" "+strings.TrimSpace(value))
		}
	}
	return strings.Join(out, ", "), nil
}

// cpu is the CPU time that the agent has taken so far (proc_pid_stat(5)).
func (a *agent) cpu() (time.Duration, error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", a.cmd.Process.Pid))
	if err != nil {
		return 0, err
	}
	const utime, stime, tick = 11, 12, 10 * time.Millisecond // fields behind the name; USER_HZ
	fields := strings.Fields(string(b[bytes.LastIndexByte(b, ')')+2:]))
	user, err := strconv.Atoi(fields[utime])
	system, err2 := strconv.Atoi(fields[stime])
	return time.Duration(user+system) * tick, errors.Join(err, err2)
}

// wait starts a process and returns when it has ended and is drained. Nobody
// waits for its output meanwhile.
func (a *agent) wait(r client.StartRequest) error {
	c, err := client.Dial(context.Background(), a.addr)
	if err != nil {
		return err
	}
	defer c.Close()
	p, err := c.Start(context.Background(), r)
	if err == nil {
		_, err = c.Wait(context.Background(), p.Handle)
	}
	for drained := false; err == nil && !drained; {
		var logs client.LogsReply
		logs, err = c.Logs(context.Background(), client.LogsRequest{Handle: p.Handle, Offset: 1 << 40, StderrOffset: 1 << 40, WaitMS: 60_000})
		drained = logs.Drained
	}
	return err
}
