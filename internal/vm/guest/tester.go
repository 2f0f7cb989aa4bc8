package main

import (
	"bufio"
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/mdlayher/vsock"
)

// patience is how long something may take that is sure to happen.
const patience = 30 * time.Second

// tester speaks to the agent over the loopback of AF_VSOCK, through a dialer
// that is not ours.
type tester struct {
	conn     net.Conn
	in       *bufio.Reader
	answered map[string]bool // the verbs that were answered with ok
}

func (t *tester) check(what string, err error) {
	if err != nil {
		fmt.Printf("FAIL  %s: %v\n", what, err)
		return
	}
	fmt.Println("ok   ", what)
}

func until(holds func() (bool, error)) error {
	for end := time.Now().Add(patience); ; time.Sleep(20 * time.Millisecond) {
		ok, err := holds()
		if ok || err != nil {
			return err
		}
		if time.Now().After(end) {
			return errors.New("it never happened")
		}
	}
}

func (t *tester) dial() error {
	return until(func() (bool, error) {
		conn, err := vsock.Dial(vsock.Local, port, nil)
		if err != nil {
			return false, nil
		}
		t.conn, t.in = conn, bufio.NewReader(conn)
		return true, nil
	})
}

// reply is what the tester reads of any reply, and of a row of proc_list.
type reply struct {
	OK    bool
	Error string

	AgentVersion string `json:"agent_version"`
	ImageSHA256  string `json:"image_sha256"`
	Reaped       int
	Procs        []reply

	Handle    string
	PID       int
	Running   bool
	Drained   bool
	Reason    string
	Signal    int
	ExitCode  int   `json:"exit_code"`
	TimedOut  bool  `json:"timed_out"`
	ExitedAt  int64 `json:"exited_at"`
	StdoutLen int   `json:"stdout_len"`
	Written   int

	Stdout        string
	StdoutOffset  int `json:"stdout_offset"`
	StdoutDropped int `json:"stdout_dropped"`

	Data  []byte
	EOF   bool
	Size  int
	Mode  int
	IsDir bool `json:"is_dir"`

	Seq      uint64
	HeadSeq  uint64 `json:"head_seq"`
	HeadHash string `json:"head_hash"`
	Records  []record
}

// record is one of the journal, as its chain sees it.
type record struct {
	Seq  uint64
	Kind string
	Raw  []byte
	Hash string
}

// fields are a request's, besides its op.
type fields map[string]any

// call asks for one thing, and waits for the answer.
func (t *tester) call(op string, request fields) (r reply, err error) {
	line, err := json.Marshal(request)
	if err != nil {
		return r, err
	}
	line = append(fmt.Appendf(nil, `{"op":%q,`, op), bytes.TrimPrefix(line, []byte("{"))...)
	if len(request) == 0 {
		line = fmt.Appendf(nil, `{"op":%q}`, op)
	}
	if _, err := t.conn.Write(append(line, '\n')); err != nil {
		return r, err
	}
	if line, err = t.in.ReadBytes('\n'); err == nil {
		err = json.Unmarshal(line, &r)
	}
	if err == nil && !r.OK {
		err = fmt.Errorf("%s: %s", op, r.Error)
	}
	if err == nil {
		t.answered[op] = true
	}
	return r, err
}

// start starts a process in a role.
func (t *tester) start(role ...string) (handle string, err error) {
	r, err := t.call("proc_start", fields{"cmd": append([]string{self}, role...)})
	return r.Handle, err
}

func (t *tester) wait(handle string) (reply, error) {
	return t.call("proc_wait", fields{"handle": handle})
}

func (t *tester) kill(handle string) error {
	_, err := t.call("proc_kill", fields{"handle": handle})
	return err
}

// stdout is what a process has written, all of it.
func (t *tester) stdout(handle string) (string, error) {
	r, err := t.call("proc_logs", fields{"handle": handle, "limit": 4 << 20})
	if err == nil && r.StdoutDropped != 0 {
		err = fmt.Errorf("%d bytes are lost", r.StdoutDropped)
	}
	if err != nil {
		return "", err
	}
	b, err := base64.StdEncoding.DecodeString(r.Stdout)
	return string(b), err
}

// ended is what a process has written by its end.
func (t *tester) ended(handle string) (string, error) {
	if err := until(func() (bool, error) { row, err := t.row(handle); return row.Drained && !row.Running, err }); err != nil {
		return "", err
	}
	return t.stdout(handle)
}

func (t *tester) row(handle string) (reply, error) {
	r, err := t.call("proc_list", nil)
	for _, p := range r.Procs {
		if p.Handle == handle {
			return p, err
		}
	}
	return reply{}, errors.Join(err, errors.New("no such row"))
}

// as tells how an end differs from what is expected of it.
func (r reply) as(code, signal int, reason string) error {
	if r.Running || r.ExitCode != code || r.Signal != signal || r.Reason != reason || r.TimedOut != (reason == "timeout") {
		return fmt.Errorf("it ended as %+v", r)
	}
	return nil
}
