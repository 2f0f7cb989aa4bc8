package main

import (
	"bufio"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"time"

	"github.com/mdlayher/vsock"
	"golang.org/x/sys/unix"
)

const patience = 30 * time.Second

// test runs the part of this boot. The first one ends in a power cut.
func test() error {
	fmt.Println() // ends what the firmware left
	t := &tester{}
	if err := t.dial(); err != nil {
		return err
	}
	before, err := os.ReadFile(disk + "/boot")
	if errors.Is(err, os.ErrNotExist) {
		return t.firstBoot()
	}
	t.check("the disk survives", err)
	t.secondBoot(string(before))
	return nil
}

func (t *tester) firstBoot() error {
	t.check("the agent is PID 1", t.isInit())
	t.check("what is missing is mounted", mounted())
	t.check("a process tells output and code", t.says())
	t.check("exec waits for its own child", t.execs())
	t.check("a process has a terminal", t.hasTerminal())
	t.check("the connection becomes a terminal", becomesTerminal())
	t.check("orphans are reaped, statuses are not", t.orphans())
	t.check("a group is killed", t.killsGroup())
	t.check("a CID that is not allowed is not heard", t.policy())
	t.check("PID 1 is upgraded in place", t.upgrades())
	h, err := t.start(`["/init","tick"]`)
	t.check("a process runs into the power cut", err)
	if err := os.WriteFile(disk+"/boot", []byte(h), 0o600); err != nil {
		return err
	}
	unix.Sync()
	fmt.Println("CUT")
	select {}
}

func (t *tester) secondBoot(handle string) {
	t.check("the process of the first boot is lost, and known", t.isLost(handle))
	t.check("a machine that was paused goes on", t.pauses())
	h, err := t.start(`["/init","polite"]`)
	if err == nil {
		err = t.until(func() (bool, error) { out, err := t.stdout(h); return out == "ready\n", err })
	}
	t.check("a process waits for the end", err)
	fmt.Println("END")
	_ = unix.Kill(1, unix.SIGTERM)
	select {}
}

// tester speaks to the agent over the loopback of AF_VSOCK, through a dialer
// that is not ours.
type tester struct {
	conn net.Conn
	in   *bufio.Reader
}

func (t *tester) check(what string, err error) {
	if err != nil {
		fmt.Printf("FAIL  %s: %v\n", what, err)
		return
	}
	fmt.Println("ok   ", what)
}

func (t *tester) until(holds func() (bool, error)) error {
	for end := time.Now().Add(patience); ; time.Sleep(20 * time.Millisecond) {
		ok, err := holds()
		if ok || err != nil {
			return err
		}
		if time.Now().After(end) {
			return errors.New("it never happened")
		}
	}
}

func (t *tester) dial() error {
	return t.until(func() (bool, error) {
		conn, err := vsock.Dial(vsock.Local, port, nil)
		if err != nil {
			return false, nil
		}
		t.conn, t.in = conn, bufio.NewReader(conn)
		return true, nil
	})
}

type reply struct {
	OK        bool
	Error     string
	PID       int
	Handle    string
	Stdout    string
	Running   bool
	Reason    string
	ExitCode  int `json:"exit_code"`
	Reaped    int
	Procs     []reply
	StdoutLen int `json:"stdout_len"`
}

func (t *tester) call(format string, args ...any) (r reply, err error) {
	if _, err := fmt.Fprintf(t.conn, format+"\n", args...); err != nil {
		return r, err
	}
	line, err := t.in.ReadBytes('\n')
	if err == nil {
		err = json.Unmarshal(line, &r)
	}
	if err == nil && !r.OK {
		err = errors.New(r.Error)
	}
	return r, err
}

func (t *tester) start(cmd string) (handle string, err error) {
	r, err := t.call(`{"op":"proc_start","cmd":%s}`, cmd)
	return r.Handle, err
}

func (t *tester) wait(handle string) (reply, error) {
	return t.call(`{"op":"proc_wait","handle":%q}`, handle)
}

func (t *tester) stdout(handle string) (string, error) {
	r, err := t.call(`{"op":"proc_logs","handle":%q,"wait_ms":1000}`, handle)
	if err != nil {
		return "", err
	}
	b, err := base64.StdEncoding.DecodeString(r.Stdout)
	return string(b), err
}

func (t *tester) row(handle string) (reply, error) {
	r, err := t.call(`{"op":"proc_list"}`)
	for _, p := range r.Procs {
		if p.Handle == handle {
			return p, err
		}
	}
	return reply{}, errors.Join(err, errors.New("no such row"))
}

