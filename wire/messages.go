package wire

// The messages of the guest protocol v1. Every struct has one method, fields,
// that lists its fields once for both directions and both sides: the agent
// decodes requests and encodes replies with it, the client the reverse.
//
// Field names, defaults and limits: PROTOCOL.md. Sizes are bytes, times unix
// seconds unless a name ends in _ms or _us.

// Limits of the protocol that both sides know.
const (
	GuestPort       = 18047    // AF_VSOCK port of the guest protocol
	MaxLine         = 16 << 20 // longest request line, its line end not counted
	MaxDepth        = 100      // deepest nesting of a request
	DefaultLogLimit = 64 << 10 // bytes per stream of a proc_logs reply
	MaxLogLimit     = 4 << 20
	MaxLogWaitMS    = 60_000  // longest wait_ms of proc_logs and journal_read
	MaxWaitMS       = 300_000 // longest timeout_ms of proc_wait
	DefaultReadMany = 1000    // records of a journal_read reply
	MaxReadMany     = 10_000
	MaxReadBytes    = 4 << 20 // bytes of records of a journal_read reply
	DefaultCols     = 80
	DefaultRows     = 24
)

// StartRequest is proc_start.
type StartRequest struct {
	Cmd       []string // argv, required, Cmd[0] not empty
	Cwd       string   // "" is "/"
	Env       []string // KEY=VALUE, appended to the agent's environment
	PTY       bool
	Cols      int    // terminal size; 0 is the default
	Rows      int    //
	TimeoutMS int64  // 0: no deadline
	Stdin     string // "" or "pipe": a pipe; "null": empty
	Idem      string // idempotency key; "" is none
}

// StartReply answers proc_start.
type StartReply struct {
	Handle string
	PID    int
}

// HandleRequest is a verb that takes a handle and nothing else: proc_kill.
type HandleRequest struct {
	Handle string
}

// Ack answers verbs that have nothing to say but that they succeeded.
type Ack struct {
	Unjournaled bool // done, but the journal could not record it (disk full)
}

// ListReply answers proc_list. Rows are ordered by start.
type ListReply struct {
	Procs []Proc
}

// Rusage is what the kernel accounted for an ended process.
type Rusage struct {
	UserUS    int64 // user_us
	SysUS     int64 // sys_us
	MaxRSSKiB int64 // max_rss_kib
}

// Proc is one row of proc_list.
type Proc struct {
	Handle      string
	PID         int
	Cmd         []string
	StartedAt   int64
	Running     bool
	ExitCode    int // 0 while running
	Signal      int // absent unless the process died of a signal
	ExitedAt    int64
	PTY         bool
	TimedOut    bool
	Drained     bool // always present: true once both streams ended
	StdoutLen   int64
	StderrLen   int64
	Session     string  // public session name; absent on the guest front's own processes
	Reason      string  // exited, signal, timeout, killed, oom, lost; absent while running
	Rusage      *Rusage // absent while running, and where it is not known
	Unjournaled bool    // the exit could not be journaled yet; absent when false
}

// LogsRequest is proc_logs. Offsets are absolute: bytes since the start.
type LogsRequest struct {
	Handle       string
	Offset       int64
	StderrOffset int64
	Limit        int64 // 0 is DefaultLogLimit; above MaxLogLimit is clamped
	WaitMS       int64 // up to MaxLogWaitMS
}

// LogsReply answers proc_logs. Stdout and Stderr start at the request's offset
// plus the dropped count; the reply's offsets are where to go on.
type LogsReply struct {
	Stdout        []byte
	Stderr        []byte
	StdoutOffset  int64
	StderrOffset  int64
	StdoutDropped int64
	StderrDropped int64
	StdoutFirst   int64 // oldest offset still held
	StderrFirst   int64
	Exit
	Drained bool
}

// Exit is the part that proc_logs and proc_wait share. Running and TimedOut
// are always on the wire, also when false.
type Exit struct {
	Running     bool
	ExitCode    int
	Signal      int // absent unless the process died of a signal
	TimedOut    bool
	Reason      string // absent while running
	Unjournaled bool   // absent when false
}

// StdinRequest is proc_stdin.
type StdinRequest struct {
	Handle     string
	Data       []byte // base64 on the wire; "" and absent are no bytes
	CloseStdin bool
}

// StdinReply answers proc_stdin. Written is sent beside an error too.
type StdinReply struct {
	Written int
}

// SignalRequest is proc_signal.
type SignalRequest struct {
	Handle string
	Signal int  // 1..64, required
	Group  bool // absent means true
}

// ResizeRequest is proc_resize.
type ResizeRequest struct {
	Handle string
	Cols   int // 1..65535
	Rows   int
}

// WaitRequest is proc_wait.
type WaitRequest struct {
	Handle    string
	TimeoutMS int64 // absent, 0 or above MaxWaitMS: MaxWaitMS; negative is refused
}

// WaitReply answers proc_wait. With Running true, TimedOut is the wait's;
// with Running false it is the process's own deadline.
type WaitReply struct {
	Exit
}

// UpgradeRequest is agent_upgrade.
type UpgradeRequest struct {
	Path   string // of the staged image
	SHA256 string // of it, 64 hex digits
	Force  bool   // skip the preflight, and nothing else
}

// UpgradeReply answers agent_upgrade, before the handover.
type UpgradeReply struct {
	AgentVersion string // of the image that takes over
}

// InfoReply answers agent_info.
type InfoReply struct {
	AgentVersion string
	ImageSHA256  string
	Caps         []string
	Features     []string // kernel features in use
	PID          int
	UptimeSec    int64
	ProcCount    int
	Journal      string // ok, full, failed, set-aside
	Reaped       int64  // orphans reaped
}

// JournalReadRequest is journal_read.
type JournalReadRequest struct {
	AfterSeq uint64
	Limit    int64 // 0 is DefaultReadMany; above MaxReadMany is clamped
	WaitMS   int64
	Raw      bool  // adds the stored bytes to each record, base64 in "raw"
	MaxBytes int64 // not on the wire: what the front has memory for; 0 is MaxReadBytes. One record always fits
}

// JournalReadReply answers journal_read. Each record is one whole JSON object
// (its shape: PROTOCOL.md), passed through as it is.
type JournalReadReply struct {
	Records  [][]byte
	HeadSeq  uint64
	FirstSeq uint64
}

// JournalSnapshotRequest is journal_snapshot: a part of the newest snapshot of the
// record AtSeq or of one before it; 0 is the head.
type JournalSnapshotRequest struct {
	AtSeq  uint64
	Offset int64
	Limit  int64 // 0, or above MaxReadBytes, is MaxReadBytes. A busy agent may give less
}

// JournalSnapshotReply answers journal_snapshot. Seq is 0 where there is none.
// Parts with the same Seq belong together.
type JournalSnapshotReply struct {
	Seq     uint64
	Hash    string // of record Seq
	Version int64  // of the snapshot's form
	Size    int64  // of the whole
	Data    []byte // from Offset on
}

// JournalInfoReply answers journal_info. A host that keeps (HeadSeq, HeadHash)
// can prove later that history up to there was not rewritten.
type JournalInfoReply struct {
	HeadSeq  uint64
	HeadHash string
	FirstSeq uint64
	Bytes    int64
}
