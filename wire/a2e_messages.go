package wire

import (
	"strings"
)

// The messages of the agent front: the A2E capability proc/*. PROTOCOL.md,
// part two. Requests go from the host's agent to us, which the capability calls
// the host; events and replies come back.

// A2EVersion is the only version of the capability's messages.
const a2eVersion = "1.0"

// A2EHandshake is handshake/req, the first message of a connection.
type A2EHandshake struct {
	SessionID string // "" opens a session, else resumes that one
	LastSeq   *int   // of the last event that was received; nil: not told
}

// A2EHello is handshake/resp.
type A2EHello struct {
	SessionID    string
	Capabilities []string
}

// A2ESpawn is proc/spawn/req.
type A2ESpawn struct {
	Cmd       []string // Cmd[0] is an entry of the allowlist
	Cwd       string   // "" is the agent's own
	Env       []string // NAME=VALUE; an object on the wire
	StdinMode string   // "" or pipe, or null
	Timeout   int64    // seconds; 0 is none
}

// A2ESpawned is proc/spawn/resp.
type A2ESpawned struct {
	ProcID string
	PID    int // absent on failure
}

// A2EWrite is proc/write/req.
type A2EWrite struct {
	ProcID   string
	Data     string
	Encoding string // "" or utf-8, or base64
	EOF      bool

	bytes []byte // Data, decoded by check
}

// A2EWritten is proc/write/resp. Bytes is sent beside an error: those that the
// process took.
type A2EWritten struct {
	ProcID string
	PID    int
	Bytes  int
}

// A2EKill is proc/kill/req.
type A2EKill struct {
	ProcID string
	Signal string // SIGTERM, SIGKILL or SIGINT
}

// A2EKilled is proc/kill/resp.
type A2EKilled struct {
	ProcID string
	State  string // a status word
}

// A2EStatus is proc/status/req.
type A2EStatus struct {
	ProcID string // "" asks for all processes of the session
}

// A2EStatusReply is proc/status/resp.
type A2EStatusReply struct {
	ProcID string
	Status string
	Proc   *A2EProc
	Procs  []A2EProc // with ProcID "": also when it is empty
}

// A2EProc is the capability's ProcStatus.
type A2EProc struct {
	ProcID    string
	Cmd       string // quoted for a shell
	State     string // running, stopped, crashed, timedout
	PID       int
	ExitCode  *int
	StartedAt int64 // unix nanoseconds; seconds on the wire
}

func (r *A2EHandshake) fields(v visitor) {
	v.text("session_id", &r.SessionID, nonzero)
	v.maybe("last_seq", &r.LastSeq)
}

func (r *A2EHello) fields(v visitor) {
	v.text("session_id", &r.SessionID, always)
	v.texts("capabilities", &r.Capabilities, always)
}

func (r *A2ESpawn) fields(v visitor) {
	v.texts("cmd", &r.Cmd, required)
	v.text("cwd", &r.Cwd, nonzero)
	v.pairs("env", &r.Env)
	v.text("stdin_mode", &r.StdinMode, nonzero)
	v.long("timeout", &r.Timeout, nonzero)
}

func (r *A2ESpawned) fields(v visitor) {
	v.text("proc_id", &r.ProcID, always)
	v.number("pid", &r.PID, nonzero)
}

func (r *A2EWrite) fields(v visitor) {
	v.text("proc_id", &r.ProcID, required)
	v.text("data", &r.Data, always)
	v.text("encoding", &r.Encoding, nonzero)
	v.flag("eof", &r.EOF, nonzero)
}

func (r *A2EWritten) fields(v visitor) {
	v.text("proc_id", &r.ProcID, always)
	v.number("pid", &r.PID, always)
	v.number("written", &r.Bytes, nonzero)
}

func (r *A2EKill) fields(v visitor) {
	v.text("proc_id", &r.ProcID, required)
	v.text("signal", &r.Signal, nonzero)
}

func (r *A2EKilled) fields(v visitor) {
	v.text("proc_id", &r.ProcID, always)
	v.text("state", &r.State, always)
}

func (r *A2EStatus) fields(v visitor) { v.text("proc_id", &r.ProcID, nonzero) }

func (r *A2EStatusReply) fields(v visitor) {
	v.text("proc_id", &r.ProcID, always)
	v.text("status", &r.Status, always)
	v.object("proc", r.Proc != nil, func() Message {
		if r.Proc == nil {
			r.Proc = new(A2EProc)
		}
		return r.Proc
	})
	if r.ProcID != "" {
		return
	}
	v.list("procs", len(r.Procs), func(i int) Message {
		if i == len(r.Procs) {
			r.Procs = append(r.Procs, A2EProc{})
		}
		return &r.Procs[i]
	})
}

