package main

import (
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"
)

// pauses has the machine stopped under output, and does then what a host does
// after it: the clock is set. Neither is anything to handles, offsets and
// deadlines.
func (t *tester) pauses() error {
	pipe, err := t.start("count")
	if err != nil {
		return err
	}
	r, err := t.call("proc_start", fields{"cmd": []string{self, "count"}, "pty": true})
	if err != nil {
		return err
	}
	d, err := t.withDeadline(5 * time.Second)
	if err != nil {
		return err
	}
	if err := until(func() (bool, error) { row, err := t.row(pipe); return row.StdoutLen > 0, err }); err != nil {
		return err
	}
	if err := wish("PAUSE"); err != nil {
		return err
	}
	if err := setClock(time.Now().Add(time.Hour)); err != nil {
		return err
	}
	return errors.Join(t.goesOn(d.handle), t.met(d), t.counted(pipe, "\n"), t.counted(r.Handle, "\r\n"))
}

// goesOn wants a process to run still, and to write.
func (t *tester) goesOn(handle string) error {
	before, err := t.row(handle)
	if err != nil {
		return err
	}
	return until(func() (bool, error) {
		row, err := t.row(handle)
		if err == nil && !row.Running {
			err = fmt.Errorf("it ended too early: %+v", row)
		}
		return row.StdoutLen > before.StdoutLen, err
	})
}

// setClock sets the clock of the wall.
func setClock(to time.Time) error {
	ts, err := unix.TimeToTimespec(to)
	if err != nil {
		return err
	}
	return unix.ClockSettime(unix.CLOCK_REALTIME, &ts)
}

// deadline is a process that is to be killed after a while. Its times are those
// of the monotonic clock, which a pause stops and a step leaves alone.
type deadline struct {
	handle string
	began  time.Time
	after  time.Duration
}

func (t *tester) withDeadline(after time.Duration) (deadline, error) {
	began := time.Now()
	r, err := t.call("proc_start", fields{"cmd": []string{self, "tick"}, "timeout_ms": after.Milliseconds()})
	return deadline{r.Handle, began, after}, err
}

// met waits for a deadline, and wants it neither early nor missed. How long it
// took is told by what the process wrote, so that it may be asked late.
func (t *tester) met(d deadline) error {
	end, err := t.wait(d.handle)
	took := time.Since(d.began)
	if err == nil && took < d.after {
		err = fmt.Errorf("the deadline of %v came after %v", d.after, took)
	}
	if row, rowErr := t.row(d.handle); rowErr == nil && row.StdoutLen > 12*int(d.after/ticking) {
		err = errors.Join(err, fmt.Errorf("%d bytes were written before the deadline of %v", row.StdoutLen, d.after))
	}
	return errors.Join(err, end.as(137, 9, "timeout"))
}
