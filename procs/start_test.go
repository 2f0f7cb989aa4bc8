package procs

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"supervisor/internal/testproc"
)

// fails starts what cannot start and returns why.
func (w *world) fails(s Spec) *StartError {
	w.t.Helper()
	h := w.launch(s)
	o := await[SpawnFailed](w, h)
	var e *StartError
	if !errors.As(o.Err, &e) {
		w.t.Fatalf("%q: %v is no StartError", s.Argv, o.Err)
	}
	if w.Output(h, Stdout) != nil {
		w.t.Errorf("%q left its handle", s.Argv)
	}
	return e
}

// C09, C08: each cause has its own sentence, which names the path to blame.
func TestC08C09StartErrors(t *testing.T) {
	w := newWorld(t)
	d := t.TempDir()
	foreign, err := os.ReadFile("/bin/true")
	if err != nil {
		t.Fatal(err)
	}
	foreign[18] = 0xf3 // e_machine: RISC-V
	script(t, d+"/plain", "#!/bin/sh\n", 0o644)
	script(t, d+"/text", "echo hello\n", 0o755)
	script(t, d+"/empty", "", 0o755)
	script(t, d+"/lost", "#!/no/such arg\n", 0o755)
	script(t, d+"/dirinterp", "#!/etc\n", 0o755)
	script(t, d+"/foreign", string(foreign), 0o755)
	script(t, d+"/bytes", "\x00\x01\x02", 0o755)
	if err := unix.Mkfifo(d+"/fifo", 0o755); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		argv0, cwd, path, text string
		cause                  error
	}{
		{"no-such-program", "/", "no-such-program", "not found on PATH (/bin:" + d + ")", os.ErrNotExist},
		{"/no/such", "/", "/no/such", "not found", os.ErrNotExist},
		{"./such", d, d + "/./such", "not found", os.ErrNotExist},
		{d, "/", d, "is a directory", os.ErrPermission},
		{d + "/fifo", "/", d + "/fifo", "is no regular file", os.ErrPermission}, // nobody waits for its writer
		{d + "/plain", "/", d + "/plain", "permission denied: not executable (mode 0644)", os.ErrPermission},
		{"plain", "/", d + "/plain", "permission denied: not executable (mode 0644)", os.ErrPermission},
		{d + "/text", "/", d + "/text", "not an executable format: a text without a #! line", unix.ENOEXEC},
		{d + "/empty", "/", d + "/empty", "not an executable format: the file is empty", unix.ENOEXEC},
		{d + "/foreign", "/", d + "/foreign", "not an executable format: an ELF file that is damaged or for another machine", unix.ENOEXEC},
		{d + "/bytes", "/", d + "/bytes", "not an executable format: an unknown binary format", unix.ENOEXEC},
		{d + "/lost", "/", "/no/such", "the interpreter of " + d + "/lost: no such file or directory", os.ErrNotExist},
		{d + "/dirinterp", "/", "/etc", "the interpreter of " + d + "/dirinterp: permission denied", os.ErrPermission},
		{d + "/plain/x", "/", d + "/plain/x", "not found", unix.ENOTDIR},
		{"/bin/true", d + "/gone", d + "/gone", "working directory not found", os.ErrNotExist},
		{"/bin/true", d + "/plain", d + "/plain", "working directory is not a directory", unix.ENOTDIR},
		{"/bin/true", d + "\x00", "", `holds a NUL byte`, unix.EINVAL},
		{"", "/", "", "the command is empty", os.ErrInvalid},
	} {
		e := w.fails(Spec{Argv: []string{c.argv0}, Cwd: c.cwd, Env: []string{"PATH=/bin:" + d}})
		if e.Path != c.path || !strings.Contains(e.Error(), c.path) || !strings.HasSuffix(e.Error(), c.text) || !errors.Is(e, c.cause) {
			t.Errorf("%q in %q: %q, path %q, cause %v; want %q, %v", c.argv0, c.cwd, e, e.Path, e.Err, c.text, c.cause)
		}
	}
}

