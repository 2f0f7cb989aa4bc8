package main

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// verbs tries every verb of the guest protocol but agent_upgrade, on what only
// that verb can do.
func (t *tester) verbs() {
	t.check("a process tells output and code", t.says())
	t.check("a reader waits for output, a process for input", t.echoes())
	t.check("a process dies of the signal that it is sent", t.signals())
	t.check("a process has a terminal of any size", t.hasTerminal())
	t.check("the journal is read, and its chain holds", t.reads())
	t.check("exec waits for its own child", t.execs())
	t.check("a file is written, appended to, and read in parts", t.files())
	t.check("the connection becomes a terminal", t.becomesTerminal())
}

// complete compares what was answered with the list that the protocol's page
// holds.
func (t *tester) complete() error {
	list, err := os.ReadFile("/verbs")
	if err != nil {
		return err
	}
	var missing []string
	for op := range strings.FieldsSeq(string(list)) {
		if !t.answered[op] {
			missing = append(missing, op)
		}
	}
	if len(missing) > 0 || len(list) == 0 {
		return fmt.Errorf("never tried: %q", missing)
	}
	return nil
}

func (t *tester) says() error {
	h, err := t.start("say", "hello", "7")
	if err != nil {
		return err
	}
	end, err := t.wait(h)
	if err := errors.Join(err, end.as(7, 0, "exited")); err != nil {
		return err
	}
	if out, err := t.ended(h); err != nil || out != "hello\n" {
		return fmt.Errorf("wrote %q, %v", out, err)
	}
	return nil
}

func (t *tester) echoes() error {
	h, err := t.start("echo")
	if err != nil {
		return err
	}
	in := fields{"handle": h, "data": []byte("word\n"), "close_stdin": true}
	if r, err := t.call("proc_stdin", in); err != nil || r.Written != 5 {
		return fmt.Errorf("%d bytes were taken, %v", r.Written, err)
	}
	r, err := t.call("proc_logs", fields{"handle": h, "wait_ms": 60_000})
	if out, _ := base64.StdEncoding.DecodeString(r.Stdout); err != nil || string(out) != "word\n" || r.StdoutOffset != 5 {
		return fmt.Errorf("the reader got %+v, %v", r, err)
	}
	end, err := t.wait(h)
	return errors.Join(err, end.as(0, 0, "exited"))
}

func (t *tester) signals() error {
	h, err := t.start("tick")
	if err != nil {
		return err
	}
	if _, err := t.call("proc_signal", fields{"handle": h, "signal": unix.SIGTERM}); err != nil {
		return err
	}
	end, err := t.wait(h)
	return errors.Join(err, end.as(143, 15, "killed"))
}

func (t *tester) hasTerminal() error {
	r, err := t.call("proc_start", fields{"cmd": []string{self, "tty"}, "pty": true, "cols": 100, "rows": 30})
	if err != nil {
		return err
	}
	if _, err := t.call("proc_resize", fields{"handle": r.Handle, "cols": 120, "rows": 40}); err != nil {
		return err
	}
	if _, err := t.call("proc_stdin", fields{"handle": r.Handle, "data": []byte("word\n")}); err != nil {
		return err
	}
	if out, err := t.ended(r.Handle); err != nil || !strings.Contains(out, "120x40 WORD\r\n") {
		return fmt.Errorf("wrote %q, %v", out, err)
	}
	return nil
}

// reads follows the chain from the first record to the head, as a stranger
// does: see PROTOCOL.md, journal_read.
func (t *tester) reads() error {
	info, err := t.call("journal_info", nil)
	if err != nil {
		return err
	}
	hash := make([]byte, sha256.Size)
	var seq uint64
	for seq < info.HeadSeq {
		r, err := t.call("journal_read", fields{"after_seq": seq, "limit": 20, "raw": true})
		if err != nil {
			return err
		}
		for _, rec := range r.Records {
			seq++
			sum := sha256.Sum256(append(binary.BigEndian.AppendUint64(hash, seq), rec.Raw...))
			hash = sum[:]
			if rec.Seq != seq || rec.Hash != hex.EncodeToString(hash) {
				return fmt.Errorf("record %d of %s is not record %d of the chain", rec.Seq, rec.Kind, seq)
			}
			if seq == info.HeadSeq && rec.Hash != info.HeadHash {
				return errors.New("another head than journal_info told")
			}
		}
	}
	return nil
}

// snapshot reads the newest one in parts.
func (t *tester) snapshot() error {
	var all []byte
	for {
		part, err := t.call("journal_snapshot", fields{"offset": len(all), "limit": 1000})
		if err != nil {
			return err
		}
		if all = append(all, part.Data...); part.Seq == 0 || len(part.Data) == 0 || len(all) > part.Size {
			return fmt.Errorf("%d bytes of the snapshot of %d, %d in this part", len(all), part.Size, len(part.Data))
		} else if len(all) == part.Size {
			return nil
		}
	}
}

func (t *tester) execs() error {
	r, err := t.call("exec", fields{"cmd": []string{self, "say", "hello", "7"}})
	if err == nil && (r.Stdout != "hello\n" || r.ExitCode != 7) {
		err = fmt.Errorf("answered %+v", r)
	}
	return err
}

func (t *tester) files() error {
	const path = "/tmp/file"
	for i, half := range [][]byte{[]byte("one\n"), []byte("two\n")} {
		if _, err := t.call("write_file", fields{"path": path, "data": half, "mode": 0o640, "append": i > 0}); err != nil {
			return err
		}
	}
	if r, err := t.call("stat_file", fields{"path": path}); err != nil || r.Size != 8 || r.Mode != 0o640 || r.IsDir {
		return fmt.Errorf("stat_file answered %+v, %v", r, err)
	}
	var all []byte
	for {
		r, err := t.call("read_file", fields{"path": path, "offset": len(all), "limit": 5})
		if err != nil {
			return err
		}
		if all = append(all, r.Data...); r.EOF {
			break
		} else if len(r.Data) != 5 {
			return fmt.Errorf("read_file answered %+v", r)
		}
	}
	if !bytes.Equal(all, []byte("one\ntwo\n")) {
		return fmt.Errorf("it holds %q", all)
	}
	return nil
}

func (t *tester) becomesTerminal() error {
	other := tester{answered: t.answered}
	if err := other.dial(); err != nil {
		return err
	}
	defer other.conn.Close()
	if _, err := other.call("pty", fields{"cmd": []string{self, "tty"}}); err != nil {
		return err
	}
	if _, err := io.WriteString(other.conn, "word\n"); err != nil {
		return err
	}
	if all, err := io.ReadAll(other.in); err != nil || !strings.Contains(string(all), "80x24 WORD\r\n") {
		return fmt.Errorf("wrote %q, %v", all, err)
	}
	return nil
}
