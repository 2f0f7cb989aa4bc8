package engine

import (
	"fmt"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"supervisor/procs"
	"supervisor/statemachine"
)

// now reads the clocks.
func (e *Engine) now() statemachine.Instant {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts); err != nil {
		panic(fmt.Sprintf("no monotonic clock: %v", err)) // clock_gettime(2): only on a bad clock id
	}
	return statemachine.Instant{Wall: time.Now().UnixNano(), Mono: ts.Nano(), Boot: e.boot}
}

// at is the moment of an observation.
func (e *Engine) at(i procs.Instant) statemachine.Instant {
	return statemachine.Instant{Wall: i.Wall, Mono: i.Mono, Boot: e.boot}
}

// bootID reads the kernel's boot id.
func bootID() (statemachine.Boot, error) {
	b, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return statemachine.Boot{}, fmt.Errorf("reading the kernel's boot id: %w", err)
	}
	return statemachine.ParseBoot(strings.TrimSpace(string(b)))
}
