package main

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// say prints its first argument and exits with its second.
func say(args []string) error {
	fmt.Println(args[0])
	os.Exit(number(args[1]))
	return nil
}

// later exits with its second argument, after so many milliseconds.
func later(args []string) error {
	time.Sleep(time.Duration(number(args[0])) * time.Millisecond)
	os.Exit(number(args[1]))
	return nil
}

// number is a number that this program has written itself.
func number(digits string) int {
	n, err := strconv.Atoi(digits)
	if err != nil {
		panic(err)
	}
	return n
}

// echo repeats its input to its end, a little late.
func echo([]string) error {
	in := bufio.NewScanner(os.Stdin)
	for in.Scan() {
		time.Sleep(200 * time.Millisecond)
		fmt.Println(in.Text())
	}
	return in.Err()
}

// tty tells what terminal it is on, and repeats one line.
func tty([]string) error {
	var line string
	if _, err := fmt.Scanln(&line); err != nil {
		return err
	}
	size, err := unix.IoctlGetWinsize(0, unix.TIOCGWINSZ)
	if err != nil {
		return err
	}
	fmt.Printf("%dx%d %s\n", size.Col, size.Row, strings.ToUpper(line))
	return nil
}

// orphan leaves a child behind, which ends after so many ticks, and exits with
// 42.
func orphan(args []string) error {
	_, err := syscall.ForkExec(self, []string{self, "tick", args[0]}, &syscall.ProcAttr{})
	if err == nil {
		os.Exit(42)
	}
	return err
}

// ticking is the time between two ticks.
const ticking = 50 * time.Millisecond

// tick counts, up to its argument if it has one.
func tick(args []string) error {
	most := 1 << 30
	if len(args) > 0 {
		most = number(args[0])
	}
	for i := range most {
		fmt.Println("tick", i)
		time.Sleep(ticking)
	}
	return nil
}

// numbered is line i of count, less its line end.
func numbered(i int) string { return fmt.Sprintf("line %06d", i) }

// count writes numbered lines until its input ends, so slowly that its ring
// holds a minute of them. It says where it ended, and exits with 7.
func count([]string) error {
	in := []unix.PollFd{{Fd: 0, Events: unix.POLLIN}}
	for i := 0; ; i++ {
		fmt.Println(numbered(i))
		n, err := unix.Poll(in, 4)
		if n > 0 {
			n, err = os.Stdin.Read(make([]byte, 80))
			if n == 0 && err == io.EOF {
				fmt.Println("end", i)
				os.Exit(7)
			}
		}
		if err != nil && err != unix.EINTR {
			return err
		}
	}
}

// polite leaves word on the disk when it is asked to end.
func polite([]string) error {
	asked := make(chan os.Signal, 1)
	signal.Notify(asked, unix.SIGTERM)
	fmt.Println("ready")
	<-asked
	return os.WriteFile(disk+"/polite", []byte("was asked\n"), 0o600)
}
