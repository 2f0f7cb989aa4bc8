package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/mdlayher/vsock"
	"golang.org/x/sys/unix"
)

func (t *tester) isInit() error {
	r, err := t.call("agent_info", nil)
	if err == nil && r.PID != 1 {
		err = fmt.Errorf("it is %d", r.PID)
	}
	return err
}

// mounted compares file systems by their magic numbers; see statfs(2).
func mounted() error {
	for dir, magic := range map[string]int64{
		"/proc": unix.PROC_SUPER_MAGIC, "/sys": unix.SYSFS_MAGIC, "/dev/pts": unix.DEVPTS_SUPER_MAGIC,
		"/dev/shm": unix.TMPFS_MAGIC, "/run": unix.TMPFS_MAGIC, "/tmp": unix.TMPFS_MAGIC,
	} {
		var st unix.Statfs_t
		if err := unix.Statfs(dir, &st); err != nil || st.Type != magic {
			return fmt.Errorf("%s is of type %#x (%v)", dir, st.Type, err)
		}
	}
	_, err := os.Stat("/dev/fd/0")
	return err
}

func (t *tester) orphans() error {
	const n = 20
	for range n {
		h, err := t.start("orphan", "3")
		if err != nil {
			return err
		}
		if end, err := t.wait(h); err != nil || end.ExitCode != 42 {
			return fmt.Errorf("ended as %+v, %v", end, err)
		}
		if r, err := t.call("exec", fields{"cmd": []string{self, "say", "x", "3"}}); err != nil || r.ExitCode != 3 {
			return fmt.Errorf("exec answered %+v, %v", r, err)
		}
	}
	return until(func() (bool, error) {
		r, err := t.call("agent_info", nil)
		return r.Reaped >= n && zombies() == 0, err
	})
}

func zombies() (n int) {
	entries, _ := os.ReadDir("/proc")
	for _, e := range entries {
		b, _ := os.ReadFile("/proc/" + e.Name() + "/stat")
		if _, rest, ok := strings.Cut(string(b), ") "); ok && rest[0] == 'Z' {
			n++
		}
	}
	return n
}

// killsGroup reaches the members of a group whose leader has ended; this
// kernel has no group signals by pidfd.
func (t *tester) killsGroup() error {
	h, err := t.start("orphan", "100000")
	if err != nil {
		return err
	}
	if _, err := t.wait(h); err != nil {
		return err
	}
	err = t.kill(h)
	for end := time.Now().Add(patience); err == nil && time.Now().Before(end); {
		if again := t.kill(h); again != nil {
			return nil // nobody is left
		}
	}
	return errors.Join(err, errors.New("members are left"))
}

// policy has a second agent, which allows the host alone, hang up unread.
func (t *tester) policy() error {
	r, err := t.call("proc_start", fields{"cmd": []string{agent, "serve", "--listen", "vsock:18048", "--state-dir", "/tmp/other"}})
	if err != nil {
		return err
	}
	err = until(func() (bool, error) {
		conn, err := vsock.Dial(vsock.Local, 18048, nil)
		if err != nil {
			return false, nil
		}
		defer conn.Close()
		_, _ = io.WriteString(conn, "{\"op\":\"agent_info\"}\n") // it may hang up first
		if answer, _ := io.ReadAll(conn); len(answer) > 0 {
			return true, fmt.Errorf("it answered %q", answer)
		}
		return true, nil
	})
	return errors.Join(err, t.kill(r.Handle))
}

func (t *tester) isLost(handle string) error {
	row, err := t.row(handle)
	if err == nil && (row.StdoutLen != 0 || row.ExitCode != -1) {
		err = fmt.Errorf("its row is %+v", row)
	}
	return errors.Join(err, row.as(-1, 0, "lost"))
}