func (r *A2EProc) fields(v visitor) {
	v.text("proc_id", &r.ProcID, always)
	v.text("cmd", &r.Cmd, always)
	v.text("state", &r.State, always)
	v.number("pid", &r.PID, always)
	v.maybe("exit_code", &r.ExitCode)
	v.seconds("started_at", &r.StartedAt)
}

// maxSeq is the largest number that every JSON parser reads exactly.
const maxSeq = 1 << 53

func (r *A2EHandshake) check() error {
	if r.LastSeq != nil && (*r.LastSeq < 0 || *r.LastSeq > maxSeq) {
		return Errorf(CodeBadRequest, "last_seq must be from 0 to %d", int64(maxSeq))
	}
	return nil
}

func (r *A2EStatus) check() error { return nil }

func (r *A2ESpawn) check() error {
	if len(r.Cmd) == 0 || r.Cmd[0] == "" {
		return Errorf(CodeBadRequest, "cmd must name a program")
	}
	if r.StdinMode != "" && r.StdinMode != "pipe" && r.StdinMode != "null" {
		return Errorf(CodeBadRequest, `stdin_mode must be "pipe" or "null"`)
	}
	return firstOf(
		withoutNUL("cmd", r.Cmd...),
		withoutNUL("env", r.Env...),
		withoutNUL("cwd", r.Cwd),
		natural("timeout", r.Timeout),
	)
}

func (r *A2EWrite) check() error {
	switch r.Encoding {
	case "", "utf-8":
		r.bytes = []byte(r.Data)
	case "base64":
		bytes, err := strict.DecodeString(r.Data)
		if err != nil || strings.ContainsAny(r.Data, "\r\n") {
			return Errorf(CodeBadRequest, "data is not valid base64")
		}
		r.bytes = bytes
	default:
		return Errorf(CodeBadRequest, `encoding must be "utf-8" or "base64"`)
	}
	return nil
}

func (r *A2EKill) check() error {
	if r.number() == 0 {
		return Errorf(CodeBadRequest, "signal must be SIGTERM, SIGKILL or SIGINT")
	}
	return nil
}

// number is the signal's, 0 for one that may not be sent.
func (r *A2EKill) number() int {
	switch r.Signal {
	case "SIGTERM":
		return 15
	case "SIGKILL":
		return 9
	case "SIGINT":
		return 2
	}
	return 0
}

// Status words of a process.
const (
	statusRunning   = "running"
	statusCompleted = "completed"
	statusFailed    = "failed"
	statusKilled    = "killed"
	statusTimedOut  = "timedout"
	statusNotFound  = "not_found"
	statusError     = "error"
)

// status is the word for how a process ended, or that it runs.
func (r SessionRow) status() string {
	switch {
	case r.Running:
		return statusRunning
	case r.Reason == "timeout":
		return statusTimedOut
	case r.Killed || r.Reason == "killed":
		return statusKilled
	case r.ExitCode == 0:
		return statusCompleted
	}
	return statusFailed
}

// states are the capability's ProcState of each status.
var states = map[string]string{
	statusRunning:   "running",
	statusCompleted: "stopped",
	statusKilled:    "stopped",
	statusFailed:    "crashed",
	statusTimedOut:  "timedout",
}

// procStatus is a row as proc/status tells it.
func (r SessionRow) procStatus() A2EProc {
	p := A2EProc{
		ProcID: r.ProcID, Cmd: shellQuoted(r.Cmd), State: states[r.status()], PID: r.PID, StartedAt: r.StartedNS,
	}
	if !r.Running {
		p.ExitCode = &r.ExitCode
	}
	return p
}

// shellQuoted is a command as a POSIX shell reads it.
func shellQuoted(cmd []string) string {
	const plain = "%+,-./0123456789:=@ABCDEFGHIJKLMNOPQRSTUVWXYZ_abcdefghijklmnopqrstuvwxyz"
	var out strings.Builder
	for i, word := range cmd {
		if i > 0 {
			out.WriteByte(' ')
		}
		if word != "" && strings.Trim(word, plain) == "" {
			out.WriteString(word)
			continue
		}
		out.WriteString("'" + strings.ReplaceAll(word, "'", `'\''`) + "'")
	}
	return out.String()
}
