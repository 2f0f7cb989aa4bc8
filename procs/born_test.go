package procs

import (
	"bytes"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"supervisor/internal/testproc"
)

// A process whose start nobody recorded is found after a SIGKILL of the agent
// by its handle alone, whatever it has done to its streams; nothing else is, and
// nothing of another boot.
func TestBornIsFoundByItsHandle(t *testing.T) {
	w := newWorld(t)
	a := w.newAgent()
	born := []Adoptee{
		a.start(sh("sleep 60 & exec sleep 60")),
		a.start(sh("exec >&-; exec sleep 60")),
		a.start(Spec{Argv: []string{"/bin/sleep", "60"}, StdinNull: true}),
	}
	gone := a.start(sh("exit 0"))
	unannounced := a.start(sh("exec sleep 60"))
	a.kill()
	testproc.Eventually(patience, func() bool { return !alive(gone.PID) })
	if err := os.Remove(w.opt.Dir + "/" + unannounced.Handle + bornSuffix); err != nil {
		t.Fatal(err)
	}
	for _, want := range born {
		if got, found := w.Born(want.Handle); !found || got != want {
			t.Errorf("found %+v (%v), want %+v", got, found, want)
		}
	}
	last := born[2]
	link := w.opt.Dir + "/" + last.Handle + bornSuffix
	target, err := os.Readlink(link)
	if err != nil {
		t.Fatal(err)
	}
	relink(t, link, strings.Replace(target, bootID(), "another-boot", 1))
	for _, handle := range []string{last.Handle, gone.Handle, unannounced.Handle, "p_none"} {
		if got, found := w.Born(handle); found {
			t.Errorf("%s: found %+v", handle, got)
		}
	}
	for _, a := range append(born, unannounced) {
		w.endAdopted(a)
	}
}

func relink(t *testing.T, path, target string) {
	t.Helper()
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(target, path); err != nil {
		t.Fatal(err)
	}
}

// endAdopted takes a process over, and ends its group.
func (w *world) endAdopted(a Adoptee) {
	w.t.Helper()
	if got := w.Adopt(a); !got.Found {
		w.t.Errorf("%s: %+v", a.Handle, got)
	}
	if err := w.Signal(a.Handle, unix.SIGKILL, true); err != nil {
		w.t.Error(err)
	}
	await[Exited](w, a.Handle)
}

// Keep names a process that runs under a handle which it is not given.
func TestKeepWarnsOfStrays(t *testing.T) {
	var log bytes.Buffer
	w := newWorld(t, func(o *Options) { o.Log = slog.New(slog.NewTextHandler(&log, nil)) })
	a := w.newAgent()
	kept, stray := a.start(sh("exec sleep 60")), a.start(sh("exec sleep 60"))
	a.kill()
	if err := w.Keep([]string{kept.Handle}); err != nil {
		t.Fatal(err)
	}
	if text := log.String(); strings.Count(text, "\n") != 1 || !strings.Contains(text, fmt.Sprintf("pid=%d", stray.PID)) {
		t.Errorf("it says %q", text)
	}
	w.endAdopted(kept)
	w.endAdopted(stray)
}
