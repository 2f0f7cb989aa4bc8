// Package testproc is the child that tests run, and the check that they leave
// none behind. A test binary becomes the child when it is executed with
// Argv's arguments; its TestMain must call Main first.
package testproc

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// role is the first argument of a test binary that is to be a child.
const role = "-testproc="

// A Role is what a child does; it returns the exit code.
type Role func(args []string) int

var roles = map[string]Role{
	"burst":      burst,
	"flood":      flood,
	"small":      small,
	"ignoreterm": ignoreTerm,
	"grandchild": grandchild,
	"kill":       killSelf,
	"winch":      winch,
}

// Register adds a role of the calling package. It must be called before Main.
func Register(name string, r Role) { roles[name] = r }

// Main plays the role that the arguments of this process name and exits; it
// returns when they name none.
func Main() {
	if len(os.Args) < 2 || len(os.Args[1]) <= len(role) || os.Args[1][:len(role)] != role {
		return
	}
	name := os.Args[1][len(role):]
	play, ok := roles[name]
	if !ok {
		fmt.Fprintln(os.Stderr, "testproc: no role", name)
		os.Exit(2)
	}
	os.Exit(play(os.Args[2:]))
}

// Argv is the command that plays a role:
//
//	burst N        N bytes to stdout, in lines of 16 that count up
//	flood          such lines without end
//	small N        N bytes to stdout, 100 at a time
//	ignoreterm     "ready", then lives on for a minute whatever SIGTERM says
//	grandchild S   leaves a child behind that holds the output and ends after S seconds with "late"
//	kill SIG       dies of the signal
//	winch          "ready", then "winch COLSxROWS" at each SIGWINCH, until killed
func Argv(name string, args ...string) []string {
	self, err := os.Executable()
	if err != nil {
		self = os.Args[0]
	}
	return append([]string{self, role + name}, args...)
}

// Line returns line i of burst and flood: 15 digits and a line end.
func Line(i int64) string { return fmt.Sprintf("%015d\n", i) }

func burst(args []string) int {
	n := number(args)
	out := bufio.NewWriterSize(os.Stdout, 64<<10)
	for i := int64(0); n > 0; i++ {
		line := Line(i)
		line = line[:min(n, int64(len(line)))]
		out.WriteString(line)
		n -= int64(len(line))
	}
	return code(out.Flush())
}

func flood([]string) int {
	out := bufio.NewWriterSize(os.Stdout, 4096)
	for i := int64(0); ; i++ {
		if _, err := out.WriteString(Line(i)); err != nil {
			return 1
		}
	}
}

func small(args []string) int {
	piece := make([]byte, 100)
	for i := range piece {
		piece[i] = 'a' + byte(i%26)
	}
	for n := number(args); n > 0; n -= int64(len(piece)) {
		if _, err := syscall.Write(1, piece[:min(n, 100)]); err != nil {
			return 1
		}
	}
	return 0
}

func ignoreTerm([]string) int {
	signal.Ignore(syscall.SIGTERM)
	fmt.Println("ready")
	time.Sleep(time.Minute)
	return 0
}

func grandchild(args []string) int {
	cmd := exec.Command("/bin/sh", "-c", "sleep "+args[0]+"; echo late")
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	return code(cmd.Start())
}

func killSelf(args []string) int {
	_ = syscall.Kill(os.Getpid(), syscall.Signal(number(args)))
	time.Sleep(time.Minute)
	return 0
}

func winch([]string) int {
	resized := make(chan os.Signal, 16)
	signal.Notify(resized, syscall.SIGWINCH)
	fmt.Println("ready")
	for range resized {
		size, err := unix.IoctlGetWinsize(1, unix.TIOCGWINSZ)
		if err != nil {
			return code(err)
		}
		fmt.Printf("winch %dx%d\n", size.Col, size.Row)
	}
	return 0
}

func number(args []string) int64 {
	n, err := strconv.ParseInt(args[0], 10, 64)
	if err != nil {
		fmt.Fprintln(os.Stderr, "testproc:", err)
		os.Exit(2)
	}
	return n
}

func code(err error) int {
	if err != nil {
		fmt.Fprintln(os.Stderr, "testproc:", err)
		return 1
	}
	return 0
}
