package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
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

// errCut ends a boot whose power was cut, as the guest had asked for.
var errCut = errors.New("power cut")

// boot boots the machine and does what it asks for, until it is off.
func (m *machine) boot() error {
	ctx, cancel := context.WithTimeout(context.Background(), bootWithin)
	defer cancel()
	qemu := exec.CommandContext(ctx, "qemu-system-x86_64", "-M", "q35", "-accel", "tcg", "-cpu", "max", "-m", "512",
		"-nographic", "-nodefaults", "-no-reboot", "-serial", "stdio", "-qmp", "unix:"+m.path("qmp")+",server,nowait",
		"-drive", "file="+m.path("disk")+",format=raw,if=virtio",
		"-kernel", m.kernel, "-initrd", m.path("initrd"), "-append", "console=ttyS0 quiet panic=-1 rdinit=/init")
	console, err := qemu.StdoutPipe()
	if err != nil {
		return err
	}
	if err := qemu.Start(); err != nil {
		return err
	}
	last, err := m.follow(console)
	if err == errCut {
		_ = qemu.Process.Kill()
		_ = qemu.Wait() // says that it was killed
		return nil
	}
	_, _ = io.Copy(io.Discard, console)
	err = errors.Join(err, qemu.Wait())
	if ctx.Err() != nil {
		return fmt.Errorf("no end within %v; last on the console:\n%s", bootWithin, last)
	}
	if err == nil && !strings.Contains(last, "END") {
		err = fmt.Errorf("it went off too early; last on the console:\n%s", last)
	}
	return err
}

// follow reads the console: results are passed on, and words in capitals are
// the guest's wishes. It returns the last lines.
func (m *machine) follow(console io.Reader) (last string, err error) {
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
			return last, errCut
		case line == "PAUSE":
			if err := m.pause(3 * time.Second); err != nil {
				return last, err
			}
		}
	}
	return last, nil
}

// pause stops the machine for a while, as a host does that needs the CPU.
func (m *machine) pause(d time.Duration) error {
	conn, err := net.Dial("unix", m.path("qmp"))
	if err != nil {
		return err
	}
	defer conn.Close()
	if _, err := io.WriteString(conn, `{"execute":"qmp_capabilities"}{"execute":"stop"}`); err != nil {
		return err
	}
	time.Sleep(d) // it is the pause
	_, err = io.WriteString(conn, `{"execute":"cont"}`)
	if err != nil {
		return err
	}
	// The answers end with the last one's event.
	_ = conn.SetReadDeadline(time.Now().Add(10 * time.Second))
	for lines := bufio.NewScanner(conn); lines.Scan(); {
		if strings.Contains(lines.Text(), `"RESUME"`) {
			return nil
		}
	}
	return errors.New("the machine does not go on")
}
