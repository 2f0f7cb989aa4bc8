package main

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"fmt"
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
