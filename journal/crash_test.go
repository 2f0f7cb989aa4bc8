package journal

import (
	"bufio"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// The test binary is also the process that crashes.
func TestMain(m *testing.M) {
	switch path := os.Getenv("JOURNAL_TEST_PATH"); os.Getenv("JOURNAL_TEST_CHILD") {
	case "append":
		appendForEver(path)
	case "sync-error":
		meetSyncError(path)
	default:
		os.Exit(runTests(m))
	}
}

// runTests fails if the tests leave a descriptor open.
func runTests(m *testing.M) int {
	r, w, err := os.Pipe() // so that the runtime's own poller is among those counted
	if err != nil {
		panic(err)
	}
	r.Close()
	w.Close()
	before := descriptors()
	code := m.Run()
	if after := descriptors(); after > before && flag.Lookup("test.fuzz").Value.String() == "" {
		fmt.Printf("descriptors: %d before the tests, %d after\n", before, after)
		return 1
	}
	return code
}

func descriptors() int {
	entries, _ := os.ReadDir("/proc/self/fd")
	return len(entries)
}

func child(t *testing.T, role, path string, wrapper ...string) *exec.Cmd {
	t.Helper()
	args := append(wrapper, os.Args[0])
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Env = append(os.Environ(), "JOURNAL_TEST_CHILD="+role, "JOURNAL_TEST_PATH="+path)
	cmd.Stderr = os.Stderr
	return cmd
}

func crashOptions() Options { return Options{MaxBytes: 200_000, SegmentRecords: 100} }

// appendForEver says on stdout what was acknowledged, until it is killed.
func appendForEver(path string) {
	j, err := Open(path, crashOptions())
	if err != nil {
		fmt.Println("error", err)
		os.Exit(1)
	}
	var clients sync.WaitGroup
	for c := range 4 {
		clients.Go(func() {
			for i := 0; ; i++ {
				text := fmt.Sprintf("%d-%d-%d", os.Getpid(), c, i)
				seq, err := j.Append([]byte(text), payload(i, 150))
				if err != nil {
					fmt.Println("error", err)
					os.Exit(1)
				}
				os.Stdout.WriteString(fmt.Sprintf("ack %d %s\n", seq, text))
				if head := j.Head(); c == 0 && i%100 == 99 {
					if err := j.WriteSnapshot(Snapshot{Seq: head.Seq, Hash: head.Hash, Blob: make([]byte, 10_000)}); err != nil {
						fmt.Println("error", err)
					}
				}
			}
		})
	}
	clients.Wait()
}

// Whatever was acknowledged before a SIGKILL is there after it, round after round on the same file.
func TestKilledWhileAppending(t *testing.T) {
	path := place(t)
	for round := range 20 {
		acked := killWhileAppending(t, path)
		j, err := Open(path, crashOptions())
		if err != nil {
			t.Fatalf("round %d: %v", round, err)
		}
		checkAcked(t, j, acked)
		if err := j.Verify(nil); err != nil {
			t.Errorf("round %d: %v", round, err)
		}
		mustClose(t, j)
	}
	t.Logf("head %v", verifyFile(t, path))
}

// killWhileAppending runs the child for a random time and returns what it acknowledged, by sequence number.
func killWhileAppending(t *testing.T, path string) map[uint64]string {
	t.Helper()
	cmd := child(t, "append", path)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	acked := make(map[uint64]string)
	for lines := bufio.NewReader(out); ; {
		line, err := lines.ReadString('\n')
		if err == io.EOF {
			break // a line without an end was not acknowledged
		}
		var seq uint64
		var text string
		if _, err := fmt.Sscanf(line, "ack %d %s\n", &seq, &text); err != nil {
			t.Errorf("the child says %q", line)
		}
		if acked[seq] = text; len(acked) == 1 {
			time.AfterFunc(rand.N(60*time.Millisecond), func() { cmd.Process.Kill() })
		}
	}
	cmd.Wait()
	if len(acked) == 0 {
		t.Fatal("the child acknowledged nothing")
	}
	return acked
}

func checkAcked(t *testing.T, j *Journal, acked map[uint64]string) {
	t.Helper()
	stored := make(map[uint64]string)
	records, err := j.Read(0, 0, 0)
	if err != nil {
		t.Error(err)
	}
	for _, r := range records {
		stored[r.Seq] = string(r.Payload)
	}
	for seq, text := range acked {
		if seq >= j.FirstSeq() && stored[seq] != text {
			t.Errorf("record %d was acknowledged as %q and holds %q", seq, text, stored[seq])
		}
	}
}

// meetSyncError appends while strace makes one fdatasync fail, and reports.
func meetSyncError(path string) {
	j, err := Open(path, Options{})
	if err != nil {
		fmt.Println("open:", err)
		os.Exit(1)
	}
	good := 0
	for ; err == nil; good++ {
		_, err = j.Append([]byte("x"))
	}
	head := j.Head()
	_, again := j.Append([]byte("x"))
	records, readErr := j.Read(0, 0, 0)
	fmt.Println(good-1, head.Seq, len(records), errors.Is(err, ErrFailed), errors.Is(again, ErrFailed), j.Err() != nil, readErr)
	fmt.Println(err)
}

// After a sync that failed nothing is tried again, although the next sync would succeed: what it would say is not to be
// believed. Reading goes on, up to what is known to be durable.
func TestFailedSyncIsFinal(t *testing.T) {
	if _, err := exec.LookPath("strace"); err != nil {
		t.Skip("needs strace to make a sync fail")
	}
	for when := 3; when < 9; when++ { // of one thread: strace counts for each; odd or even, pages or meta page
		path := place(t)
		mustClose(t, open(t, path, Options{}))
		log := filepath.Join(t.TempDir(), "strace")
		out, err := child(t, "sync-error", path, "strace", "-f", "-o", log, "-e", "trace=fdatasync",
			"-e", fmt.Sprintf("inject=fdatasync:error=EIO:when=%d", when)).Output()
		if err != nil {
			t.Skipf("strace cannot trace here: %v", err)
		}
		report, message, _ := strings.Cut(string(out), "\n")
		var good uint64
		fmt.Sscan(report, &good)
		if want := fmt.Sprint(good, good, good, true, true, true, nil); report != want || !strings.HasPrefix(message, path+": ") {
			t.Errorf("sync %d failed, and the child reports %q", when, out)
		}
		trace, _ := os.ReadFile(log)
		syncs := regexp.MustCompile(`fdatasync.* = .*`).FindAllString(string(trace), -1)
		if last := syncs[len(syncs)-1]; !strings.Contains(last, "INJECTED") {
			t.Errorf("after the failed sync: %s", last)
		}
		if head := verifyFile(t, path); head.Seq != good && head.Seq != good+1 {
			t.Errorf("head %d, acknowledged were %d", head.Seq, good)
		}
	}
}

// A write that fails for another reason than room is final as well.
func TestFailedWriteIsFinal(t *testing.T) {
	for _, mode := range []SyncMode{Always, Batch, Off} {
		t.Run(mode.String(), func(t *testing.T) {
			path := place(t)
			j, err := Open(path, Options{Sync: mode})
			if err != nil {
				t.Fatal(err)
			}
			j.file.Close() // writes fail from here on; the mapping stays
			_, err = j.Append([]byte("x"))
			if mode == Always {
				wantError(t, err, path, ErrFailed)
			}
			waitFor(t, func() bool { return j.Err() != nil })
			_, err = j.Append([]byte("x"))
			wantError(t, err, path, ErrFailed)
			wantError(t, j.WriteSnapshot(Snapshot{}), path, ErrFailed)
			if j.Head() != (Head{}) {
				t.Error("the head moved")
			}
			if err := j.Close(); err == nil {
				t.Error("Close says nothing")
			}
			verifyFile(t, path)
		})
	}
}

// smallDisk mounts a file system of the given size in bytes.
func smallDisk(t *testing.T, size int) string {
	t.Helper()
	dir := t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, fmt.Sprintf("size=%d", size)); err != nil {
		t.Skipf("cannot mount a small file system: %v", err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	return dir
}

// A full disk is an answer, changes nothing, and is over when there is room again.
func TestFullDisk(t *testing.T) {
	dir := smallDisk(t, 4<<20)
	path, ballast := filepath.Join(dir, "journal.db"), filepath.Join(dir, "ballast")
	if err := os.WriteFile(ballast, make([]byte, 1<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	j := open(t, path, Options{})
	var err error
	for err == nil {
		_, err = j.Append(payload(1, 2000), payload(2, 2000))
	}
	wantError(t, err, path, ErrFull)
	for err = nil; err == nil; { // free pages of the file have room for a little more
		_, err = j.Append([]byte("x"))
	}
	head := j.Head()
	for range 10 {
		_, err := j.Append([]byte("x"))
		wantError(t, err, path, ErrFull)
	}
	wantError(t, j.WriteSnapshot(Snapshot{Seq: head.Seq, Hash: head.Hash, Blob: make([]byte, 3<<20)}), path, ErrFull)
	if err := errors.Join(j.Err(), j.Verify(nil)); err != nil || j.Head() != head {
		t.Errorf("%v, head %v; was %v", err, j.Head(), head)
	}
	if err := os.Remove(ballast); err != nil {
		t.Fatal(err)
	}
	if first := mustAppend(t, j, []byte("room")); first != head.Seq+1 {
		t.Errorf("went on with %d after %d", first, head.Seq)
	}
}

// In mode Batch the records that were accepted before the disk was found full are committed when there is room again.
func TestFullDiskInModeBatch(t *testing.T) {
	dir := smallDisk(t, 4<<20)
	path, ballast := filepath.Join(dir, "journal.db"), filepath.Join(dir, "ballast")
	if err := os.WriteFile(ballast, make([]byte, 2<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	j := open(t, path, Options{Sync: Batch})
	last, err := uint64(0), error(nil)
	for err == nil {
		var first uint64
		if first, err = j.Append(payload(int(last+1), 2000)); err != nil {
			break
		}
		if last++; first != last {
			t.Fatalf("record %d got sequence %d", last, first)
		}
		// Not faster than the disk by more than will fit later.
		waitFor(t, func() bool { return j.Head().Seq+100 > last || j.full.Load() })
	}
	wantError(t, err, path, ErrFull)
	wantError(t, j.WriteSnapshot(Snapshot{Seq: last}), path, ErrFull) // does not wait behind the records
	if err := os.Remove(ballast); err != nil {
		t.Fatal(err)
	}
	waitFor(t, func() bool { return j.Head().Seq == last })
	if first := mustAppend(t, j, []byte("room")); first != last+1 {
		t.Errorf("went on with %d after %d", first, last)
	}
}

// What Append accepted and a full disk does not take until Close is lost together with all that was accepted after it: a
// record is never stored without the ones before it.
func TestFullDiskAtCloseLosesTheEndOnly(t *testing.T) {
	for _, mode := range []SyncMode{Batch, Off} {
		path := filepath.Join(smallDisk(t, 4<<20), "journal.db")
		j, err := Open(path, Options{Sync: mode})
		if err != nil {
			t.Fatal(err)
		}
		mustAppend(t, j, []byte("before"))
		waitFor(t, func() bool { return j.Head().Seq == 1 })
		mustAppend(t, j, make([]byte, maxBatchBytes)) // fits no disk of this size, and makes a batch of its own
		mustAppend(t, j, []byte("after"))
		wantError(t, j.Close(), path, ErrFull)
		if head := verifyFile(t, path); head.Seq != 1 {
			t.Errorf("%v: the head is %v", mode, head)
		}
	}
}

// Nothing is acknowledged that goes to a file without a name.
func TestDeletedFile(t *testing.T) {
	path := place(t)
	j, err := Open(path, Options{})
	if err != nil {
		t.Fatal(err)
	}
	mustAppend(t, j, []byte("x"))
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	_, err = j.Append([]byte("y"))
	wantError(t, err, path, ErrFailed)
	if err := errors.Join(j.Verify(nil), j.Close()); err != nil || j.Head().Seq != 1 {
		t.Errorf("head %v, %v", j.Head(), err)
	}
}
