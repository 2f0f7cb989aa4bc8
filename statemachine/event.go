package statemachine

// Kind names an event in the journal. It is stored in clear.
type Kind string

// The closed set of kinds. A kind is never removed and never changes meaning.
const (
	KindAgentStarted Kind = "agent.started"
	KindAgentStopped Kind = "agent.stopped"
	KindVerb         Kind = "verb"
	KindRequested    Kind = "proc.requested"
	KindStarted      Kind = "proc.started"
	KindStartFailed  Kind = "proc.start_failed"
	KindStdin        Kind = "proc.stdin"
	KindStdinClosed  Kind = "proc.stdin_closed"
	KindSignalled    Kind = "proc.signalled"
	KindResized      Kind = "proc.resized"
	KindDeadline     Kind = "proc.deadline"
	KindExited       Kind = "proc.exited"
	KindDrained      Kind = "proc.drained"
	KindOrphaned     Kind = "proc.orphaned"
	KindLost         Kind = "proc.lost"
	KindCollected    Kind = "proc.collected"
	KindDelivered    Kind = "proc.delivered"

	KindSessionOpened  Kind = "session.opened"
	KindSessionResumed Kind = "session.resumed"
	KindSessionLeft    Kind = "session.left"
	KindSessionClosed  Kind = "session.closed"

	KindSnapshot Kind = "journal.snapshot"
	KindPruned   Kind = "journal.pruned"

	KindUpgradeRequested  Kind = "upgrade.requested"
	KindUpgradeRejected   Kind = "upgrade.rejected"
	KindUpgradeHandoff    Kind = "upgrade.handoff"
	KindUpgradeAdopted    Kind = "upgrade.adopted"
	KindUpgradeVerified   Kind = "upgrade.verified"
	KindUpgradeRolledBack Kind = "upgrade.rolled_back"
)

// Event is a fact: it happened, and nothing rejects it.
type Event interface {
	Kind() Kind
	fieldLister
}

// Instant is a moment on one kernel's clocks. Mono orders and measures within
// a boot; Wall is for people, and for ages that span a reboot.
type Instant struct {
	Wall int64 // unix nanoseconds
	Mono int64 // CLOCK_MONOTONIC nanoseconds
	Boot Boot
}

// Stamp is when and by which image a record was made. Gen counts the images
// since the agent started.
type Stamp struct {
	Instant
	Gen int
}

// Record is an event with its place in history. Seq is the journal's.
type Record struct {
	Seq    uint64
	Stamp  Stamp
	Handle string // "" where the event is about no process
	Event  Event
}

// AgentStarted opens each life of the agent.
type AgentStarted struct {
	Version     string
	PID         int
	ImageSHA256 string
	SetAside    string // name of a damaged journal that was put aside
}

// AgentStopped closes an orderly life. After a crash it is missing.
type AgentStopped struct {
	Reason string
}

// Verb is one request on any front, or Count like ones in the time from First
// to the record's own.
type Verb struct {
	Op     string
	Front  string
	Peer   string
	OK     bool
	Code   string // stable error code, "" when OK
	Rule   string // what refused it, where that was a rule: allowlist, environment, quota, …
	TookUS int64  // of the longest, where several were counted
	Count  int
	First  int64 // unix nanoseconds
}

// Requested is the intent to start a process, committed before the fork.
type Requested struct {
	Spec Spec
}

// Spec is what to run, less what must not be stored: environment values.
type Spec struct {
	Cmd       []string
	Cwd       string
	EnvNames  []string
	PTY       bool
	Cols      int
	Rows      int
	TimeoutMS int64
	StdinNull bool
	Session   string // public name of the agent front's session
	ProcID    string // the agent front's name of the process
	ReqID     string // the agent front's request that asked for it
	Idem      string // keyed hash of the idempotency key, "" for none
	IdemArgs  string // keyed hash of the arguments, for comparing them
}

// Started is a process that exists. PID and StartTicks together name it on
// this boot; the inodes are those of its output pipes, 0 for a terminal.
type Started struct {
	PID        int
	StartTicks uint64
	StdoutIno  uint64
	StderrIno  uint64
}

// StartFailed ends a request without a process.
type StartFailed struct {
	Error string
}

// Stdin counts bytes that a process's input accepted; they are not stored.
type Stdin struct {
	Bytes int64
}

// StdinClosed is the end of a process's input.
type StdinClosed struct{}

// Signalled is a signal about to be sent for a verb.
type Signalled struct {
	Signal int
	Group  bool
	Kill   bool // for the agent front's proc/kill
}

