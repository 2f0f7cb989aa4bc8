package procs

import (
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"supervisor/internal/testproc"
)

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// smallDisk mounts a file system of that size, or skips the test.
func smallDisk(t *testing.T, size string) string {
	t.Helper()
	dir := t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size="+size); err != nil {
		t.Skip("cannot mount: ", err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	return dir
}

// C12: the standard descriptors can be opened again by name.
func TestC12StdioByName(t *testing.T) {
	w := newWorld(t)
	h := w.begin(sh(`cat /dev/stdin; echo x >/dev/stderr; echo y >/dev/stdout`))
	w.Stdin(h, []byte("in\n"), true, func(n int, err error) {
		if n != 3 || err != nil {
			t.Errorf("stdin: %d, %v", n, err)
		}
	})
	if r := w.finish(h); r.stdout != "in\ny\n" || r.stderr != "x\n" {
		t.Errorf("%q, %q", r.stdout, r.stderr)
	}
}

// C13: on a terminal the process leads its session and is in the foreground;
// without one it has no terminal at all.
func TestC13ControllingTerminal(t *testing.T) {
	w := newWorld(t)
	r := w.run(onPTY(bash(`cut -d' ' -f1,5,6,8 /proc/$$/stat; tty; stty size`)))
	lines := strings.Split(strings.TrimSpace(r.stdout), "\r\n")
	ids := strings.Fields(lines[0])
	if len(lines) != 3 || len(ids) != 4 || ids[0] != ids[1] || ids[0] != ids[2] || ids[0] != ids[3] {
		t.Errorf("pid, group, session, foreground: %q", r.stdout)
	}
	if len(lines) == 3 && (!strings.HasPrefix(lines[1], "/dev/pts/") || lines[2] != "24 80") {
		t.Errorf("terminal and size: %q", lines[1:])
	}
	if r := w.run(sh(`echo x >/dev/tty`)); r.exit.Status.Code == 0 {
		t.Error("a process on pipes has a terminal")
	}
}

// C13: job control works.
func TestC13JobControl(t *testing.T) {
	w := newWorld(t)
	s := onPTY(Spec{Argv: []string{"/bin/bash", "--norc", "-i"}, Env: []string{"PATH=/bin:/usr/bin", "PS1=ready>"}})
	h := w.begin(s)
	say := func(text string) { w.Stdin(h, []byte(text), false, func(int, error) {}) }
	w.awaitOutput(h, "ready>")
	say("sleep 100\n")
	w.awaitOutput(h, "sleep 100")
	stopped := func() bool {
		say("\x1a") // again and again: sleep may not be in the foreground yet
		return strings.Contains(w.read(h, Stdout), "Stopped")
	}
	if !testproc.Eventually(patience, stopped) {
		t.Errorf("nothing stopped: %q", w.read(h, Stdout))
	}
	prompts := func() bool { return strings.Count(w.read(h, Stdout), "ready>") >= 2 }
	testproc.Eventually(patience, prompts)   // before it, a ^Z still flushes what is typed
	say("kill -9 %1; exec sh -c 'exit 3'\n") // bash itself would warn first
	if r := w.finish(h); r.exit.Status.Code != 3 {
		t.Errorf("%+v %q", r.exit.Status, r.stdout)
	}
}

// C14: SIGPIPE is not ignored in children.
func TestC14PipeStatus(t *testing.T) {
	w := newWorld(t)
	if r := w.run(bash(`yes | head -1; echo ${PIPESTATUS[@]}`)); r.stdout != "y\n141 0\n" {
		t.Errorf("%q", r.stdout)
	}
}

// A child has default dispositions, an empty mask, descriptors 0, 1 and 2
// that block, and no other.
func TestWhatAChildGets(t *testing.T) {
	w := newWorld(t)
	for _, pty := range []bool{false, true} {
		s := sh(`grep -E '^Sig(Blk|Ign)' /proc/self/status; ls /proc/$$/fd; grep -h flags /proc/$$/fdinfo/[012]; cat /proc/$$/oom_score_adj`)
		s.PTY = pty
		out := strings.Fields(w.run(s).stdout)
		if len(out) != 14 {
			t.Fatalf("%q", out)
		}
		for _, i := range []int{1, 3} {
			if strings.Trim(out[i], "0") != "" {
				t.Errorf("pty %v: %s %s", pty, out[i-1], out[i])
			}
		}
		if got := strings.Join(out[4:7], " "); got != "0 1 2" {
			t.Errorf("pty %v: descriptors %s", pty, got)
		}
		for _, i := range []int{8, 10, 12} {
			if strings.HasSuffix(out[i][:len(out[i])-2], "4") { // O_NONBLOCK is 04000
				t.Errorf("pty %v: descriptor %d does not block: %s", pty, (i-8)/2, out[i])
			}
		}
		if out[13] != "0" {
			t.Errorf("oom_score_adj %s", out[13])
		}
	}
}

// An empty stdin is what StdinNull gives.
func TestStdinNull(t *testing.T) {
	w := newWorld(t)
	s := sh(`cat; echo end`)
	s.StdinNull = true
	h := w.begin(s)
	if r := w.finish(h); r.stdout != "end\n" {
		t.Errorf("%q", r.stdout)
	}
}

// The program is looked up on the PATH of the new process, or from its Cwd.
func TestLookup(t *testing.T) {
	w := newWorld(t)
	dir := t.TempDir()
	script(t, dir+"/bin/tool", "#!/bin/sh\necho tool", 0o755)
	script(t, dir+"/other/tool", "#!/bin/sh\necho other", 0o644)
	for _, c := range []struct{ argv0, path string }{
		{"tool", dir + "/bin"},
		{"tool", dir + "/other:" + dir + "/bin"},
		{"tool", "bin"},
		{"bin/tool", "/none"},
		{"./bin/tool", ""},
	} {
		r := w.run(Spec{Argv: []string{c.argv0}, Cwd: dir, Env: []string{"PATH=" + c.path}})
		if r.stdout != "tool\n" {
			t.Errorf("%s on %s: %q, %q", c.argv0, c.path, r.stdout, r.stderr)
		}
	}
}

func script(t *testing.T, path, text string, mode os.FileMode) {
	t.Helper()
	if err := os.MkdirAll(path[:strings.LastIndex(path, "/")], 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), mode); err != nil {
		t.Fatal(err)
	}
}
