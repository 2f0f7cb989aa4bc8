// Command guest is everything but the agent in the machine that internal/vm
// boots: the first program, which gets the machine ready and becomes the
// agent; the tester, which speaks to the agent and prints "ok" or "FAIL" lines
// on the console; and the processes that it has the agent start.
package main

import (
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strconv"
	"strings"
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
		"tty":    tty,
		"orphan": orphan,
		"tick":   tick,
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

// say prints its first argument and exits with its second.
func say(args []string) error {
	fmt.Println(args[0])
	code, err := strconv.Atoi(args[1])
	if err == nil {
		os.Exit(code)
	}
	return err
}

// tty tells what terminal it is on, and repeats one line.
func tty([]string) error {
	size, err := unix.IoctlGetWinsize(0, unix.TIOCGWINSZ)
	if err != nil {
		return err
	}
	var line string
	if _, err := fmt.Scanln(&line); err != nil {
		return err
	}
	fmt.Printf("%dx%d %s\n", size.Col, size.Row, strings.ToUpper(line))
	return nil
}

// orphan leaves a child behind, which ends a little later, and exits with 42.
func orphan([]string) error {
	_, err := syscall.ForkExec(self, []string{self, "tick", "3"}, &syscall.ProcAttr{})
	if err == nil {
		os.Exit(42)
	}
	return err
}

// tick counts, up to its argument if it has one.
func tick(args []string) error {
	most := 1 << 30
	if len(args) > 0 {
		most, _ = strconv.Atoi(args[0])
	}
	for i := range most {
		fmt.Println("tick", i)
		time.Sleep(50 * time.Millisecond)
	}
	return nil
}

// polite leaves word on the disk when it is asked to end.
func polite([]string) error {
	asked := make(chan os.Signal, 1)
	signal.Notify(asked, unix.SIGTERM)
	fmt.Println("ready")
	<-asked
	return os.WriteFile(disk+"/polite", []byte("was asked\n"), 0o600)
}
