package main

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"
)

// generations is how often PID 1 is replaced.
const generations = 3

// upgrades replaces PID 1 again and again, while processes write, end, and come
// to their deadline. What they are and wrote is checked at the very end.
func (t *tester) upgrades() error {
	w, err := t.work()
	if err != nil {
		return err
	}
	for i := range generations {
		if err := t.upgrade(i); err != nil {
			return fmt.Errorf("upgrade %d: %w", i+1, err)
		}
	}
	if err := t.snapshot(); err != nil {
		return err
	}
	return t.finish(w)
}

// work is what runs over the upgrades.
type work struct {
	pipe, terminal string // they count until they are told to end
	ending         []string
	deadline       deadline
}

// work starts it. Of the ends, some fall before the first upgrade, some after
// the last, and some into the one or the other blackout.
func (t *tester) work() (w work, err error) {
	if w.pipe, err = t.start("count"); err != nil {
		return w, err
	}
	r, err := t.call("proc_start", fields{"cmd": []string{self, "count"}, "pty": true})
	if err != nil {
		return w, err
	}
	w.terminal = r.Handle
	const endings = 20
	for i := range endings {
		h, err := t.start("later", fmt.Sprint(400*i), fmt.Sprint(20+i))
		if err != nil {
			return w, err
		}
		w.ending = append(w.ending, h)
	}
	w.deadline, err = t.withDeadline(6 * time.Second)
	return w, err
}

// upgrade stages an image as a host does, and has it take over. It differs from
// the one before by a byte, so that agent_info tells which one answers.
func (t *tester) upgrade(n int) error {
	const staged = "/tmp/new"
	image, err := os.ReadFile("/image")
	if err != nil {
		return err
	}
	image = append(image, byte(n))
	if _, err := t.call("write_file", fields{"path": staged, "data": image, "mode": 0o755}); err != nil {
		return err
	}
	sum := sha256.Sum256(image)
	digest := hex.EncodeToString(sum[:])
	if _, err := t.call("agent_upgrade", fields{"path": staged, "sha256": digest}); err != nil {
		return err
	}
	return until(func() (bool, error) {
		t.conn.Close() // the handover closes it, and maybe the next one as well
		if err := t.dial(); err != nil {
			return false, err
		}
		r, err := t.call("agent_info", nil)
		if err == nil && r.PID != 1 {
			return false, fmt.Errorf("the agent is process %d", r.PID)
		}
		return err == nil && r.ImageSHA256 == digest, nil
	})
}

// finish ends the work, and checks all of it.
func (t *tester) finish(w work) error {
	var errs []error
	for h, lineEnd := range map[string]string{w.pipe: "\n", w.terminal: "\r\n"} {
		errs = append(errs, t.counted(h, lineEnd))
	}
	for i, h := range w.ending {
		end, err := t.wait(h)
		errs = append(errs, err, end.as(20+i, 0, "exited"))
	}
	return errors.Join(append(errs, t.met(w.deadline))...)
}

// counted ends a process that counts, and compares its output byte by byte.
func (t *tester) counted(handle, lineEnd string) error {
	if _, err := t.call("proc_stdin", fields{"handle": handle, "close_stdin": true}); err != nil {
		return err
	}
	end, err := t.wait(handle)
	if err := errors.Join(err, end.as(7, 0, "exited")); err != nil {
		return err
	}
	out, err := t.ended(handle)
	if err != nil {
		return err
	}
	lines := strings.Split(out, lineEnd)
	const atLeast = 100
	if len(lines) < atLeast {
		return fmt.Errorf("only %d lines", len(lines))
	}
	last := len(lines) - 2 // behind it is the end alone, and nothing
	for i, line := range lines[:last] {
		if line != numbered(i) {
			return fmt.Errorf("line %d is %q", i, line)
		}
	}
	if lines[last] != fmt.Sprint("end ", last-1) || lines[last+1] != "" {
		return fmt.Errorf("the end is %q", lines[last:])
	}
	return nil
}
