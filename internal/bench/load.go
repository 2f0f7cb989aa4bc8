package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"text/tabwriter"
	"time"

	"supervisor/client"
)

const (
	smallWrites = 1_000_000 // of smallWrite bytes, by a program that does not buffer
	smallWrite  = 100
	manyRecords = 10_000 // ended processes in a full registry
	silentProcs = 64
)

// measureLoad measures what others do to the agent: many small writes, a
// machine without an idle CPU, a registry with a long past.
func measureLoad(w *tabwriter.Writer, binary string, rounds int, only string) error {
	fresh, err := startAgent(binary)
	if err != nil {
		return err
	}
	defer fresh.stop()
	old, err := startAgent(binary, "--max-procs", fmt.Sprint(2*manyRecords), "--proc-retain-sec", "86400")
	if err != nil {
		return err
	}
	defer old.stop()
	for _, r := range []row{
		{"writers of 100 bytes, per CPU second of the agent", "MB", fresh.smallWriters, smallReads, "a goroutine in Go's netpoller", 10},
		{"durable start and wait, two CPU hogs per core", "/s", fresh.startsBesideHogs,
			func() (float64, error) { return fresh.starts(1) }, "the same without hogs", 0.40},
		{fmt.Sprintf("durable start and wait, %d records", manyRecords), "/s", old.startsWithAPast,
			func() (float64, error) { return fresh.starts(8) }, "the same with few records", 0.90},
	} {
		if !strings.Contains(r.what, only) {
			continue
		}
		if err := r.measure(w, rounds); err != nil {
			return fmt.Errorf("%s: %w", r.what, err)
		}
	}
	return nil
}

// writeSmall is the program that does not buffer.
func writeSmall() error {
	b := []byte(strings.Repeat("x", smallWrite-1) + "\n")
	for range smallWrites {
		if _, err := os.Stdout.Write(b); err != nil {
			return err
		}
	}
	return nil
}

// smallWriters returns how many MB the agent takes from small writes in a
// second of its CPU time.
func (a *agent) smallWriters() (float64, error) {
	self, err := os.Executable()
	if err != nil {
		return 0, err
	}
	before, err := a.cpu()
	if err != nil {
		return 0, err
	}
	if err := a.wait(client.StartRequest{Cmd: []string{self, "small"}}); err != nil {
		return 0, err
	}
	after, err := a.cpu()
	return smallWrites * smallWrite / 1e6 / (after - before).Seconds(), err
}

// smallReads is smallWriters of a program that reads pipes as Go programs do.
func smallReads() (float64, error) {
	self, err := os.Executable()
	if err != nil {
		return 0, err
	}
	out, err := exec.Command(self, "read", self, "small").Output()
	if err != nil {
		return 0, err
	}
	us, err := strconv.ParseFloat(string(out), 64)
	return smallWrites * smallWrite / us, err
}

// readSmall is that program. It prints what CPU time it took, in microseconds.
func readSmall(argv []string) error {
	cmd := exec.Command(argv[0], argv[1:]...)
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	_, err = io.Copy(io.Discard, out)
	var u syscall.Rusage
	err = errors.Join(err, cmd.Wait(), syscall.Getrusage(syscall.RUSAGE_SELF, &u))
	fmt.Print((time.Duration(u.Utime.Nano()) + time.Duration(u.Stime.Nano())).Microseconds())
	return err
}

// startsBesideHogs is starts of one client, while the machine has no idle CPU.
func (a *agent) startsBesideHogs() (float64, error) {
	c, err := client.Dial(context.Background(), a.addr)
	if err != nil {
		return 0, err
	}
	defer c.Close()
	for range 2 * runtime.NumCPU() {
		hog, err := c.Start(context.Background(), client.StartRequest{Cmd: []string{"sh", "-c", "while :; do :; done"}})
		if err != nil {
			return 0, err
		}
		defer func() { _ = c.Kill(context.Background(), hog.Handle) }()
	}
	return a.starts(1)
}

// startsWithAPast is starts of eight clients beside manyRecords ended processes.
func (a *agent) startsWithAPast() (float64, error) {
	c, err := client.Dial(context.Background(), a.addr)
	if err != nil {
		return 0, err
	}
	defer c.Close()
	for {
		info, err := c.Info(context.Background())
		if err != nil {
			return 0, err
		}
		if info.ProcCount >= manyRecords {
			return a.starts(8)
		}
		if _, err := a.starts(64); err != nil {
			return 0, err
		}
	}
}

// withSilentProcs is the agent's memory while so many processes run that write
// nothing.
func (a *agent) withSilentProcs() (string, error) {
	c, err := client.Dial(context.Background(), a.addr)
	if err != nil {
		return "", err
	}
	defer c.Close()
	for range silentProcs {
		p, err := c.Start(context.Background(), client.StartRequest{Cmd: []string{"sleep", "600"}})
		if err != nil {
			return "", err
		}
		defer func() { _ = c.Kill(context.Background(), p.Handle) }()
	}
	return a.memory()
}
