package statemachine

import (
	"encoding/hex"
	"fmt"
)

// Boot is the kernel's boot id: it tells one boot from another, and so which
// pids, start ticks and monotonic times can be compared.
type Boot [16]byte

// ParseBoot reads the form of /proc/sys/kernel/random/boot_id.
func ParseBoot(s string) (Boot, error) {
	var b Boot
	if len(s) != 36 || s[8] != '-' || s[13] != '-' || s[18] != '-' || s[23] != '-' {
		return b, fmt.Errorf("boot id %q is not a UUID", s)
	}
	digits := s[:8] + s[9:13] + s[14:18] + s[19:23] + s[24:]
	if _, err := hex.Decode(b[:], []byte(digits)); err != nil {
		return Boot{}, fmt.Errorf("boot id %q is not a UUID", s)
	}
	return b, nil
}

// String gives the form that ParseBoot reads.
func (b Boot) String() string {
	h := hex.EncodeToString(b[:])
	return h[:8] + "-" + h[8:12] + "-" + h[12:16] + "-" + h[16:20] + "-" + h[20:]
}
