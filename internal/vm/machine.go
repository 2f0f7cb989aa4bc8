package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// machine is one virtual machine, over all its boots.
type machine struct {
	dir    string // holds its disk, its initramfs and what is made of them
	kernel string
	failed bool
}

func (m *machine) path(name string) string { return filepath.Join(m.dir, name) }

func (m *machine) check(what string, err error) {
	if err != nil {
		m.failed = true
		fmt.Printf("FAIL  %s: %v\n", what, err)
		return
	}
	fmt.Println("ok   ", what)
}

// end is how a boot ends: the reason that qemu gives for it, or none.
type end string

const (
	powerCut end = ""
	powerOff end = "guest-shutdown"
	reboot   end = "guest-reset"
)

// boot boots the machine and does what it wishes, until its end. The kernel must
// not check its timer: emulated on a busy machine it may fail, and panics.
func (m *machine) boot(want end) error {
	ctx, cancel := context.WithTimeout(context.Background(), bootWithin)
	defer cancel()
	qemu := exec.CommandContext(ctx, "qemu-system-x86_64", "-M", "q35", "-accel", "tcg", "-cpu", "max", "-m", "512",
		"-nographic", "-nodefaults", "-no-reboot", "-serial", "stdio", "-qmp", "unix:"+m.path("qmp")+",server=on,wait=off",
		"-drive", "file="+m.path("disk")+",format=raw,if=virtio",
		"-kernel", m.kernel, "-initrd", m.path("initrd"), "-append", "console=ttyS0 quiet panic=-1 rdinit=/init no_timer_check")
	console, err := qemu.StdoutPipe()
	if err != nil {
		return err
	}
	keys, err := qemu.StdinPipe()
	if err != nil {
		return err
	}
	if err := qemu.Start(); err != nil {
		return err
	}
	last, err := m.drive(console, keys, want)
	_ = qemu.Process.Kill() // it is gone, unless its power is to be cut or something is wrong
	_ = qemu.Wait()         // how it ended is known already
	switch {
	case ctx.Err() != nil:
		return fmt.Errorf("no end within %v; last on the console:\n%s", bootWithin, last)
	case err == nil && want != powerCut && !strings.Contains(last, "END"):
		return fmt.Errorf("it went off too early; last on the console:\n%s", last)
	}
	return err
}

// drive follows the machine to its end, which must be the one that is wanted.
func (m *machine) drive(console io.Reader, keys io.Writer, want end) (last string, err error) {
	monitor, err := dialMonitor(m.path("qmp"))
	if err != nil {
		return "", err
	}
	defer monitor.Close()
	last, cut, err := m.follow(console, keys, monitor)
	if err != nil || cut && want == powerCut {
		return last, err
	}
	got, err := monitor.end()
	if err == nil && got != want {
		err = fmt.Errorf("it ended by %q, not %q; last on the console:\n%s", got, want, last)
	}
	return last, err
}

// follow reads the console: results are passed on, and words in capitals are
// the guest's wishes; a line on its keyboard says that one was granted. It
// returns the last lines, and whether the power is to be cut.
func (m *machine) follow(console io.Reader, keys io.Writer, monitor *monitor) (last string, cut bool, err error) {
	const remembered = 2000
	for lines := bufio.NewScanner(console); lines.Scan(); {
		line := strings.TrimSpace(lines.Text())
		last += line + "\n"
		last = last[max(0, len(last)-remembered):]
		switch {
		case strings.HasPrefix(line, "FAIL "):
			m.failed = true
			fmt.Println(line)
		case strings.HasPrefix(line, "ok "):
			fmt.Println(line)
		case line == "CUT":
			return last, true, nil
		case line == "PAUSE":
			if err := monitor.pause(3 * time.Second); err != nil {
				return last, false, err
			}
			if _, err := io.WriteString(keys, "\n"); err != nil {
				return last, false, err
			}
		}
	}
	return last, false, nil
}
