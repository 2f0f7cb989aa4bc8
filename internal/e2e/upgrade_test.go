package e2e

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"supervisor/client"
	"supervisor/statemachine"
)

var (
	buildsMu sync.Mutex
	builds   = map[string]string{}
)

// build links the agent with another version, once, and without the race
// detector: an image with it takes a hundred times as long to start.
func build(t testing.TB, version string) string {
	t.Helper()
	return buildFrom(t, version, "supervisor/cmd/supervisor", "-X main.version="+version)
}

func buildFrom(t testing.TB, name, source, ldflags string) string {
	t.Helper()
	buildsMu.Lock()
	defer buildsMu.Unlock()
	if path := builds[name]; path != "" {
		return path
	}
	path := filepath.Join(filepath.Dir(binary), name)
	if out, err := exec.Command("go", "build", "-o", path, "-ldflags", ldflags, source).CombinedOutput(); err != nil {
		t.Fatalf("building %s: %v\n%s", name, err, out)
	}
	builds[name] = path
	return path
}

// installed runs an agent from an install folder of its own.
func installed(t *testing.T, args ...string) (a *agent, image string) {
	t.Helper()
	image = filepath.Join(t.TempDir(), "supervisor")
	copyFile(t, build(t, "1.0.0"), image)
	return startImage(t, image, args...), image
}

func copyFile(t testing.TB, from, to string) {
	t.Helper()
	b, err := os.ReadFile(from)
	if err == nil {
		err = os.WriteFile(to, b, 0o755)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// stage copies a file to where an upgrade may take it, and digests it.
func stage(t testing.TB, from string) (path, digest string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "staged")
	copyFile(t, from, path)
	return path, digestOf(t, path)
}

func digestOf(t testing.TB, path string) string {
	t.Helper()
	if info, err := os.Stat(path); err != nil || !info.Mode().IsRegular() {
		return strings.Repeat("0", 64) // a folder, a FIFO, nothing
	}
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}

func (a *agent) upgradeCall(path, digest string) reply {
	a.t.Helper()
	return a.raw().call(fmt.Sprintf(`{"op":"agent_upgrade","path":%q,"sha256":%q}`, path, digest))
}

// upgrade replaces the agent and waits until the new one answers.
func (a *agent) upgrade(image, version string) {
	a.t.Helper()
	path, digest := stage(a.t, image)
	if m := a.upgradeCall(path, digest); m["ok"] != true || m["agent_version"] != version {
		a.t.Fatalf("upgrade to %s: %v", version, m)
	}
	eventually(a.t, "the new version answers", func() bool { return a.version() == version })
	if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) {
		a.t.Error("the staged file was not consumed")
	}
}

func (a *agent) version() string {
	info, err := a.Info(a.context(20 * time.Second))
	if errors.Is(err, client.ErrDisconnected) || errors.Is(err, client.ErrUnavailable) {
		return ""
	}
	if err != nil {
		a.t.Fatal(err)
	}
	return info.AgentVersion
}

// C23: what cannot work is refused, each with its own word, and changes
// nothing.
func TestC23UpgradeThatCannotWork(t *testing.T) {
	a, image := installed(t)
	good := build(t, "1.1.0")
	whole, err := os.ReadFile(good)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	file := func(name string, mode os.FileMode, content []byte) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, content, mode); err != nil {
			t.Fatal(err)
		}
		return path
	}
	link := func(name, target string) string {
		path := filepath.Join(dir, name)
		if err := os.Symlink(target, path); err != nil {
			t.Fatal(err)
		}
		return path
	}
	fifo := filepath.Join(dir, "fifo")
	if err := unix.Mkfifo(fifo, 0o755); err != nil {
		t.Fatal(err)
	}
	var zipped bytes.Buffer
	z := gzip.NewWriter(&zipped)
	z.Write(whole)
	z.Close()
	before := digestOf(t, image)
	for _, c := range []struct{ what, path, says string }{
		{"a folder", dir, "no regular file"},
		{"a FIFO", fifo, "no regular file"},
		{"a dangling link", link("dangling", "/no/such/file"), "no such file"},
		{"mode 0644", file("plain", 0o644, whole), "not executable"},
		{"an empty file", file("empty", 0o755, nil), "not an ELF"},
		{"half an agent", file("half", 0o755, whole[:len(whole)/2]), ""},
		{"4 KiB of it", file("short", 0o755, whole[:4096]), ""},
		{"gzip of it", file("zipped", 0o755, zipped.Bytes()), "not an ELF"},
		{"a script", file("script", 0o755, []byte("#!/bin/sh\necho 1.0\n")), "not an ELF"},
		{"/bin/true", "/bin/true", "--version"},
		{"the installed file", image, "installed image"},
		{"a link to it", link("itself", image), "installed image"},
	} {
		m := a.upgradeCall(c.path, digestOf(t, c.path))
		if m["ok"] != false || m["code"] != "upgrade_rejected" || !strings.Contains(m["error"].(string), c.says) {
			t.Errorf("%s: %v", c.what, m)
		}
	}
	path, digest := stage(t, good)
	if m := a.upgradeCall(path, strings.Repeat("0", 64)); m["code"] != "upgrade_rejected" {
		t.Errorf("a wrong digest: %v", m)
	}
	if digestOf(t, image) != before || a.version() != "1.0.0" {
		t.Error("something was changed")
	}
	if m := a.upgradeCall(path, strings.ToUpper(digest)); m["ok"] != true {
		t.Errorf("a good one afterwards: %v", m)
	}
	eventually(t, "the new version answers", func() bool { return a.version() == "1.1.0" })
}

