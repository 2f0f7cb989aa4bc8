package statemachine

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "rewrite the transcripts in testdata/decide from what Decide does now")

// TestDecide plays the transcripts of testdata/decide. A line that starts with
// "> " is a command, one with "#" says why it is there; what follows from a
// command stands under it: records as "+ kind handle data", effects as "! what
// handle", a rejection, or a process as "show" prints it.
func TestDecide(t *testing.T) {
	files, err := filepath.Glob("testdata/decide/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatal("no transcripts", err)
	}
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".txt")
		t.Run(name, func(t *testing.T) {
			want, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			got := transcribe(t, string(want))
			if *update {
				if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
				return
			}
			if diff := cmp.Diff(strings.Split(string(want), "\n"), strings.Split(got, "\n")); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// transcribe plays a transcript's commands and writes it anew.
func transcribe(t testing.TB, text string) string {
	w := newWorld(Limits{MaxProcs: 64, RetainNS: 600e9})
	var out strings.Builder
	for line := range strings.Lines(text) {
		command, isCommand := strings.CutPrefix(strings.TrimSuffix(line, "\n"), "> ")
		if !isCommand {
			if strings.HasPrefix(line, "#") || line == "\n" {
				out.WriteString(line)
			}
			continue
		}
		out.WriteString(line)
		out.WriteString(playLine(t, w, parseLine(t, command)))
	}
	return out.String()
}

// args are a transcript line's words: its verb, its handle, and the rest as
// name=value, or as a name alone.
type args struct {
	t      testing.TB
	verb   string
	handle string
	named  map[string]string
}

func parseLine(t testing.TB, line string) args {
	words := strings.Fields(line)
	a := args{t: t, verb: words[0], named: map[string]string{}}
	for _, w := range words[1:] {
		name, value, hasValue := strings.Cut(w, "=")
		if a.handle == "" && !hasValue {
			a.handle = w
			continue
		}
		a.named[name] = value
	}
	return a
}

func (a args) has(name string) bool {
	_, ok := a.named[name]
	return ok
}

func (a args) int(name string) int {
	if !a.has(name) {
		return 0
	}
	n, err := strconv.Atoi(a.named[name])
	if err != nil {
		a.t.Fatalf("%s: %v", a.verb, err)
	}
	return n
}

func (a args) duration(s string) int64 {
	d, err := time.ParseDuration(s)
	if err != nil {
		a.t.Fatalf("%s: %v", a.verb, err)
	}
	return int64(d)
}

// playLine plays one line: about the world itself, or a command to it.
func playLine(t testing.TB, w *world, a args) string {
	switch a.verb {
	case "limits":
		w.limits = Limits{MaxProcs: a.int("procs"), RetainNS: a.duration(a.named["retain"])}
		return ""
	case "pass":
		w.pass(a.duration(a.handle))
		return ""
	case "reboot":
		w.now.Boot[0]++
		w.now.Mono = 2e9
		return ""
	case "due":
		ns, ok := w.live.NextTick(w.limits, w.now)
		return fmt.Sprintf("  %v %v\n", ok, time.Duration(ns))
	case "show":
		return show(w)
	}
	d, err := w.command(a.command())
	if err != nil {
		t.Fatalf("%s %s: %v", a.verb, a.handle, err)
	}
	return describe(d)
}

// command reads a command's line.
func (a args) command() Command {
	if c := a.request(); c != nil {
		return c
	}
	switch a.verb {
	case "tick":
		return Tick{}
	case "spawned":
		return Spawned{a.handle, Started{PID: a.int("pid"), StartTicks: 100}}
	case "spawn-failed":
		return SpawnFailed{a.handle, "no such file"}
	case "written":
		return Written{a.handle, int64(a.int("bytes")), a.has("closed")}
	case "sized":
		return Sized{a.handle, a.int("cols"), a.int("rows")}
	case "ended":
		return Ended{Handle: a.handle, Known: !a.has("unknown"), Code: a.int("code"), Signal: a.int("signal"), OOM: a.has("oom")}
	case "streams-ended":
		tail := a.named["tail"]
		return StreamsEnded{a.handle, Drained{StdoutLen: int64(len(tail)), StdoutTail: []byte(tail)}}
	case "found":
		return Found{a.handle, Orphaned{Stdout: a.has("stdout"), Stderr: a.has("stderr")}}
	case "missing":
		return Missing{a.handle}
	case "verb":
		return Note{a.handle, &Verb{Op: a.named["op"], OK: true, Count: 1}}
	}
	a.t.Fatalf("no command %q", a.verb)
	return nil
}

// request reads a command that may be rejected; nil if it is another.
func (a args) request() Command {
	switch a.verb {
	case "start":
		return Start{a.handle, Spec{
			Cmd: []string{"cat"}, PTY: a.has("pty"), TimeoutMS: int64(a.int("timeout_ms")), StdinNull: a.has("stdin_null"),
			Idem: a.named["idem"], IdemArgs: a.named["args"],
		}}
	case "signal":
		return Signal{a.handle, a.int("n"), a.has("group")}
	case "kill":
		return Kill{a.handle, a.has("leftovers")}
	case "write":
		return Write{a.handle}
	case "resize":
		return Resize{a.handle, a.int("cols"), a.int("rows")}
	}
	return nil
}

// describe writes what follows from a command, a line each.
func describe(d Decision) string {
	var out strings.Builder
	if d.Err != nil {
		fmt.Fprintf(&out, "  rejected: %v\n", d.Err)
	}
	if d.Same != nil {
		fmt.Fprintf(&out, "  same as %s pid=%d\n", d.Same.Handle, d.Same.PID)
	}
	for _, e := range d.Events {
		j := printer{dst: []byte("{")}
		e.Event.fields(&j)
		fmt.Fprintf(&out, "  + %s %s %s}\n", e.Event.Kind(), e.Handle, j.dst)
	}
	for _, e := range d.Effects {
		fmt.Fprintf(&out, "  ! %s\n", strings.TrimPrefix(fmt.Sprintf("%T %+v", e, e), "statemachine."))
	}
	if out.Len() == 0 {
		return "  nothing\n"
	}
	return out.String()
}

// show lists the registry.
func show(w *world) string {
	var out strings.Builder
	for _, p := range w.live.Processes() {
		fmt.Fprintf(&out, "  = %s %s", p.Handle, p.State)
		if p.State.Ended() {
			fmt.Fprintf(&out, " code=%d signal=%d timed_out=%v reason=%s", p.Exit.ExitCode, p.Exit.Signal, p.Exit.TimedOut, p.Exit.Reason)
		}
		if p.Spec.PTY {
			fmt.Fprintf(&out, " %dx%d", p.Spec.Cols, p.Spec.Rows)
		}
		if p.Orphaned {
			out.WriteString(" orphaned")
		}
		if p.StdinClosed {
			out.WriteString(" stdin closed")
		}
		out.WriteString("\n")
	}
	if out.Len() == 0 {
		return "  empty\n"
	}
	return out.String()
}

// snapshotsOf gives the registry after each command of a transcript.
func snapshotsOf(t testing.TB, name string) [][]byte {
	text, err := os.ReadFile("testdata/decide/" + name + ".txt")
	if err != nil {
		t.Fatal(err)
	}
	var all [][]byte
	w := newWorld(Limits{MaxProcs: 64, RetainNS: 600e9})
	for line := range strings.Lines(string(text)) {
		if command, ok := strings.CutPrefix(strings.TrimSpace(line), "> "); ok {
			playLine(t, w, parseLine(t, command))
			all = append(all, w.live.EncodeSnapshot())
		}
	}
	return all
}
