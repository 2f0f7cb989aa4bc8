package wire

import (
	"context"
	"io"
)

// The older verbs keep the shapes that they had before managed processes: a
// boolean that is false is absent, an error carries no code, and none of them
// has a field that is reserved for the others.

// Limits of the older verbs.
const (
	MaxExecOutput   = 8 << 20 // bytes kept of each stream
	DefaultFileMode = 0o644
)

// ExecRequest is exec.
type ExecRequest struct {
	Cmd       []string
	Cwd       string // "" is "/"
	Env       []string
	Stdin     []byte // base64 on the wire
	TimeoutMS int64  // 0: none

	// Room asks for memory for so many more bytes of output; what it refuses
	// is cut off. Not on the wire. It is safe for concurrent use.
	Room func(bytes int64) bool
}

// ExecReply answers exec. On the wire the streams are JSON strings, with
// U+FFFD for what is no UTF-8.
type ExecReply struct {
	Stdout    []byte
	Stderr    []byte
	ExitCode  int  // -1 for a death by signal or by timeout
	TimedOut  bool // absent when false
	Truncated bool // output is missing; absent when false
}

// WriteFileRequest is write_file.
type WriteFileRequest struct {
	Path   string // a relative one begins at "/"
	Data   []byte // base64 on the wire
	Mode   int    // permission bits; 0: 0644 for a new file, unchanged for an old one
	Append bool
}

// PathRequest is a verb that takes a path: stat_file.
type PathRequest struct {
	Path string
}

// ReadFileRequest is read_file.
type ReadFileRequest struct {
	Path   string
	Offset int64
	Limit  int64 // 0: to the end of the file
}

// ReadFileReply answers read_file.
type ReadFileReply struct {
	Data Content
	EOF  bool // the data reaches the end of the file; absent when false
}

// Content is bytes of a file, base64 on the wire: Bytes in a reply that was
// read, From in one that is to be written. From is read while the reply is
// being written, so that it is never held whole, and closed then.
type Content struct {
	Bytes []byte
	From  io.ReadCloser
}

// StatFileReply answers stat_file.
type StatFileReply struct {
	Size  int64
	Mode  int // permission bits
	MTime int64
	IsDir bool // absent when false
}

// TerminalRequest is pty.
type TerminalRequest struct {
	Cmd []string
	Cwd string
	Env []string
}

// Older is the part of a Backend that serves the older verbs. What runs for
// one of them ends with ctx at the latest.
type Older interface {
	Exec(ctx context.Context, c Caller, r ExecRequest) (ExecReply, error)
	WriteFile(ctx context.Context, c Caller, r WriteFileRequest) error
	ReadFile(ctx context.Context, r ReadFileRequest) (*ReadFileReply, error)
	StatFile(ctx context.Context, r PathRequest) (StatFileReply, error)
	// Terminal starts a process on a terminal. It ends with Close, with ctx,
	// or by itself, which is io.EOF.
	Terminal(ctx context.Context, c Caller, r TerminalRequest) (io.ReadWriteCloser, error)
}

var olderVerbs = map[string]verb{
	"exec":       {func() request { return new(ExecRequest) }, exec, attends},
	"write_file": {func() request { return new(WriteFileRequest) }, writeFile, changes},
	"read_file":  {func() request { return new(ReadFileRequest) }, readFile, reads},
	"stat_file":  {func() request { return new(PathRequest) }, statFile, reads},
	"pty":        {func() request { return new(TerminalRequest) }, nil, takesOver}, // see becomeTerminal
}

func (r *ExecRequest) fields(v visitor) {
	v.texts("cmd", &r.Cmd, required)
	v.text("cwd", &r.Cwd, nonzero)
	v.texts("env", &r.Env, nonzero)
	v.base64("stdin", &r.Stdin, nonzero)
	v.long("timeout_ms", &r.TimeoutMS, nonzero)
}

func (r *ExecReply) fields(v visitor) {
	v.output("stdout", &r.Stdout)
	v.output("stderr", &r.Stderr)
	v.number("exit_code", &r.ExitCode, always)
	v.flag("timed_out", &r.TimedOut, nonzero)
	v.flag("truncated", &r.Truncated, nonzero)
}

func (r *WriteFileRequest) fields(v visitor) {
	v.text("path", &r.Path, required)
	v.base64("data", &r.Data, required)
	v.number("mode", &r.Mode, nonzero)
	v.flag("append", &r.Append, nonzero)
}

func (r *PathRequest) fields(v visitor) { v.text("path", &r.Path, required) }

func (r *ReadFileRequest) fields(v visitor) {
	v.text("path", &r.Path, required)
	v.long("offset", &r.Offset, nonzero)
	v.long("limit", &r.Limit, nonzero)
}

// fields visits the flag last: how far the data reaches is known behind it.
func (r *ReadFileReply) fields(v visitor) {
	v.content("data", &r.Data)
	v.flag("eof", &r.EOF, nonzero)
}

func (r *StatFileReply) fields(v visitor) {
	v.long("size", &r.Size, always)
	v.number("mode", &r.Mode, always)
	v.long("mtime", &r.MTime, always)
	v.flag("is_dir", &r.IsDir, nonzero)
}

func (r *TerminalRequest) fields(v visitor) {
	v.texts("cmd", &r.Cmd, required)
	v.text("cwd", &r.Cwd, nonzero)
	v.texts("env", &r.Env, nonzero)
}

func (r *ExecRequest) check() error {
	return firstOf(checkProgram(r.Cmd, r.Cwd, r.Env), natural("timeout_ms", r.TimeoutMS))
}

func (r *TerminalRequest) check() error { return checkProgram(r.Cmd, r.Cwd, r.Env) }

func (r *WriteFileRequest) check() error {
	return firstOf(checkPath(r.Path), within("mode", int64(r.Mode), 0, 0o7777))
}

func (r *PathRequest) check() error { return checkPath(r.Path) }

func (r *ReadFileRequest) check() error {
	return firstOf(checkPath(r.Path), natural("offset", r.Offset), natural("limit", r.Limit))
}

func checkPath(path string) error {
	if path == "" {
		return Errorf(CodeBadRequest, "path must not be empty")
	}
	return withoutNUL("path", path)
}

func exec(x *exchange, b Backend) (Message, error) {
	r := *x.request.(*ExecRequest)
	r.Room = x.reserveMore
	reply, err := b.Exec(x.ctx, x.caller, r)
	return &reply, err
}

func writeFile(x *exchange, b Backend) (Message, error) {
	return nil, b.WriteFile(x.ctx, x.caller, *x.request.(*WriteFileRequest))
}

func readFile(x *exchange, b Backend) (Message, error) {
	reply, err := b.ReadFile(x.ctx, *x.request.(*ReadFileRequest))
	if err != nil {
		return nil, err
	}
	return reply, nil
}

func statFile(x *exchange, b Backend) (Message, error) {
	reply, err := b.StatFile(x.ctx, *x.request.(*PathRequest))
	return &reply, err
}
