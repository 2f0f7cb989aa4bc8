package main

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os/exec"
	"strings"
	"testing"

	"supervisor/journal"
)

// verifyRaw is the verifier that the help text asks for. It returns the first
// and the last sequence number whose payload it saw, and the head's hash.
func verifyRaw(lines string) (first, last uint64, head string, err error) {
	var previous []byte
	for line := range strings.Lines(lines) {
		var r struct {
			Seq     uint64
			Hash    string
			Payload *[]byte
		}
		if err := json.Unmarshal([]byte(line), &r); err != nil {
			return 0, 0, "", err
		}
		if r.Payload == nil {
			previous, err = hex.DecodeString(r.Hash)
			last = r.Seq
			continue
		}
		if previous == nil {
			previous = make([]byte, 32)
		}
		if first == 0 {
			first = r.Seq
		}
		sum := sha256.Sum256(append(binary.BigEndian.AppendUint64(previous, r.Seq), *r.Payload...))
		if hex.EncodeToString(sum[:]) != r.Hash || r.Seq != last+1 {
			return first, last, "", fmt.Errorf("record %d is not the successor of %d", r.Seq, last)
		}
		previous, last, head = sum[:], r.Seq, r.Hash
	}
	return first, last, head, err
}

func TestRawIsWhatAVerifierNeeds(t *testing.T) {
	whole, pruned := place(t), place(t)
	write(t, whole, journal.Options{}, busyDay().payloads())
	writePruned(t, pruned)
	for _, c := range []struct {
		args []string
		last uint64
	}{
		{[]string{whole}, 29},
		{[]string{whole, "--after", "11"}, 29},
		{[]string{pruned}, 406},
		{[]string{pruned, "--after", "350"}, 406},
	} {
		stdout, _, code := invoke(append([]string{"events", "--raw"}, c.args...)...)
		first, last, head, err := verifyRaw(stdout)
		if err != nil || code != exitOK || last != c.last {
			t.Errorf("%v: exit %d, records to %d, %v", c.args, code, last, err)
		}
		if len(c.args) == 3 && fmt.Sprint(first-1) != c.args[2] {
			t.Errorf("%v: the first record is %d", c.args, first)
		}
		if verified, _, _ := invoke("verify", c.args[0]); !strings.HasSuffix(verified, head+"\n") {
			t.Errorf("%v: head %s, but %s", c.args, head, verified)
		}
	}
}

// Where the oldest records were pruned, the link that they left comes first,
// and every retained record after it.
func TestRawStartsAtTheBase(t *testing.T) {
	path := place(t)
	writePruned(t, path)
	src, err := openFile(path)
	if err != nil {
		t.Fatal(err)
	}
	defer src.close()
	oldest, _, err := src.extent()
	if err != nil {
		t.Fatal(err)
	}
	stdout, _, _ := invoke("events", "--raw", path)
	if first, _, _, err := verifyRaw(stdout); err != nil || first != oldest {
		t.Errorf("the first whole record is %d, the oldest is %d, %v", first, oldest, err)
	}
}

// The verifier of docs/verify.py comes to the same head as replay verify, and
// finds an altered record.
func TestIndependentVerifier(t *testing.T) {
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Skip("python3 is not installed")
	}
	verify := func(lines string) (string, error) {
		cmd := exec.Command(python, "../../docs/verify.py")
		cmd.Stdin = strings.NewReader(lines)
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	whole, pruned := place(t), place(t)
	write(t, whole, journal.Options{}, busyDay().payloads())
	writePruned(t, pruned)
	for _, path := range []string{whole, pruned} {
		stdout, _, _ := invoke("events", "--raw", path)
		verified, _, _ := invoke("verify", path)
		if out, err := verify(stdout); err != nil || out != verified {
			t.Errorf("%v: it says %q, replay verify %q", err, out, verified)
		}
		lines := strings.Split(stdout, "\n")
		lines[7] = strings.Replace(lines[7], `"payload":"h`, `"payload":"i`, 1)
		if out, err := verify(strings.Join(lines, "\n")); err == nil || !strings.HasPrefix(out, "record ") {
			t.Errorf("an altered record passed: %q", out)
		}
	}
}

func TestRawShowsAlteredRecords(t *testing.T) {
	path := place(t)
	write(t, path, journal.Options{}, busyDay().payloads())
	stdout, _, _ := invoke("events", "--raw", path)
	lines := strings.Split(stdout, "\n")
	lines[7] = strings.Replace(lines[7], `"payload":"h`, `"payload":"i`, 1)
	if _, last, _, err := verifyRaw(strings.Join(lines, "\n")); err == nil || last != 7 {
		t.Errorf("an altered record 8 passed: %d, %v", last, err)
	}
}
