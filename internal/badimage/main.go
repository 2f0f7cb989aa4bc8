// Command badimage is an image for tests: it passes every check that an agent
// makes before a handover, and then does what its variable says.
package main

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"supervisor/engine"
)

// Set when the binary is linked.
var (
	version = "bad"
	does    = "state" // what it does, see the map
	marker  = ""      // of evil: the file that shows that it ran
)

// deeds take over as far as they go and return why they go no further.
var deeds = map[string]func(h *engine.Inheritance) error{
	"state":   func(*engine.Inheritance) error { return errors.New("the state cannot be read") },
	"sockets": sockets,
	"journal": journal,
	"process": process,
	"exit":    func(*engine.Inheritance) error { os.Exit(3); return nil },
	"slow":    func(*engine.Inheritance) error { return errors.New("too slow") },
}

func main() {
	if marker != "" {
		_ = os.WriteFile(marker, nil, 0o600)
	}
	switch os.Args[1] {
	case "--version":
		fmt.Println("badimage", version)
	case "preflight":
		if does == "slow" {
			time.Sleep(time.Second)
		}
		fmt.Println(engine.PreflightLine)
	case "serve":
		h, err := engine.Inherit()
		if err == nil {
			err = deeds[does](h)
		}
		fmt.Fprintln(os.Stderr, "badimage:", h.RollBack(installed(), err))
		os.Exit(1)
	}
}

func installed() string {
	path, _ := os.Readlink("/proc/self/exe")
	return path
}

// sockets takes the listeners over, loses them and fails.
func sockets(h *engine.Inheritance) error {
	taken, err := h.Sockets()
	if err != nil {
		return err
	}
	for _, s := range taken {
		unix.Close(s.FD)
	}
	return errors.New("the sockets are gone")
}

// journal fails after the journal was opened: the folder of the rings cannot
// be made.
func journal(h *engine.Inheritance) error {
	dir, err := os.MkdirTemp("", "badimage-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	if err := os.WriteFile(filepath.Join(dir, "rings"), nil, 0o600); err != nil {
		return err
	}
	_, err = h.Adopt(config(h, dir))
	return err
}

// process fails at the last process that is taken over: the descriptor of one
// of its streams is not what it should be.
func process(h *engine.Inheritance) error {
	fd := h.Processes[len(h.Processes)-1].Output[0]
	saved, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 3)
	if err != nil {
		return err
	}
	null, err := unix.Open("/dev/null", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	if err := unix.Dup3(null, fd, unix.O_CLOEXEC); err != nil {
		return err
	}
	_, cause := h.Adopt(config(h, filepath.Join(stateDir(h), "run")))
	return errors.Join(cause, unix.Dup3(saved, fd, unix.O_CLOEXEC))
}

func stateDir(h *engine.Inheritance) string {
	return string(h.Args[slices.Index(h.Args, "--state-dir")+1])
}

func config(h *engine.Inheritance, runtimeDir string) engine.Config {
	return engine.Config{
		StateDir: stateDir(h), RuntimeDir: runtimeDir, MaxProcs: 64, Retain: time.Minute, RingBytes: 256 << 10,
		JournalMaxBytes: 64 << 20, Version: version, Log: slog.New(slog.DiscardHandler),
	}
}