// Resized is a terminal's new size.
type Resized struct {
	Cols int
	Rows int
}

// Deadline is a timeout_ms that ran out: the group is about to be killed.
type Deadline struct{}

// Exited is the end of a process as the kernel told it.
type Exited struct {
	ExitCode   int // -1 where the status could not be had
	Signal     int // 0 unless it died of one
	TimedOut   bool
	Reason     Reason
	CoreDumped bool
	Rusage     Rusage
}

// Reason tells kinds of ends apart.
type Reason string

// The reasons.
const (
	ReasonExited  Reason = "exited"
	ReasonSignal  Reason = "signal"  // a signal from elsewhere
	ReasonTimeout Reason = "timeout" // its own deadline
	ReasonKilled  Reason = "killed"  // a signal that a verb sent
	ReasonOOM     Reason = "oom"     // the kernel, out of memory
	ReasonLost    Reason = "lost"    // ended unseen
)

// Rusage is what the kernel accounted. It tells only the parent, so of a
// process that was adopted after a crash nothing is known: that is the zero
// value, and not written.
type Rusage struct {
	UserUS    int64
	SysUS     int64
	MaxRSSKiB int64
}

// Known tells whether anything is; every process has used some memory.
func (r Rusage) Known() bool { return r != Rusage{} }

// Drained is both streams read to their end. The tails are the last bytes of
// each. A digest is that of the whole stream; it is absent where it was not
// or could not be computed.
type Drained struct {
	StdoutLen    int64
	StderrLen    int64
	StdoutSHA256 string
	StderrSHA256 string
	StdoutTail   []byte
	StderrTail   []byte
}

// Orphaned is a live process found again after a crash of the agent. Its
// stdin is at its end; Stdout and Stderr say which pipes were regained.
type Orphaned struct {
	Stdout bool
	Stderr bool
}

// Lost is a process that ended while no agent watched.
type Lost struct{}

// Collected is a record forgotten by the registry.
type Collected struct {
	Why CollectWhy
}

// CollectWhy says why a record was collected.
type CollectWhy string

// The reasons to collect.
const (
	WhyRetention CollectWhy = "retention"
	WhyRoom      CollectWhy = "room"
)

// Snapshot says that the fold through ThroughSeq, which is the record's own
// sequence, is stored. What the registry keeps of output is cut to TailBudget
// bytes with it, the oldest first; 0 is no bound.
type Snapshot struct {
	ThroughSeq uint64
	TailBudget int64
}

// Pruned says that records through ThroughSeq are no longer in the journal.
type Pruned struct {
	ThroughSeq uint64
}

// Delivered is an exit that the client of the process's session was sent.
type Delivered struct{}

// SessionOpened is a new session of the agent front, with its first connection.
type SessionOpened struct {
	Session string // public name
	Hash    string // hex of the SHA-256 of its secret name
}

// SessionResumed is a session that has a connection again.
type SessionResumed struct{ Session string }

// SessionLeft is a session whose connection ended.
type SessionLeft struct{ Session string }

// SessionClosed is the end of a session. Why is retention or room.
type SessionClosed struct {
	Session string
	Why     CollectWhy
}

// Images says which image takes over from which. To is "" until the candidate
// has said its version.
type Images struct {
	From   string
	To     string
	SHA256 string // of the later one
}

// UpgradeRequested is a candidate that somebody wants to take over.
type UpgradeRequested struct {
	Images
	Path string
}

// UpgradeRejected is a candidate that will not: nothing was changed.
type UpgradeRejected struct {
	Images
	Error string
}

// UpgradeHandoff is the last record of an image.
type UpgradeHandoff struct {
	Images
	Procs int // records handed over
}

// UpgradeAdopted is the first record of the image that took over.
type UpgradeAdopted struct {
	Images
	Procs      int
	BlackoutUS int64 // from the last request that was accepted to readiness
}

// UpgradeVerified is the whole journal checked after an upgrade.
type UpgradeVerified struct {
	Images
	ThroughSeq uint64
	Error      string // "" where all is well
}

// UpgradeRolledBack is an image that could not go on: To is back.
type UpgradeRolledBack struct {
	Images
	Error string
}

// Unknown is an event of a kind, or of a version of a kind, that this image
// does not know: kept and shown as it is, and the fold is partial from there.
type Unknown struct {
	Name    Kind
	Version int
	Data    []byte // the msgpack value as stored
}
