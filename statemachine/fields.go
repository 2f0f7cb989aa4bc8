package statemachine

// A fieldLister names each of its persisted fields once, in a fixed order.
// Writing msgpack, reading it and printing JSON all follow the one list, so a
// name can never differ between a journal and what is shown of it.
type fieldLister interface {
	fields(v visitor)
}

// visitor is what is done with each field. A field listed with optional is
// left out while it is zero; any other is always written. Reading takes fields
// in any order, leaves absent ones alone and passes over unknown ones.
type visitor interface {
	Bool(name string, p *bool, optional bool)
	Int(name string, p *int, optional bool)
	Int64(name string, p *int64, optional bool)
	Uint64(name string, p *uint64, optional bool)
	String(name string, p *string, optional bool)
	Strings(name string, p *[]string, optional bool)
	Bytes(name string, p *[]byte, optional bool) // base64 in JSON
	Time(name string, p *int64, optional bool)   // unix ns; RFC 3339 in JSON
	Boot(name string, p *Boot, optional bool)
	Struct(name string, p fieldLister, absent bool) // absent: not written
	List(name string, p list)
}

// list is a persisted sequence of structs.
type list interface {
	Len() int
	Least() int           // bytes that any element takes, at the least
	At(i int) fieldLister // when reading, At grows the list by one
}

const (
	always   = false
	optional = true
)

func (e *AgentStarted) fields(v visitor) {
	v.String("version", &e.Version, always)
	v.Int("pid", &e.PID, always)
	v.String("image_sha256", &e.ImageSHA256, always)
	v.String("set_aside", &e.SetAside, optional)
}

func (e *AgentStopped) fields(v visitor) {
	v.String("reason", &e.Reason, always)
}

func (e *Verb) fields(v visitor) {
	v.String("op", &e.Op, always)
	v.String("front", &e.Front, always)
	v.String("peer", &e.Peer, always)
	v.Bool("ok", &e.OK, always)
	v.String("code", &e.Code, always)
	v.String("rule", &e.Rule, optional)
	v.Int64("took_us", &e.TookUS, always)
	v.Int("count", &e.Count, always)
	v.Time("first_time", &e.First, optional)
}

func (e *Requested) fields(v visitor) { e.Spec.fields(v) }

func (s *Spec) fields(v visitor) {
	v.Strings("cmd", &s.Cmd, always)
	v.String("cwd", &s.Cwd, always)
	v.Strings("env_names", &s.EnvNames, always)
	v.Bool("pty", &s.PTY, always)
	v.Int("cols", &s.Cols, optional)
	v.Int("rows", &s.Rows, optional)
	v.Int64("timeout_ms", &s.TimeoutMS, always)
	v.Bool("stdin_null", &s.StdinNull, optional)
	v.String("session", &s.Session, always)
	v.String("proc_id", &s.ProcID, always)
	v.String("req_id", &s.ReqID, optional)
	v.String("idem", &s.Idem, optional)
	v.String("idem_args", &s.IdemArgs, optional)
}

func (e *Started) fields(v visitor) {
	v.Int("pid", &e.PID, always)
	v.Uint64("start_ticks", &e.StartTicks, always)
	v.Uint64("stdout_ino", &e.StdoutIno, always)
	v.Uint64("stderr_ino", &e.StderrIno, always)
}

func (e *StartFailed) fields(v visitor) {
	v.String("error", &e.Error, always)
}

func (e *Stdin) fields(v visitor) {
	v.Int64("bytes", &e.Bytes, always)
}

func (e *StdinClosed) fields(visitor) {}

func (e *Signalled) fields(v visitor) {
	v.Int("signal", &e.Signal, always)
	v.Bool("group", &e.Group, always)
	v.Bool("kill", &e.Kill, optional)
}

func (e *Resized) fields(v visitor) {
	v.Int("cols", &e.Cols, always)
	v.Int("rows", &e.Rows, always)
}

func (e *Deadline) fields(visitor) {}

func (e *Exited) fields(v visitor) {
	v.Int("exit_code", &e.ExitCode, always)
	v.Int("signal", &e.Signal, always)
	v.Bool("timed_out", &e.TimedOut, always)
	v.String("reason", (*string)(&e.Reason), always)
	v.Bool("core_dumped", &e.CoreDumped, optional)
	v.Struct("rusage", &e.Rusage, !e.Rusage.Known())
}

func (r *Rusage) fields(v visitor) {
	v.Int64("user_us", &r.UserUS, always)
	v.Int64("sys_us", &r.SysUS, always)
	v.Int64("max_rss_kib", &r.MaxRSSKiB, always)
}

func (e *Drained) fields(v visitor) {
	v.Int64("stdout_len", &e.StdoutLen, always)
	v.Int64("stderr_len", &e.StderrLen, always)
	v.String("stdout_sha256", &e.StdoutSHA256, optional)
	v.String("stderr_sha256", &e.StderrSHA256, optional)
	v.Bytes("stdout_tail", &e.StdoutTail, optional)
	v.Bytes("stderr_tail", &e.StderrTail, optional)
}

func (e *Orphaned) fields(v visitor) {
	v.Bool("stdout", &e.Stdout, always)
	v.Bool("stderr", &e.Stderr, always)
}

func (e *Lost) fields(visitor) {}

func (e *Collected) fields(v visitor) {
	v.String("why", (*string)(&e.Why), always)
}

func (e *Snapshot) fields(v visitor) {
	v.Uint64("through_seq", &e.ThroughSeq, always)
	v.Int64("tail_budget", &e.TailBudget, optional)
}

func (e *Pruned) fields(v visitor) {
	v.Uint64("through_seq", &e.ThroughSeq, always)
}

func (e *Delivered) fields(visitor) {}

func (e *SessionOpened) fields(v visitor) {
	v.String("session", &e.Session, always)
	v.String("hash", &e.Hash, always)
}

func (e *SessionResumed) fields(v visitor) { v.String("session", &e.Session, always) }

func (e *SessionLeft) fields(v visitor) { v.String("session", &e.Session, always) }

func (e *SessionClosed) fields(v visitor) {
	v.String("session", &e.Session, always)
	v.String("why", (*string)(&e.Why), always)
}

func (i *Images) fields(v visitor) {
	v.String("from", &i.From, always)
	v.String("to", &i.To, always)
	v.String("sha256", &i.SHA256, always)
}

func (e *UpgradeRequested) fields(v visitor) {
	e.Images.fields(v)
	v.String("path", &e.Path, always)
}

func (e *UpgradeRejected) fields(v visitor) {
	e.Images.fields(v)
	v.String("error", &e.Error, always)
}

func (e *UpgradeHandoff) fields(v visitor) {
	e.Images.fields(v)
	v.Int("procs", &e.Procs, always)
}

func (e *UpgradeAdopted) fields(v visitor) {
	e.Images.fields(v)
	v.Int("procs", &e.Procs, always)
	v.Int64("blackout_us", &e.BlackoutUS, always)
}

func (e *UpgradeVerified) fields(v visitor) {
	e.Images.fields(v)
	v.Uint64("through_seq", &e.ThroughSeq, always)
	v.String("error", &e.Error, optional)
}

func (e *UpgradeRolledBack) fields(v visitor) {
	e.Images.fields(v)
	v.String("error", &e.Error, always)
}

// An unknown event has no names to list: visitors carry its Data whole.
func (u *Unknown) fields(visitor) {}
