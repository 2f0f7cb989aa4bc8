// Command guest is everything but the agent in the machine that internal/vm
// boots: the first program, which gets the machine ready and becomes the
// agent; the tester, which speaks to the agent and prints "ok" or "FAIL" lines
// on the console; and the processes that it has the agent start.
package main

import (
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

const (
	self  = "/init"
	agent = "/supervisor"
	disk  = "/disk" // survives a power cut
	port  = 18047
)

func main() {
	role := "boot"
	if len(os.Args) > 1 {
		role = os.Args[1]
	}
	if err := roles()[role](os.Args[min(2, len(os.Args)):]); err != nil {
		fmt.Println("FAIL ", role+":", err)
		os.Exit(1)
	}
}

func roles() map[string]func(args []string) error {
	return map[string]func([]string) error{
		"boot":   boot,
		"test":   func([]string) error { return test() },
		"say":    say,
		"later":  later,
		"echo":   echo,
		"tty":    tty,
		"orphan": orphan,
		"tick":   tick,
		"count":  count,
		"polite": polite,
	}
}

// boot gets the machine ready, leaves the tester behind, and becomes the agent.
func boot([]string) error {
	if err := loadModules(); err != nil {
		return err
	}
	if err := mountDisk(); err != nil {
		return err
	}
	files := &syscall.ProcAttr{Files: []uintptr{0, 1, 2}, Env: os.Environ()}
	if _, err := syscall.ForkExec(self, []string{self, "test"}, files); err != nil {
		return err
	}
	return syscall.Exec(agent, []string{agent, "serve", "--state-dir", disk, "--runtime-dir", "/run/supervisor",
		"--listen", fmt.Sprintf("vsock:%d", port), "--allow-cid", "1", "--log-level", "warn"}, os.Environ())
}

// loadModules loads what is in /m. A module that needs another is tried again.
func loadModules() error {
	entries, err := os.ReadDir("/m")
	if err != nil {
		return err
	}
	for range entries {
		for _, e := range entries {
			f, err := os.Open("/m/" + e.Name())
			if err != nil {
				return err
			}
			_ = unix.FinitModule(int(f.Fd()), "", 0) // what is missing shows in the tests
			f.Close()
		}
	}
	return nil
}

// mountDisk mounts the disk without leaving a /dev behind: that is the
// agent's to mount.
func mountDisk() error {
	const dev = "/boot-dev"
	for _, dir := range []string{dev, disk} {
		if err := os.Mkdir(dir, 0o755); err != nil {
			return err
		}
	}
	if err := unix.Mount("devtmpfs", dev, "devtmpfs", 0, ""); err != nil {
		return err
	}
	err := errors.New("no disk")
	for range 500 {
		if err = unix.Mount(dev+"/vda", disk, "ext4", 0, ""); err == nil {
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	return errors.Join(err, unix.Unmount(dev, 0))
}
