package wire

import (
	"context"
	"time"
)

// Caller says who asked for what, from where and since when. It becomes the
// verb record of the journal.
type Caller struct {
	Op    string // the verb as it came; an unknown one is cut to 64 bytes
	Front string // guest or a2e
	Peer  string // from PeerName: "uid=0 pid=4242", "cid=2 port=1024", "127.0.0.1:4242"
	Began time.Time
}

// Backend is what a front needs of the agent. It is safe for concurrent use.
// Errors are *Error or internal. A method returns early with ctx.Err() when
// ctx ends; what it has begun by then still happens and is still journaled.
//
// Methods that take a Caller journal the verb themselves, before they return
// where it changed something; after any other method, and after a request
// that never reached a method, the front calls Note.
type Backend interface {
	Start(ctx context.Context, c Caller, r StartRequest) (StartReply, error)
	Stdin(ctx context.Context, c Caller, r StdinRequest) (StdinReply, error)
	Signal(ctx context.Context, c Caller, r SignalRequest) (Ack, error)
	Kill(ctx context.Context, c Caller, r HandleRequest) (Ack, error)
	Resize(ctx context.Context, c Caller, r ResizeRequest) (Ack, error)
	// Upgrade returns when the candidate is installed. The handover follows once
	// the reply is out.
	Upgrade(ctx context.Context, c Caller, r UpgradeRequest) (UpgradeReply, error)

	Info() InfoReply
	List() ListReply
	// Logs fills reply, reusing the capacity of its byte slices.
	Logs(ctx context.Context, r LogsRequest, reply *LogsReply) error
	Wait(ctx context.Context, r WaitRequest) (WaitReply, error)
	JournalRead(ctx context.Context, r JournalReadRequest) (JournalReadReply, error)
	JournalInfo() (JournalInfoReply, error)
	JournalSnapshot(r JournalSnapshotRequest) (JournalSnapshotReply, error)

	Older

	// Note records a verb that changed nothing: read-only, refused before it
	// reached a method, or unknown. It never waits.
	Note(c Caller, handle string, err error)
}
