package e2e

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"supervisor/statemachine"
)

// refused runs an agent that must not start, and returns what it says.
func refused(t *testing.T, state string, args ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	cmd := exec.CommandContext(ctx, binary, append([]string{
		"serve", "--listen", "unix:" + filepath.Join(t.TempDir(), "s"), "--state-dir", state,
	}, args...)...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	began := time.Now()
	err := cmd.Run()
	text := stderr.String()
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.ExitCode() != 1 {
		t.Errorf("ended with %v: %s", err, text)
	}
	if strings.Count(text, "\n") != 1 || strings.Contains(text, "goroutine") || !strings.Contains(text, state) {
		t.Errorf("not one line about the file: %q", text)
	}
	if took := time.Since(began); took > 5*time.Second {
		t.Errorf("answered after %v", took)
	}
	return text
}

// someJournal is the file of an agent that has run a few processes.
func someJournal(t *testing.T) []byte {
	t.Helper()
	a := start(t)
	for i := range 20 {
		a.wait(a.sh(fmt.Sprintf("exit %d", i)))
	}
	a.stop()
	data, err := os.ReadFile(a.path())
	if err != nil {
		t.Fatal(err)
	}
	a.serve()
	return data
}

// C29: files that are no journal, or no whole one, are refused in one line and
// stay as they are; or, if that is wanted, are put aside.
func TestC29WrongFiles(t *testing.T) {
	const page = 4096
	data := someJournal(t)
	cut := func(n int) []byte { return data[:n] }
	changed := func(change func(b []byte)) []byte {
		b := bytes.Clone(data)
		change(b)
		return b
	}
	noise := make([]byte, 100_000)
	rand.NewChaCha8([32]byte{3}).Read(noise)
	for name, file := range map[string][]byte{
		"1 byte": cut(1), "8192 bytes": cut(8192), "16384 bytes": cut(16384), "half": cut(len(data) / 2),
		"last byte cut": cut(len(data) - 1), "text": bytes.Repeat([]byte("Dear diary,\n"), 1000), "noise": noise,
		"both meta pages zero": changed(func(b []byte) { clear(b[:2*page]) }),
		"newer format": changed(func(b []byte) {
			b[20], b[page+20] = 3, 3 // of little-endian numbers
		}),
	} {
		t.Run(name, func(t *testing.T) {
			state := t.TempDir()
			path := filepath.Join(state, "journal.db")
			if err := os.WriteFile(path, file, 0o600); err != nil {
				t.Fatal(err)
			}
			refused(t, state)
			if after, err := os.ReadFile(path); err != nil || !bytes.Equal(after, file) {
				t.Errorf("the file was changed (%v)", err)
			}
			setAside(t, path)
			aside, _ := filepath.Glob(path + ".damaged-*")
			if len(aside) != 1 {
				t.Fatalf("put aside: %v", aside)
			}
			if after, err := os.ReadFile(aside[0]); err != nil || !bytes.Equal(after, file) {
				t.Errorf("the file that was put aside was changed (%v)", err)
			}
		})
	}
}

// setAside starts an agent that puts the file at path aside, and expects it to
// say so and to work.
func setAside(t *testing.T, path string) {
	t.Helper()
	a := &agent{t: t, dir: t.TempDir(), exe: binary, args: []string{"--on-damaged-journal", "set-aside"}}
	if err := os.Rename(filepath.Dir(path), filepath.Dir(a.path())); err != nil {
		t.Fatal(err)
	}
	a.serve()
	if info, err := a.Info(a.context(20 * time.Second)); err != nil || info.Journal != "set-aside" {
		t.Errorf("agent_info says %+v, %v", info, err)
	}
	if e := a.wait(a.sh("exit 5")); e.ExitCode != 5 {
		t.Errorf("ended as %+v", e)
	}
	a.stop()
	began := a.records()[0].Event.(*statemachine.AgentStarted)
	if !strings.HasPrefix(began.SetAside, path[strings.LastIndexByte(path, '/')+1:]) && !strings.Contains(began.SetAside, ".damaged-") {
		t.Errorf("the new journal says that %q was put aside", began.SetAside)
	}
	if err := os.Rename(filepath.Dir(a.path()), filepath.Dir(path)); err != nil {
		t.Fatal(err)
	}
}

// C29: a folder in the journal's place, and a file system that cannot be
// written.
func TestC29UnusableFiles(t *testing.T) {
	state := t.TempDir()
	path := filepath.Join(state, "journal.db")
	if err := os.Mkdir(path, 0o700); err != nil {
		t.Fatal(err)
	}
	refused(t, state)
	setAside(t, path)

	if err := unix.Mount("tmpfs", state, "tmpfs", 0, "size=1m"); err != nil {
		t.Skipf("mounting a file system: %v", err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(state, 0); err != nil {
			t.Error(err)
		}
	})
	if err := os.WriteFile(path, someJournal(t), 0o400); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("", state, "", unix.MS_REMOUNT|unix.MS_RDONLY, ""); err != nil {
		t.Fatal(err)
	}
	refused(t, state)
	refused(t, state, "--on-damaged-journal", "set-aside") // not damaged
}

// A journal of zero length is a new one.
func TestEmptyJournal(t *testing.T) {
	a := &agent{t: t, dir: t.TempDir(), exe: binary}
	if err := os.MkdirAll(filepath.Dir(a.path()), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(a.path(), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	a.serve()
	a.wait(a.sh("exit 0"))
	a.stop()
	a.checkJournal()
}

// C28: whoever else has the files open, everybody gets an answer soon.
func TestC28Locks(t *testing.T) {
	a := start(t)
	state := filepath.Dir(a.path())
	survivor := a.sh("sleep 60")
	if text := refused(t, state); !strings.Contains(text, fmt.Sprint(a.cmd.Process.Pid)) {
		t.Errorf("the second agent does not name the first, %d: %s", a.cmd.Process.Pid, text)
	}
	reader := replay(t)
	began := time.Now()
	out, err := exec.Command(reader, "verify", a.path()).CombinedOutput()
	if took := time.Since(began); took > 5*time.Second || err == nil && !bytes.Contains(out, []byte("record")) {
		t.Errorf("replay of a live file answered after %v: %v, %s", took, err, out)
	}
	a.kill9()
	stranger, err := os.Open(a.path())
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.Flock(int(stranger.Fd()), unix.LOCK_EX); err != nil {
		t.Fatal(err)
	}
	refused(t, state)
	stranger.Close()
	began = time.Now()
	a.serve()
	if took := time.Since(began); took > 5*time.Second {
		t.Errorf("the next agent answers after %v", took)
	}
	if !a.row(survivor).Running {
		t.Error("the survivor is not running")
	}
}

// replay builds the reader of journals.
func replay(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "replay")
	if out, err := exec.Command("go", "build", "-o", path, "supervisor/tools/replay").CombinedOutput(); err != nil {
		t.Fatalf("building replay: %v\n%s", err, out)
	}
	return path
}

// C33: a pid that another process has by now is nobody's we know.
func TestC33RecycledPid(t *testing.T) {
	a := start(t)
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil { // so that the orphan is ours to reap
		t.Fatal(err)
	}
	defer unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0)
	h := a.sh("exec sleep 60")
	pid := a.row(h).PID
	a.kill9()
	if err := kill(pid); err != nil {
		t.Fatal(err)
	}
	if _, err := unix.Wait4(pid, nil, 0, nil); err != nil {
		t.Fatal(err)
	}
	// The kernel tells starts in hundredths of a second (proc_pid_stat(5)): in
	// the same one even a stranger could not be told apart.
	time.Sleep(20 * time.Millisecond)
	stranger := withPid(t, pid)
	a.serve()
	if stranger == nil {
		t.Skipf("pid %d cannot be had again", pid)
	}
	if e := a.wait(h); e.Running || e.ExitCode == 0 {
		t.Errorf("the stranger was adopted: %+v", e)
	}
	if err := a.Kill(a.context(20*time.Second), h); err == nil {
		t.Error("a kill was accepted")
	}
	if !alive(stranger.Process.Pid) {
		t.Error("the stranger was killed")
	}
}

// withPid starts a process that has the given pid, by telling the kernel which
// one was the last (proc_sys_kernel(5), ns_last_pid); nil if it cannot be had.
func withPid(t *testing.T, pid int) *exec.Cmd {
	t.Helper()
	for range 100 {
		if err := os.WriteFile("/proc/sys/kernel/ns_last_pid", fmt.Append(nil, pid-1), 0); err != nil {
			return nil
		}
		cmd := exec.Command("sleep", "60")
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		end := func() {
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
		}
		if cmd.Process.Pid == pid {
			t.Cleanup(end)
			return cmd
		}
		end()
	}
	return nil
}