// C24: a hundred upgrades leave no descriptor, no memory file, no variable.
func TestC24UpgradesLeakNothing(t *testing.T) {
	a, _ := installed(t)
	versions := []string{"1.1.0", "1.2.0"}
	for i := range 5 {
		a.start(client.StartRequest{Cmd: []string{"sleep", "300"}, PTY: i%2 == 0})
	}
	a.upgrade(build(t, versions[1]), versions[1])
	fds, environ := a.descriptors(), a.environ()
	n := 100
	if testing.Short() {
		n = 20
	}
	for i := range n {
		a.upgrade(build(t, versions[i%2]), versions[i%2])
	}
	eventually(t, "descriptors are flat", func() bool { return a.descriptors() <= fds })
	if now := a.environ(); now != environ {
		t.Errorf("the environment has %d bytes, %d before", now, environ)
	}
	entries, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", a.cmd.Process.Pid))
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if to, _ := os.Readlink(fmt.Sprintf("/proc/%d/fd/%s", a.cmd.Process.Pid, e.Name())); strings.Contains(to, "memfd") {
			t.Errorf("descriptor %s is %s", e.Name(), to)
		}
	}
	h := a.sh("ls -l /proc/self/fd")
	if stdout, _ := a.output(h); strings.Count(stdout, " -> ") > 4 { // 0, 1, 2 and that of ls
		t.Errorf("a child has\n%s", stdout)
	}
}

// environ is the size of the agent's environment.
func (a *agent) environ() int {
	a.t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", a.cmd.Process.Pid))
	if err != nil {
		a.t.Fatal(err)
	}
	return len(b)
}

// C25: what is behind a link after the check is never run.
func TestC25SwappedAfterTheCheck(t *testing.T) {
	a, image := installed(t)
	good := build(t, "1.1.0")
	evil := buildFrom(t, "evil", "supervisor/cmd/supervisor", "-X main.version=6.6.6")
	dir := t.TempDir()
	link := filepath.Join(dir, "link")
	stop := make(chan struct{})
	var flipping sync.WaitGroup
	flipping.Go(func() {
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			default:
			}
			next := filepath.Join(dir, "next")
			_ = os.Symlink([]string{good, evil}[i%2], next)
			_ = os.Rename(next, link)
		}
	})
	digest := digestOf(t, good)
	for range 30 {
		m := a.upgradeCall(link, digest)
		if m["ok"] == true && m["agent_version"] != "1.1.0" {
			t.Fatalf("upgraded to %v", m)
		}
		eventually(t, "the agent answers", func() bool { v := a.version(); return v == "1.0.0" || v == "1.1.0" })
		if d := digestOf(t, image); d == digestOf(t, evil) {
			t.Fatal("the evil image is installed")
		}
	}
	close(stop)
	flipping.Wait()
}

// C26: over upgrades nobody who connects is refused, and the socket stays.
func TestC26SocketStays(t *testing.T) {
	a, _ := installed(t)
	path := filepath.Join(a.dir, "agent.sock")
	before, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	stop := make(chan struct{})
	var knocking sync.WaitGroup
	knocking.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
			}
			conn, err := net.Dial("unix", path)
			if err != nil {
				t.Error(err)
				return
			}
			conn.Close()
			time.Sleep(time.Millisecond) // between two knocks
			if info, err := os.Stat(path); err != nil || info.Mode() != before.Mode() {
				t.Errorf("the socket: %v, %v", info, err)
				return
			}
		}
	})
	for i := range 10 {
		version := []string{"1.1.0", "1.2.0"}[i%2]
		a.upgrade(build(t, version), version)
	}
	close(stop)
	knocking.Wait()
}

// C27: a handle is never used again, over upgrades and crashes.
func TestC27HandlesAreNew(t *testing.T) {
	a, _ := installed(t)
	seen := map[string]bool{}
	check := func() {
		for range 20 {
			h := a.sh("exit 0")
			if seen[h] {
				t.Fatalf("%s is used again", h)
			}
			seen[h] = true
		}
	}
	check()
	a.upgrade(build(t, "1.1.0"), "1.1.0")
	check()
	a.kill9()
	a.serve()
	check()
}

