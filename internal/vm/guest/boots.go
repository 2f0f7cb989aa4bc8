package main

import (
	"bufio"
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// test runs the part of this boot. The first one ends in a power cut, the
// second in a reboot, the third one powers off. The disk remembers a handle.
func test() error {
	fmt.Println() // ends what the firmware left
	t := &tester{answered: map[string]bool{}}
	if err := t.dial(); err != nil {
		return err
	}
	switch before, err := os.ReadFile(disk + "/boot"); {
	case errors.Is(err, os.ErrNotExist):
		return t.firstBoot()
	case err != nil:
		return err
	default:
		return t.laterBoot(string(before))
	}
}

func (t *tester) firstBoot() error {
	t.check("the agent is PID 1", t.isInit())
	t.check("what is missing is mounted", mounted())
	t.verbs()
	t.check("orphans are reaped, statuses are not", t.orphans())
	t.check("a group is killed", t.killsGroup())
	t.check("a CID that is not allowed is not heard", t.policy())
	t.check("PID 1 is upgraded three times, and no byte is lost", t.upgrades())
	t.check("no verb of the protocol was left out", t.complete())
	h, err := t.start("tick")
	t.check("a process runs into the power cut", err)
	if err := remember(h); err != nil {
		return err
	}
	return wish("CUT")
}

// laterBoot is the second boot, or with word from a process of it the third.
func (t *tester) laterBoot(handle string) error {
	if _, err := os.Stat(disk + "/polite"); err == nil {
		row, err := t.row(handle)
		t.check("the process before the reboot ended in order, and that is known", errors.Join(err, row.as(0, 0, "exited")))
		fmt.Println("END")
		return unix.Kill(1, unix.SIGTERM)
	}
	t.check("the process of the first boot is lost, and known", t.isLost(handle))
	t.check("a machine that is paused under output goes on", t.pauses())
	h, err := t.start("polite")
	if err == nil {
		err = until(func() (bool, error) { out, err := t.stdout(h); return out == "ready\n", err })
	}
	t.check("a process waits for the end", err)
	if err := remember(h); err != nil {
		return err
	}
	fmt.Println("END")
	return unix.Kill(1, unix.SIGINT)
}

// remember leaves a handle for the next boot.
func remember(handle string) error {
	err := os.WriteFile(disk+"/boot", []byte(handle), 0o600)
	unix.Sync()
	return err
}

// console is where who runs the machine says that a wish is granted.
var console = bufio.NewReader(os.Stdin)

// wish asks who runs the machine for something, and waits until it is done.
func wish(what string) error {
	fmt.Println(what)
	_, err := console.ReadString('\n')
	return err
}
