package engine

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"supervisor/internal/testproc"
	"supervisor/procs"
	"supervisor/statemachine"
	"supervisor/wire"
)

var addHandoff = flag.Bool("add-handoff", false, "store the state of an agent as the sample of this schema, if there is none")

// sampleHandoff is the state as this schema's first image wrote it. Such files
// never change: a later image must read what an earlier one leaves.
const sampleHandoff = "testdata/handoff/schema-1.state"

func sample(t testing.TB) []byte {
	t.Helper()
	b, err := os.ReadFile(sampleHandoff)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// TestSampleHandoffs: every state that an image ever left can be read.
func TestSampleHandoffs(t *testing.T) {
	if *addHandoff {
		writeSample(t)
	}
	files, err := filepath.Glob("testdata/handoff/*.state")
	if err != nil || len(files) == 0 {
		t.Fatalf("%v, %v", files, err)
	}
	for _, file := range files {
		f, err := os.Open(file)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		h, r, err := readHandoff(f)
		if err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		p := h.Processes[0]
		if r.Len() != 2 || r.Get(p.Handle).Spec.Cmd[0] != "cat" || p.Stdin < 3 || p.Output[procs.Stderr] < 3 || p.End != [2]int64{4, 0} {
			t.Errorf("%s: %d processes, the first %+v", file, r.Len(), p)
		}
		if h.Images.To != "2" || h.Gen != 0 || h.BornMono == 0 || h.Listeners[0].Addr != "unix:/run/supervisor/agent.sock" || h.Args[0] != "serve" {
			t.Errorf("%s: %+v", file, h)
		}
	}
}

// writeSample stores the state of an agent with a process that runs and one
// that has ended.
func writeSample(t *testing.T) {
	if _, err := os.Stat(sampleHandoff); err == nil {
		return
	}
	a := newAgent(t)
	ctx := context.Background()
	cat, err := a.Start(ctx, caller("proc_start"), wire.StartRequest{Cmd: []string{"cat"}, Idem: "key"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := a.Stdin(ctx, caller("proc_stdin"), wire.StdinRequest{Handle: cat.Handle, Data: []byte("one\n")}); err != nil {
		t.Fatal(err)
	}
	var echoed wire.LogsReply
	if err := a.Logs(ctx, wire.LogsRequest{Handle: cat.Handle, WaitMS: 10_000}, &echoed); err != nil {
		t.Fatal(err)
	}
	ended, err := a.Start(ctx, caller("proc_start"), wire.StartRequest{Cmd: []string{"/bin/sh", "-c", "echo two; exit 3"}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := a.Wait(ctx, wire.WaitRequest{Handle: ended.Handle}); err != nil {
		t.Fatal(err)
	}
	a.upgrade.images = statemachine.Images{From: "1", To: "2", SHA256: strings.Repeat("0", 64)}
	h := a.handoff(ListenerFD{Addr: "unix:/run/supervisor/agent.sock", FD: 5})
	h.Args, h.Image = []Text{"serve"}, "/usr/sbin/supervisor"
	blob, err := h.encode()
	if err == nil {
		err = os.WriteFile(sampleHandoff, blob, 0o644)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// handoff is the state that the agent would leave now.
func (a *agent) handoff(listeners ...ListenerFD) *handoff {
	a.t.Helper()
	var h *handoff
	var err error
	if asked := a.whileIdle(func() { h, err = a.state(listeners) }); asked != nil || err != nil {
		a.t.Fatal(asked, err)
	}
	return h
}

// A state of a newer schema is refused, and so is one whose parts do not fit
// each other; a field that this image does not know is passed over.
func TestHandoffIsChecked(t *testing.T) {
	for name, c := range map[string]struct{ from, to, says string }{
		"newer":       {`"schema":1`, `"schema":2`, "version 2, this image reads 1"},
		"no schema":   {`"schema":1`, `"x":1`, "version 0"},
		"pid":         {`"PID":`, `"PID":1`, "is not the registry's"},
		"no boot":     {`"boot":"`, `"boot":"x`, "boot"},
		"registry":    {`"reducer":1,"registry":"`, fmt.Sprintf(`"reducer":%d,"registry":"x`, statemachine.ReducerVersion), "not what follows from its records"},
		"snapshot":    {"}\n", "}\nxxxx", "not a snapshot"},
		"type":        {`"gen":0`, `"gen":"0"`, "json"},
		"no JSON":     {`{`, ``, "json|invalid"},
		"new field":   {`"schema":1`, `"schema":1,"later": {"a": [1]}`, ""},
		"its reducer": {`"reducer":1,"registry":"`, `"reducer":99,"registry":"x`, ""},
	} {
		t.Run(name, func(t *testing.T) {
			text := strings.Replace(string(sample(t)), c.from, c.to, 1)
			if name == "its reducer" { // of two fields the last counts
				text = strings.Replace(text, `"registry":"`, `"registry":"x`, 2)
			}
			_, _, err := readHandoff(strings.NewReader(text))
			if c.says == "" {
				if err != nil {
					t.Error(err)
				}
				return
			}
			if err == nil || !anyIn(err.Error(), strings.Split(c.says, "|")) {
				t.Errorf("read with %v", err)
			}
		})
	}
	for _, cut := range []int{0, 1, 100, len(sample(t)) / 2, len(sample(t)) - 1} {
		if _, _, err := readHandoff(bytes.NewReader(sample(t)[:cut])); err == nil {
			t.Errorf("%d bytes are read", cut)
		}
	}
}

func anyIn(s string, words []string) bool {
	for _, w := range words {
		if strings.Contains(s, w) {
			return true
		}
	}
	return false
}

// A state is read as it was written.
func TestHandoffRoundTrip(t *testing.T) {
	fd := rapid.IntRange(-1, 1<<20)
	text := rapid.Custom(func(t *rapid.T) Text { // a path, say
		if rapid.Bool().Draw(t, "utf8") {
			return Text(rapid.String().Draw(t, "text"))
		}
		return Text(rapid.SliceOf(rapid.Byte()).Draw(t, "bytes"))
	})
	process := rapid.Custom(func(t *rapid.T) procs.Carried {
		return procs.Carried{
			Handle: rapid.String().Draw(t, "handle"), PID: rapid.Int().Draw(t, "pid"), StartTicks: rapid.Uint64().Draw(t, "ticks"),
			PTY: rapid.Bool().Draw(t, "pty"), Running: rapid.Bool().Draw(t, "running"), Forgotten: rapid.Bool().Draw(t, "forgotten"),
			ProvenAt: rapid.Uint64().Draw(t, "proven"), MidLine: rapid.Bool().Draw(t, "midline"),
			PidFD: fd.Draw(t, "pidfd"), Stdin: fd.Draw(t, "stdin"), Output: [2]int{fd.Draw(t, "out"), fd.Draw(t, "err")},
			End: [2]int64{rapid.Int64().Draw(t, "end"), rapid.Int64().Draw(t, "end")},
		}
	})
	listener := rapid.Custom(func(t *rapid.T) ListenerFD {
		return ListenerFD{Addr: text.Draw(t, "addr"), FD: fd.Draw(t, "fd")}
	})
	blob := rapid.SliceOfN(rapid.Byte(), 1, 100)
	rapid.Check(t, func(t *rapid.T) {
		h := &handoff{
			Schema: handoffSchema, Args: rapid.SliceOfN(text, 1, 5).Draw(t, "args"), Image: text.Draw(t, "image"),
			Images: statemachine.Images{From: rapid.String().Draw(t, "from"), To: rapid.String().Draw(t, "to")},
			Gen:    rapid.Int().Draw(t, "gen"), Boot: rapid.String().Draw(t, "boot"), SetAside: text.Draw(t, "aside"),
			BornMono: rapid.Int64().Draw(t, "born"), QuietMono: rapid.Int64().Draw(t, "quiet"),
			Snapshot: blob.Draw(t, "snapshot"), Records: rapid.SliceOfN(blob, 1, 5).Draw(t, "records"),
			Reducer: rapid.Int().Draw(t, "reducer"), Registry: rapid.String().Draw(t, "registry"),
			LockFD: fd.Draw(t, "lock"), JournalFD: fd.Draw(t, "journal"),
			Listeners: rapid.SliceOfN(listener, 1, 3).Draw(t, "listeners"), Processes: rapid.SliceOfN(process, 1, 5).Draw(t, "processes"),
		}
		b, err := h.encode()
		if err != nil {
			t.Fatal(err)
		}
		got, err := decodeHandoff(bytes.NewReader(b))
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(h, got, cmp.AllowUnexported(handoff{})); diff != "" {
			t.Error(diff)
		}
	})
}

// FuzzHandoff: no state makes an image panic or take much memory.
func FuzzHandoff(f *testing.F) {
	f.Add(sample(f))
	f.Add([]byte(`{"schema":1,"boot":"a78f46d8-ecec-42ef-8bf0-0e102bf89b69","records":["3/////8="]}` + "\n\xdf\xff\xff\xff\xff"))
	f.Add([]byte(`{"schema":1,"processes":[{},{},{"pid":1}]}` + "\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		var h *handoff
		var r *statemachine.Registry
		var err error
		// An empty object is a whole process, in a list that doubles.
		testproc.AllocatesLike(t, b, 1000, func() { h, r, err = readHandoff(bytes.NewReader(b)) })
		if err == nil && (h == nil || r == nil) {
			t.Error("nothing was read")
		}
	})
}

// The state names exactly the descriptors that are to stay, each of them open.
func TestHandoffDescriptors(t *testing.T) {
	a := newAgent(t)
	if _, err := a.Start(context.Background(), caller("proc_start"), wire.StartRequest{Cmd: []string{"sleep", "60"}, PTY: true}); err != nil {
		t.Fatal(err)
	}
	h := a.handoff(ListenerFD{FD: 0})
	if fds := h.fds(); len(fds) != 2+1+3 { // lock, journal; listener; pidfd, stdin, terminal
		t.Errorf("descriptors %v of %+v", fds, h.Processes)
	}
	for _, fd := range h.fds() {
		if _, err := os.Readlink("/proc/self/fd/" + strconv.Itoa(fd)); err != nil {
			t.Error(err)
		}
	}
}