// C08: the working directory is deleted after a first use.
func TestC08DeletedCwd(t *testing.T) {
	w := newWorld(t)
	d := filepath.Join(t.TempDir(), "work")
	if err := os.Mkdir(d, 0o755); err != nil {
		t.Fatal(err)
	}
	s := Spec{Argv: []string{"/bin/pwd"}, Cwd: d}
	if r := w.run(s); r.stdout != d+"\n" {
		t.Errorf("%q", r.stdout)
	}
	if err := os.Remove(d); err != nil {
		t.Fatal(err)
	}
	if e := w.fails(s); e.Path != d {
		t.Errorf("%v", e)
	}
}

// C10: failed starts leave nothing.
func TestC10FailedStartsLeaveNothing(t *testing.T) {
	w := newWorld(t)
	before := len(testproc.Descriptors())
	ptys := ownTerminals()
	for i := range 500 {
		w.fails(Spec{Argv: []string{"/no/such"}, PTY: i < 200})
	}
	if after := len(testproc.Descriptors()); after != before {
		t.Errorf("%d descriptors, had %d", after, before)
	}
	if got := ownTerminals(); got != ptys {
		t.Errorf("%d terminals, had %d", got, ptys)
	}
	if entries, _ := os.ReadDir(w.opt.Dir); len(entries) != 0 || len(w.procs) != 0 {
		t.Errorf("left: %v on disk, %d handles", entries, len(w.procs))
	}
}

// ownTerminals counts this process's descriptors of terminals: those of the
// machine are everybody's.
func ownTerminals() (n int) {
	for _, d := range testproc.Descriptors() {
		if strings.Contains(d, "/ptmx") || strings.Contains(d, "/dev/pts/") {
			n++
		}
	}
	return n
}

// What ownTerminals counts is there while a process has a terminal.
func TestTerminalsAreCounted(t *testing.T) {
	w := newWorld(t)
	before := ownTerminals()
	h := w.begin(onPTY(sh("read x")))
	if got := ownTerminals(); got <= before {
		t.Errorf("%d terminals, had %d", got, before)
	}
	_ = w.Signal(h, unix.SIGKILL, true)
	w.finish(h)
}

// C11: the longest argument runs, one byte more is a clear error.
func TestC11LongArgument(t *testing.T) {
	w := newWorld(t)
	if r := w.run(Spec{Argv: []string{"/bin/true", strings.Repeat("x", 131071)}}); r.exit.Status.Code != 0 {
		t.Errorf("%+v", r.exit.Status)
	}
	e := w.fails(Spec{Argv: []string{"/bin/true", strings.Repeat("x", 131072)}})
	if e.Error() != "argument list too long: argument 1 has 131072 bytes, the limit is 131071" || !errors.Is(e, unix.E2BIG) {
		t.Errorf("%v", e)
	}
	e = w.fails(Spec{Argv: []string{"/bin/true"}, Env: []string{"V=" + strings.Repeat("x", 131072)}})
	if !strings.Contains(e.Error(), "the variable V has 131074 bytes") {
		t.Errorf("%v", e)
	}
}

// Descriptors and goroutines stay flat over many processes.
func TestNothingLeaks(t *testing.T) {
	w := newWorld(t)
	before := len(testproc.Descriptors())
	for range 10 {
		var handles []string
		for range 100 {
			handles = append(handles, w.launch(sh("echo out; echo err >&2")))
		}
		for _, h := range handles {
			if r := w.finish(h); r.stdout != "out\n" || r.stderr != "err\n" {
				t.Errorf("%+v", r)
			}
		}
		if after := len(testproc.Descriptors()); after != before { // ended, not forgotten
			t.Fatalf("%d descriptors, had %d", after, before)
		}
		for _, h := range handles {
			w.Forget(h)
		}
	}
	if entries, _ := os.ReadDir(w.opt.Dir); len(entries) != 0 {
		t.Errorf("%d folders of rings are left", len(entries))
	}
}
