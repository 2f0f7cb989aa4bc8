package engine

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"supervisor/journal"
	"supervisor/statemachine"
	"supervisor/wire"
)

var writeGolden = flag.String("write-golden", "", "write a journal of this version to testdata/NAME.db.gz and what it derives to NAME.txt")

// TestGoldenJournals: every journal in testdata, written by the version that
// its name tells, is opened, verified and folded for ever, from its first record
// and from its snapshot, and derives what it derived then. A release adds one
// with -write-golden; none is ever changed.
func TestGoldenJournals(t *testing.T) {
	if *writeGolden != "" {
		writeGoldenJournal(t, *writeGolden)
	}
	files, err := filepath.Glob("testdata/*.db.gz")
	if err != nil || len(files) == 0 {
		t.Fatal("no journal", err)
	}
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			path := unzip(t, file)
			whole, fromSnapshot := derive(t, path, false), derive(t, path, true)
			if !bytes.Equal(whole.EncodeSnapshot(), fromSnapshot.EncodeSnapshot()) {
				t.Error("snapshot and rest are not all")
			}
			want, err := os.ReadFile(strings.TrimSuffix(file, ".db.gz") + ".txt")
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(want), show(whole)); diff != "" {
				t.Error(diff)
			}
			goOn(t, path)
		})
	}
}

// goOn has an agent of this version take the journal over: all that ran on
// that machine is lost, and what this version does not know stays in the file.
func goOn(t *testing.T, path string) {
	a := newAgent(t, func(c *Config) { c.StateDir, c.Retain = filepath.Dir(path), 1<<62 })
	for _, p := range a.List().Procs {
		if p.Running || p.Reason == "" {
			t.Errorf("%+v", p)
		}
	}
	a.wait(a.sh("exit 0"))
	a.close()
	if got := a.records("later.kind"); len(got) != 1 {
		t.Errorf("%d records of an unknown kind", len(got))
	}
	if !derive(t, path, true).Partial() {
		t.Error("the snapshot does not say that it is partial")
	}
	a.open()
}

// derive folds a journal, and checks it after every record.
func derive(t *testing.T, path string, fromSnapshot bool) *statemachine.Registry {
	t.Helper()
	r, err := journal.OpenReadOnly(path)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	derived := statemachine.NewRegistry()
	if fromSnapshot {
		s, found, err := r.Snapshot()
		if err == nil && !found {
			err = errors.New("no snapshot")
		}
		if err == nil {
			derived, err = statemachine.DecodeSnapshot(s.Blob)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	var d statemachine.Decoder
	if err := r.Verify(func(stored journal.Record) error {
		if stored.Seq <= derived.Seq() {
			return nil
		}
		return errors.Join(fold(derived, &d, []journal.Record{stored}), derived.Check())
	}); err != nil {
		t.Fatal(err)
	}
	return derived
}

// show is what a registry means to its readers.
func show(r *statemachine.Registry) string {
	var b strings.Builder
	fmt.Fprintf(&b, "seq %d partial %v\n", r.Seq(), r.Partial())
	for _, p := range r.Processes() {
		fmt.Fprintf(&b, "%s %s requested at %d, cmd %q, pid %d\n", p.Handle, p.State, p.RequestedSeq, p.Spec.Cmd, p.Started.PID)
		fmt.Fprintf(&b, "  sent %x, stdin closed %v, orphaned %v, terminal %v %dx%d, key %v\n",
			p.Sent, p.StdinClosed, p.Orphaned, p.Spec.PTY, p.Spec.Cols, p.Spec.Rows, p.Spec.Idem != "")
		fmt.Fprintf(&b, "  exit %d signal %d %q timed out %v at %d\n", p.Exit.ExitCode, p.Exit.Signal, p.Exit.Reason, p.Exit.TimedOut, p.ExitedSeq)
		fmt.Fprintf(&b, "  stdout %d %q %s\n", p.Output.StdoutLen, p.Output.StdoutTail, p.Output.StdoutSHA256)
		fmt.Fprintf(&b, "  stderr %d %q %s\n", p.Output.StderrLen, p.Output.StderrTail, p.Output.StderrSHA256)
	}
	return b.String()
}

// writeGoldenJournal lives a life in which most kinds occur, and adds a record
// of a kind that this version does not know.
func writeGoldenJournal(t *testing.T, name string) {
	a := newAgent(t, func(c *Config) { c.MaxProcs, c.TailBytes = 6, 16 })
	ctx := context.Background()
	for _, code := range []int{0, 3} { // the first will make room
		a.wait(a.start(wire.StartRequest{Cmd: []string{"sh", "-c", fmt.Sprintf("echo bye; exit %d", code)}, Idem: fmt.Sprint(code)}))
	}
	_, err := a.Start(ctx, caller("proc_start"), wire.StartRequest{Cmd: []string{"/none"}})
	wantCode(t, err, wire.CodeSpawnFailed)
	a.wait(a.start(wire.StartRequest{Cmd: []string{"sh", "-c", "echo late >&2; sleep 60"}, TimeoutMS: 100, Stdin: "null"}))
	reads := a.sh("cat; sleep 60")
	if _, err := a.Stdin(ctx, caller("proc_stdin"), wire.StdinRequest{Handle: reads, Data: []byte("twenty bytes of text"), CloseStdin: true}); err != nil {
		t.Fatal(err)
	}
	a.awaitOutput(reads, "twenty bytes of text")
	a.signal(reads, 15)
	a.wait(reads)
	terminal := a.start(wire.StartRequest{Cmd: []string{"sleep", "60"}, PTY: true})
	if _, err := a.Resize(ctx, caller("proc_resize"), wire.ResizeRequest{Handle: terminal, Cols: 100, Rows: 30}); err != nil {
		t.Fatal(err)
	}
	a.sh("sleep 60; echo never")
	a.wait(a.sh("exit 9"))
	a.close()
	j, err := journal.Open(a.path(), journal.Options{})
	if err != nil {
		t.Fatal(err)
	}
	var enc statemachine.Encoder
	later := &statemachine.Unknown{Name: "later.kind", Data: []byte{0x81, 0xa1, 'x', 0x01}}
	_, err = j.Append(enc.Encode(&statemachine.Record{Seq: j.Head().Seq + 1, Handle: reads, Event: later}))
	if err := errors.Join(err, j.Close()); err != nil {
		t.Fatal(err)
	}
	base := filepath.Join("testdata", name)
	zip(t, a.path(), base+".db.gz")
	if err := os.WriteFile(base+".txt", []byte(show(derive(t, a.path(), false))), 0o644); err != nil {
		t.Fatal(err)
	}
	a.open()
}

func zip(t *testing.T, from, to string) {
	t.Helper()
	data, err := os.ReadFile(from)
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	w, err := gzip.NewWriterLevel(&b, gzip.BestCompression)
	if err == nil {
		_, err = w.Write(data)
	}
	if err := errors.Join(err, w.Close(), os.WriteFile(to, b.Bytes(), 0o644)); err != nil {
		t.Fatal(err)
	}
}

// unzip puts a journal into a state directory of its own.
func unzip(t *testing.T, file string) (path string) {
	t.Helper()
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	r, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	data, err := io.ReadAll(r)
	path = filepath.Join(t.TempDir(), "journal.db")
	if err := errors.Join(err, os.WriteFile(path, data, 0o600)); err != nil {
		t.Fatal(err)
	}
	return path
}
