package main

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
)

// savedLog is a file that is said to hold a whole stream.
type savedLog struct {
	size   int64
	digest string
	end    []byte // its last bytes
}

// verifyLog compares a saved log with what the journal knows of the stream.
func (p *program) verifyLog(src source, file, handle, name string) error {
	var of stream
	if err := of.Set(name); err != nil {
		return fmt.Errorf("%q: %w", name, err)
	}
	output, err := lastOutput(src, handle)
	if err != nil {
		return err
	}
	want := streamJSON{output.StdoutLen, output.StdoutSHA256, output.StdoutTail}
	if of == "stderr" {
		want = streamJSON{output.StderrLen, output.StderrSHA256, output.StderrTail}
	}
	saved, err := readLog(file, len(want.Tail))
	if err == nil {
		err = saved.check(&want)
	}
	if err != nil {
		return fmt.Errorf("%s is not shown to be the %s of %s: %w", file, of, handle, err)
	}
	_, err = fmt.Fprintf(p.out, "ok: %s is the whole %s of %s: %s, SHA-256 %s\n", printable(file), of, handle, bytesOf(saved.size), saved.digest)
	return err
}

// readLog reads a log once, in bounded memory.
func readLog(name string, end int) (*savedLog, error) {
	file, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	sum, last := sha256.New(), tail{most: end}
	n, err := io.Copy(io.MultiWriter(sum, &last), file)
	if err != nil {
		return nil, err
	}
	return &savedLog{n, hex.EncodeToString(sum.Sum(nil)), last.bytes}, nil
}

// tail keeps the last bytes written to it.
type tail struct {
	most  int
	bytes []byte
}

// Write implements io.Writer.
func (t *tail) Write(b []byte) (int, error) {
	t.bytes = append(t.bytes, b[max(0, len(b)-t.most):]...)
	t.bytes = t.bytes[max(0, len(t.bytes)-t.most):]
	return len(b), nil
}

// check compares a log with a stream. The digest alone proves that it is
// whole; without one, what can be compared is.
func (s *savedLog) check(want *streamJSON) error {
	switch {
	case s.size != want.Len:
		return fmt.Errorf("it holds %s, the process wrote %s", bytesOf(s.size), bytesOf(want.Len))
	case want.SHA256 != "" && s.digest != want.SHA256:
		return fmt.Errorf("its SHA-256 is %s, that of the stream is %s", s.digest, want.SHA256)
	case want.SHA256 != "":
		return nil
	case !bytes.Equal(s.end, want.Tail):
		return fmt.Errorf("its last %s are others than the process wrote", bytesOf(int64(len(want.Tail))))
	case want.Len == int64(len(want.Tail)):
		return nil // the journal holds all of it
	}
	return errors.New("the journal holds no digest of this stream, for it could not be known after a crash of the agent, or the agent kept none; " +
		"the length and the last " + bytesOf(int64(len(want.Tail))) + " are right")
}