func (t *tester) isInit() error {
	r, err := t.call(`{"op":"agent_info"}`)
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

func (t *tester) says() error {
	h, err := t.start(`["/init","say","hello","7"]`)
	if err != nil {
		return err
	}
	end, err := t.wait(h)
	if err != nil || end.ExitCode != 7 {
		return fmt.Errorf("ended as %+v, %v", end, err)
	}
	if out, err := t.stdout(h); err != nil || out != "hello\n" {
		return fmt.Errorf("wrote %q, %v", out, err)
	}
	return nil
}

func (t *tester) execs() error {
	r, err := t.call(`{"op":"exec","cmd":["/init","say","hello","7"]}`)
	if err == nil && (r.Stdout != "hello\n" || r.ExitCode != 7) {
		err = fmt.Errorf("answered %+v", r)
	}
	return err
}

func (t *tester) hasTerminal() error {
	r, err := t.call(`{"op":"proc_start","cmd":["/init","tty"],"pty":true,"cols":100,"rows":30}`)
	if err != nil {
		return err
	}
	if _, err := t.call(`{"op":"proc_stdin","handle":%q,"data":"d29yZAo="}`, r.Handle); err != nil {
		return err
	}
	if _, err := t.wait(r.Handle); err != nil {
		return err
	}
	if out, err := t.stdout(r.Handle); err != nil || !strings.Contains(out, "100x30 WORD\r\n") {
		return fmt.Errorf("wrote %q, %v", out, err)
	}
	return nil
}

func becomesTerminal() error {
	var t tester
	if err := t.dial(); err != nil {
		return err
	}
	defer t.conn.Close()
	if _, err := t.call(`{"op":"pty","cmd":["/init","tty"]}`); err != nil {
		return err
	}
	if _, err := io.WriteString(t.conn, "word\n"); err != nil {
		return err
	}
	if all, err := io.ReadAll(t.in); err != nil || !strings.Contains(string(all), "80x24 WORD\r\n") {
		return fmt.Errorf("wrote %q, %v", all, err)
	}
	return nil
}

func (t *tester) orphans() error {
	const n = 20
	for range n {
		h, err := t.start(`["/init","orphan"]`)
		if err != nil {
			return err
		}
		if end, err := t.wait(h); err != nil || end.ExitCode != 42 {
			return fmt.Errorf("ended as %+v, %v", end, err)
		}
		if r, err := t.call(`{"op":"exec","cmd":["/init","say","x","3"]}`); err != nil || r.ExitCode != 3 {
			return fmt.Errorf("exec answered %+v, %v", r, err)
		}
	}
	return t.until(func() (bool, error) {
		r, err := t.call(`{"op":"agent_info"}`)
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
	h, err := t.start(`["/init","orphan"]`)
	if err != nil {
		return err
	}
	if _, err := t.wait(h); err != nil {
		return err
	}
	if _, err := t.call(`{"op":"proc_kill","handle":%q}`, h); err != nil {
		return err
	}
	_, err = t.call(`{"op":"proc_kill","handle":%q}`, h)
	for end := time.Now().Add(patience); err == nil && time.Now().Before(end); {
		_, err = t.call(`{"op":"proc_kill","handle":%q}`, h)
	}
	if err == nil {
		return errors.New("members are left")
	}
	return nil
}

// policy has a second agent, which allows the host alone, hang up unread.
func (t *tester) policy() error {
	h, err := t.start(`["/supervisor","serve","--listen","vsock:18048","--state-dir","/tmp/other"]`)
	if err != nil {
		return err
	}
	defer t.call(`{"op":"proc_kill","handle":%q}`, h)
	return t.until(func() (bool, error) {
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
}

func (t *tester) upgrades() error {
	image, err := os.ReadFile(agent)
	if err == nil {
		err = os.WriteFile("/tmp/new", image, 0o755)
	}
	if err != nil {
		return err
	}
	h, err := t.start(`["/init","tick"]`)
	if err != nil {
		return err
	}
	if _, err := t.call(`{"op":"agent_upgrade","path":"/tmp/new","sha256":"%x"}`, sha256.Sum256(image)); err != nil {
		return err
	}
	t.conn.Close()
	if err := t.dial(); err != nil {
		return err
	}
	if err := t.isInit(); err != nil {
		return err
	}
	row, err := t.row(h)
	if err == nil && !row.Running {
		err = fmt.Errorf("the process ended: %+v", row)
	}
	_, killed := t.call(`{"op":"proc_kill","handle":%q}`, h)
	return errors.Join(err, killed)
}

func (t *tester) isLost(handle string) error {
	row, err := t.row(handle)
	if err == nil && (row.Running || row.Reason != "lost" || row.ExitCode != -1 || row.StdoutLen != 0) {
		err = fmt.Errorf("its row is %+v", row)
	}
	return err
}

// pauses asks who runs the machine to stop it for a while.
func (t *tester) pauses() error {
	h, err := t.start(`["/init","tick"]`)
	if err != nil {
		return err
	}
	fmt.Println("PAUSE")
	time.Sleep(2 * time.Second)
	before, err := t.row(h)
	if err != nil {
		return err
	}
	err = t.until(func() (bool, error) {
		now, err := t.row(h)
		return now.Running && now.StdoutLen > before.StdoutLen, err
	})
	_, killed := t.call(`{"op":"proc_kill","handle":%q}`, h)
	return errors.Join(err, killed)
}
