package statemachine

// Command is what is asked of the state machine or told to it. Requests may
// be rejected; observations are facts, and at worst nothing follows.
type Command interface{ command() }

// Start asks for a new process under a handle that was never used.
type Start struct {
	Handle string
	Spec   Spec
}

// Signal asks for a signal to a process that runs.
type Signal struct {
	Handle string
	Signal int
	Group  bool
}

// Kill asks for SIGKILL to a process's group. Leftovers says whether the group
// still has members although its leader was reaped.
type Kill struct {
	Handle    string
	Leftovers bool
}

// Write asks for bytes to be written to a process's stdin, or for its close.
type Write struct {
	Handle string
}

// Resize asks for a terminal's new size.
type Resize struct {
	Handle string
	Cols   int
	Rows   int
}

// Tick says that time has passed.
type Tick struct{}

// Spawned is told of a start that succeeded.
type Spawned struct {
	Handle string
	Started
}

// SpawnFailed is told of one that did not.
type SpawnFailed struct {
	Handle string
	Error  string
}

// Written is told of bytes that a stdin accepted, and of its close.
type Written struct {
	Handle string
	Bytes  int64
	Closed bool
}

// Sized is told of a terminal that has its new size.
type Sized struct {
	Handle string
	Cols   int
	Rows   int
}

// Ended is told of a process that was reaped.
type Ended struct {
	Handle     string
	Known      bool // false: there was an exit, its status cannot be had
	Code       int  // 128 more than Signal where there is one, whatever is told
	Signal     int
	CoreDumped bool
	OOM        bool // the kernel says that it killed for want of memory
	Rusage     Rusage
}

// StreamsEnded is told of both streams read to their end.
type StreamsEnded struct {
	Handle string
	Drained
}

// Found is told, after a crash, of a process that still lives.
type Found struct {
	Handle string
	Orphaned
}

// Missing is told, after a crash, of a process that ended unseen, or of a
// request whose process is not known.
type Missing struct {
	Handle string
}

// Note is told of anything that changes no process: a verb, the agent's own
// start and stop, a snapshot.
type Note struct {
	Handle string
	Event  Event
}

func (Start) command()        {}
func (Signal) command()       {}
func (Kill) command()         {}
func (Write) command()        {}
func (Resize) command()       {}
func (Tick) command()         {}
func (Spawned) command()      {}
func (SpawnFailed) command()  {}
func (Written) command()      {}
func (Sized) command()        {}
func (Ended) command()        {}
func (StreamsEnded) command() {}
func (Found) command()        {}
func (Missing) command()      {}
func (Note) command()         {}