// Everything that a process has is carried: output before, during and after,
// stdin, terminal, deadline, exit status, and its idempotency key.
func TestUpgradeCarriesProcesses(t *testing.T) {
	a, _ := installed(t)
	ctx := context.Background()
	cat := a.start(client.StartRequest{Cmd: []string{"cat"}, Idem: "cat"})
	terminal := a.start(client.StartRequest{Cmd: []string{"/bin/sh", "-c", "read x; stty size; echo got:$x"}, PTY: true})
	doomed := a.start(client.StartRequest{Cmd: []string{"sleep", "60"}, TimeoutMS: 2000})
	coded := a.sh("read x; exit 77")
	ended := a.sh("echo early; exit 6")
	a.wait(ended)
	if _, err := a.Stdin(ctx, cat.Handle, []byte("one\n")); err != nil {
		t.Fatal(err)
	}
	a.upgrade(build(t, "1.1.0"), "1.1.0")
	a.upgrade(build(t, "1.2.0"), "1.2.0")
	if again := a.start(client.StartRequest{Cmd: []string{"cat"}, Idem: "cat"}); again.Handle != cat.Handle {
		t.Errorf("the idempotency key is lost: %v", again)
	}
	for handle, text := range map[string]string{cat.Handle: "two\n", terminal.Handle: "hello\r", coded: "x\n"} {
		if handle == terminal.Handle {
			if err := a.Resize(ctx, handle, 111, 22); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := a.Stdin(ctx, handle, []byte(text)); err != nil {
			t.Fatal(err)
		}
	}
	if err := a.CloseStdin(ctx, cat.Handle); err != nil {
		t.Fatal(err)
	}
	if stdout, _ := a.output(cat.Handle); stdout != "one\ntwo\n" {
		t.Errorf("cat wrote %q", stdout)
	}
	if stdout, _ := a.output(terminal.Handle); !strings.Contains(stdout, "22 111") || !strings.Contains(stdout, "got:hello") {
		t.Errorf("the terminal shows %q", stdout)
	}
	if e := a.wait(coded); e.ExitCode != 77 {
		t.Errorf("ended as %+v", e)
	}
	if e := a.wait(doomed.Handle); !e.TimedOut || e.Signal != 9 {
		t.Errorf("ended as %+v", e)
	}
	if stdout, _ := a.output(ended); stdout != "early\n" || a.wait(ended).ExitCode != 6 {
		t.Errorf("an ended record: %q, %+v", stdout, a.wait(ended))
	}
}

// A new image that passed every check and then cannot take over puts the old
// one back, with every process.
func TestUpgradeRollsBack(t *testing.T) {
	a, image := installed(t)
	h := a.sh("while :; do echo tick; sleep .05; done")
	before := digestOf(t, image)
	source := filepath.Join(t.TempDir(), "main.go")
	if err := os.WriteFile(source, []byte(cannotTakeOver), 0o600); err != nil {
		t.Fatal(err)
	}
	bad := filepath.Join(t.TempDir(), "bad")
	cmd := exec.Command("go", "build", "-o", bad, source)
	cmd.Dir = moduleRoot(t) // its upgrade package is used
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("building: %v\n%s", err, out)
	}
	path, digest := stage(t, bad)
	if m := a.upgradeCall(path, digest); m["ok"] != true {
		t.Fatalf("the bad image is refused: %v", m)
	}
	eventually(t, "the old version is back", func() bool {
		return a.version() == "1.0.0" && a.rolledBack()
	})
	if digestOf(t, image) != before {
		t.Error("the old image is not back in place")
	}
	row := a.row(h)
	if !row.Running {
		t.Fatalf("the process is %+v", row)
	}
	eventually(t, "its output goes on", func() bool { return a.row(h).StdoutLen > row.StdoutLen })
	a.upgrade(build(t, "1.1.0"), "1.1.0")
}

func (a *agent) rolledBack() bool {
	reply, err := a.JournalRead(a.context(20*time.Second), client.JournalReadRequest{Limit: 10_000})
	if err != nil {
		return false
	}
	return bytes.Contains(bytes.Join(reply.Records, nil), []byte(statemachine.KindUpgradeRolledBack))
}

func moduleRoot(t *testing.T) string {
	t.Helper()
	out, err := exec.Command("go", "env", "GOMOD").Output()
	if err != nil {
		t.Fatal(err)
	}
	return filepath.Dir(strings.TrimSpace(string(out)))
}

// cannotTakeOver is an image that says all the right words, and then gives up
// as this release does when it cannot adopt.
const cannotTakeOver = `package main

import (
	"errors"
	"fmt"
	"os"

	"supervisor/upgrade"
)

func main() {
	switch os.Args[1] {
	case "--version":
		fmt.Println("supervisor 9.9.9")
	case "preflight":
		fmt.Println("supervisor preflight: ok")
	default:
		h, err := upgrade.Inherit()
		if err != nil {
			panic(err)
		}
		image, _ := os.Readlink("/proc/self/exe")
		fmt.Fprintln(os.Stderr, h.RollBack(image, os.Args, os.Environ(), errors.New("it was built to fail")))
	}
}
`
