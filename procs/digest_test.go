package procs

import (
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"supervisor/internal/testproc"
)

func digestOf(s string) string { return fmt.Sprintf("%x", sha256.Sum256([]byte(s))) }

func (w *world) wantDigests(handle, stdout, stderr string) {
	w.t.Helper()
	c := await[Closed](w, handle)
	if c.StdoutSHA256 != stdout || c.StderrSHA256 != stderr {
		w.t.Errorf("%s: digests %q and %q, want %q and %q", handle, c.StdoutSHA256, c.StderrSHA256, stdout, stderr)
	}
}

// Closed tells the digest of the whole stream, however much of it was dropped.
func TestDigests(t *testing.T) {
	w := newWorld(t)
	for _, n := range []int{0, 1, 65535, 65536, 65537, 262144, 262145, 10_000_000} {
		h := w.begin(Spec{Argv: testproc.Argv("burst", fmt.Sprint(n))})
		w.wantDigests(h, digestOf(linesAt(0, n)), digestOf(""))
		if files, _ := filepath.Glob(w.opt.Dir + "/" + h + "/stdout.0*"); len(files) > 5 {
			t.Errorf("after %d bytes, all hashed: %v", n, files)
		}
		w.Forget(h)
	}
	both := w.begin(sh("echo out; echo err >&2"))
	w.wantDigests(both, digestOf("out\n"), digestOf("err\n"))
	w.Forget(both)
	terminal := w.begin(onPTY(sh("echo out; echo err >&2")))
	w.wantDigests(terminal, digestOf("out\r\nerr\r\n"), digestOf(""))
	w.Forget(terminal)
	if entries, _ := os.ReadDir(w.opt.Dir); len(entries) != 0 {
		t.Errorf("left behind: %v", entries)
	}
}

// A digest that is late keeps segments on disk, within a bound, and then is
// given up; the stream does not wait for it.
func TestDigestTooLate(t *testing.T) {
	w := newWorld(t)
	w.digester.stop()
	late := w.begin(Spec{Argv: testproc.Argv("burst", "1000000")})
	await[Exited](w, late)
	r := w.Output(late, Stdout)
	testproc.Eventually(patience, r.Ended)
	if got := w.digester.late.Load(); got != 1000000-262144 {
		t.Errorf("%d bytes are late", got)
	}
	flood := w.begin(Spec{Argv: testproc.Argv("burst", fmt.Sprint(maxLate+1000000))})
	w.wantDigests(flood, "", digestOf(""))
	if got := w.digester.late.Load(); got != 1000000-262144 {
		t.Errorf("%d bytes are late after one was given up", got)
	}
	w.digester.start()
	w.wantDigests(late, digestOf(linesAt(0, 1000000)), digestOf(""))
	if got := w.digester.late.Load(); got != 0 {
		t.Errorf("%d bytes are late when all are hashed", got)
	}
}

// A forgotten process leaves no file and nothing late, hashed or not.
func TestForgottenDigest(t *testing.T) {
	w := newWorld(t)
	w.digester.stop()
	h := w.begin(Spec{Argv: testproc.Argv("burst", "1000000")})
	testproc.Eventually(patience, w.Output(h, Stdout).Ended)
	w.Forget(h)
	w.digester.start()
	w.wantDigests(w.begin(sh("echo later")), digestOf("later\n"), digestOf("")) // the queue was served
	if late := w.digester.late.Load(); late != 0 || exists(w.opt.Dir+"/"+h) {
		t.Errorf("%d bytes late", late)
	}
}

// After SIGKILL of the agent the digest goes on where it was, also if what it
// has read is dropped; where bytes may be lost there is none.
func TestDigestAfterSIGKILL(t *testing.T) {
	w := newWorld(t)
	a := w.newAgent()
	file := t.TempDir() + "/go"
	until := "while ! test -e " + file + "; do sleep .01; done; "
	lines := testproc.Argv("burst", "1000000")
	short := a.start(sh("echo before; " + until + "echo after"))
	long := a.start(sh(strings.Join(lines, " ") + "; " + until + strings.Join(lines, " ")))
	silent := a.start(sh(until + "echo after; echo error >&2"))
	terminal := a.start(onPTY(sh("trap '' HUP; echo before; " + until)))
	w.awaitRing(short, 7)
	w.awaitRing(terminal, 8)
	w.awaitRing(long, 1000000)
	a.kill()
	for _, p := range []Adoptee{short, long, silent, terminal} {
		w.Adopt(p)
	}
	if _, err := os.Create(file); err != nil {
		t.Fatal(err)
	}
	w.wantDigests(short.Handle, digestOf("before\nafter\n"), digestOf(""))
	w.wantDigests(long.Handle, digestOf(linesAt(0, 1000000)+linesAt(0, 1000000)), digestOf(""))
	w.wantDigests(silent.Handle, digestOf("after\n"), digestOf("error\n"))
	w.wantDigests(terminal.Handle, "", "")
}
