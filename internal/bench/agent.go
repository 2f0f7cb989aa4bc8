package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
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

// startAgent returns when the agent answers.
func startAgent(binary string) (*agent, error) {
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
	a.cmd = exec.Command(binary, "serve", "--listen", a.addr, "--state-dir", filepath.Join(dir, "state"),
		"--runtime-dir", run, "--max-procs", "1000", "--proc-buf-bytes", fmt.Sprint(2*streamBytes))
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
