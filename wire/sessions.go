package wire

import "context"

// SessionBackend is what the agent front needs of the agent, beside what a
// Guest needs. It is safe for concurrent use; what Backend says of contexts,
// errors and the journal holds here too.
type SessionBackend interface {
	// OpenSession makes a session that has a connection.
	OpenSession(ctx context.Context, c Caller, id SessionID) (*Session, error)
	// FindSession finds one, the same Session for as long as this image runs;
	// nil if there is none.
	FindSession(id SessionID) *Session
	// ResumeSession says that a session has a connection again, if it had none.
	ResumeSession(ctx context.Context, c Caller, id SessionID) error
	// LeaveSession says that a session's connection is gone. It never waits.
	LeaveSession(name string)

	// Spawn starts a process in a session.
	Spawn(ctx context.Context, c Caller, r SpawnRequest) (SessionProc, error)
	// Terminate signals a process's group for proc/kill.
	Terminate(ctx context.Context, c Caller, handle string, signal int) error
	Stdin(ctx context.Context, c Caller, r StdinRequest) (StdinReply, error)
	// Wait is that of Backend.
	Wait(ctx context.Context, r WaitRequest) (WaitReply, error)

	// SessionProc finds a process of a session by its proc_id, nil if the
	// session has none of that name.
	SessionProc(session, procID string) SessionProc
	// SessionProcs are all processes of a session, in the order of their starts.
	SessionProcs(session string) []SessionProc

	// Delivered says that the exit of a process is on its way to the session's
	// client, and kept. A later Spawn sees its place in the quota free. It never
	// waits.
	Delivered(handle string)
	// Keep stores where a session's events stand, for an agent that comes after
	// this one, be it after a crash. It has the events since the last one, of which
	// the newest are stored too, as many as a Session keeps. It may lose them.
	Keep(s SessionCursor)

	Note(c Caller, handle string, err error)
}

// SessionID is the secret that names a session, as the agent knows it: a public
// name, and a hash that only the owner of the secret can match.
type SessionID struct {
	Name string // s_ and 12 hex digits of Hash
	Hash string // hex of the secret's SHA-256
}

// SpawnRequest is a start for the agent front. The policy has let it pass.
type SpawnRequest struct {
	Session   string // its public name
	ProcID    string
	ReqID     string
	Cmd       []string // Cmd[0] is looked up on the agent's own PATH
	Cwd       string   // "" is the agent's own
	Env       []string
	StdinNull bool
	TimeoutMS int64
}

// SessionProc is a process of a session. It goes on telling how the process
// ended when its record was collected.
type SessionProc interface {
	// Row is the process as of the last commit about it.
	Row() SessionRow
	// Output is one of its streams: 0 is stdout, 1 stderr. A stream that is not
	// kept any more has ended.
	Output(stream int) Output
}

// SessionRow is what the agent front knows of a process.
type SessionRow struct {
	Proc
	ProcID    string
	ReqID     string
	StartedNS int64           // unix nanoseconds
	Killed    bool            // by proc/kill, whatever the process made of it
	Delivered bool            // the exit was sent
	Replaced  <-chan struct{} // closed when there is a newer row, or none
}

// Output is the output of a process by absolute offset. Offsets are bytes.
type Output interface {
	End() int64
	// Ended tells that End is final.
	Ended() bool
	// Changed is closed at the next byte or at the end; nil: never. Take it
	// before looking at End.
	Changed() <-chan struct{}
	// ReadAt reads from off on, or from first where that is later: then the
	// bytes between are lost.
	ReadAt(dst []byte, off int64) (n int, first int64, err error)
}
