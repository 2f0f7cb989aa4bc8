package upgrade

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"supervisor/internal/testproc"
)

// Three images in one process: the first execs the second with a state and a
// pipe, the second spoils what it can and rolls back, and the third, which is
// the first one's file again, finds everything as it was.
func TestExecAndRollBack(t *testing.T) {
	installed, _ := candidate(t, "second")
	previous, _ := candidate(t, "third")
	must(t, os.Rename(previous, Previous(installed)))
	before, _ := candidate(t, "first")
	cmd := exec.Command(before, installed)
	cmd.Env = []string{"PATH=/bin", rollbackVariable + "=stale"}
	out, err := cmd.CombinedOutput()
	want := "second: back \"\", state STATE, pipe open, limit kept, environment [PATH]\n" +
		"third: back \"the second gives up\", state STATE, pipe abc, limit kept, environment [PATH]\n"
	if err != nil || string(out) != want {
		t.Errorf("%v\n%s", err, out)
	}
	if trailerOf(installed) != "third" {
		t.Error("the previous image is not back in place")
	}
}

// first opens a pipe with something in it and hands it to the second.
func first(args []string) int {
	os.Unsetenv(rollbackVariable)
	var p [2]int
	check(unix.Pipe2(p[:], unix.O_CLOEXEC))
	_, err := unix.Write(p[1], []byte("abc"))
	check(err)
	state, err := State(fmt.Appendf(nil, "STATE %d %d", p[0], p[1]))
	check(err)
	check(Exec(args[0], []string{"second", args[0]}, os.Environ(), state, p[:]))
	return 1
}

func second(args []string) int {
	h, err := Inherit()
	check(err)
	r, w := tell("second", h, "open")
	another, err := h.Duplicate(r)
	check(err)
	unix.Close(another)
	_ = w
	check(h.RollBack(args[0], append([]string{"third"}, args...), os.Environ(), errors.New("the second\x00 gives up")))
	return 1
}

func third([]string) int {
	h, err := Inherit()
	check(err)
	r, w := tell("third", h, "abc")
	_, err = h.Duplicate(r)
	check(err)
	h.Accept()
	if _, err := unix.FcntlInt(uintptr(r), unix.F_GETFD, 0); err != unix.EBADF {
		fmt.Println("the doubled descriptor is still open")
	}
	if flags, err := unix.FcntlInt(uintptr(w), unix.F_GETFD, 0); err != nil || flags&unix.FD_CLOEXEC == 0 {
		fmt.Println("the other one is not close-on-exec")
	}
	if err := h.RollBack("/no/such/agent", nil, nil, io.EOF); err == nil || !strings.Contains(err.Error(), "so did the image after") {
		fmt.Println("rolled back twice:", err)
	}
	return 0
}

// tell prints what an image finds, and returns the pipe's ends.
func tell(name string, h *Inheritance, pipe string) (r, w int) {
	var word string
	if _, err := fmt.Fscanf(strings.NewReader(readAll(h.State())), "%s %d %d", &word, &r, &w); err != nil {
		fmt.Println(err)
	}
	if pipe == "abc" {
		var b [8]byte
		n, err := unix.Read(r, b[:])
		check(err)
		pipe = string(b[:n])
	}
	var names []string
	for _, kv := range os.Environ() {
		n, _, _ := strings.Cut(kv, "=")
		names = append(names, n)
	}
	limit := "kept"
	if l := descriptorLimit(); l.Cur != l.Max {
		limit = fmt.Sprint(l)
	}
	fmt.Printf("%s: back %q, state %s, pipe %s, limit %s, environment %v\n", name, h.RolledBack, word, pipe, limit, names)
	return r, w
}

func check(err error) {
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
}

// An execve that fails changes nothing.
func TestExecFails(t *testing.T) {
	testproc.NoLeaks(t)
	file := filepath.Join(t.TempDir(), "agent")
	must(t, os.WriteFile(file, []byte("no image"), 0o644))
	state, err := State([]byte("STATE"))
	must(t, err)
	defer state.Close()
	r, w, err := os.Pipe()
	must(t, err)
	defer r.Close()
	defer w.Close()
	limit, environ := descriptorLimit(), os.Environ()
	for name, c := range map[string]struct {
		path string
		keep []int
		want error
	}{
		"not executable": {file, []int{fdOf(r), fdOf(w)}, unix.EACCES},
		"no file":        {file + ".not", []int{fdOf(r)}, unix.ENOENT},
		"not open":       {file, []int{fdOf(w), 9999}, unix.EBADF},
	} {
		if err := Exec(c.path, []string{"agent"}, environ, state, c.keep); !errors.Is(err, c.want) {
			t.Errorf("%s: %v", name, err)
		}
		for _, f := range []*os.File{state, r, w} {
			if flags, err := unix.FcntlInt(uintptr(fdOf(f)), unix.F_GETFD, 0); err != nil || flags&unix.FD_CLOEXEC == 0 {
				t.Errorf("%s: descriptor %d has flags %d, %v", name, fdOf(f), flags, err)
			}
		}
		if now := descriptorLimit(); now != limit {
			t.Errorf("%s: the limit is %v, was %v", name, now, limit)
		}
	}
	if !slices.Equal(os.Environ(), environ) {
		t.Error("the environment changed")
	}
}

// An inheritance that nobody can have left is an error, none is none.
func TestInheritNothing(t *testing.T) {
	if h, err := Inherit(); h != nil || err != nil {
		t.Errorf("%v, %v", h, err)
	}
	for _, value := range []string{"x", "/proc/self/fd/", "/proc/self/fd/2", "/proc/self/fd/-1", "/etc/passwd"} {
		t.Setenv(Variable, value)
		if h, err := Inherit(); h != nil || err == nil {
			t.Errorf("%q: %v, %v", value, h, err)
		}
		if _, there := os.LookupEnv(Variable); there {
			t.Errorf("%q is still set", value)
		}
	}
}

// A reason of any length and content fits into an environment variable.
func TestReason(t *testing.T) {
	if got := reason(errors.New(strings.Repeat("x\x00", 1<<20))); len(got) != 4096 || strings.Contains(got, "\x00") {
		t.Errorf("%d bytes", len(got))
	}
}
