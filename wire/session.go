package wire

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"sync"
)

// Session is what the agent front keeps of a session beside the journal: the
// events of late, and how far each process's output was made into events. The
// backend makes it and decides how long it lives; what is in it is the front's.
//
// It holds the events that were not sent, at most a batch, and up to
// repeatBytes of those that were. Everything else stays in the rings until a
// connection has room for it.
type Session struct {
	name string

	// turn is held by a handshake, and by the end of a connection: one at a time.
	turn   sync.Mutex
	holder *conversation // whose the session is; nil: it has no connection

	mu       sync.Mutex
	log      eventLog
	feeds    []*feed
	done     []*feed               // whose exit is an event, as long as the registry does not know that
	first    int                   // the feed that is asked first, so that all get their turn
	restored map[string]ProcCursor // of processes that have no feed yet
	added    chan struct{}         // holds one when there is a new feed
	saves    uint64                // cursors made so far
	kept     uint64                // the newest event that a cursor had
}

// SessionCursor is where a session's events stand, as data: what an agent must
// know that goes on with it. It is kept before any of its events is sent, so
// that also after a crash an event comes again as it was.
type SessionCursor struct {
	Name    string       `json:"name"`
	Saves   uint64       `json:"saves"`    // counts the cursors that were made of the session
	LastSeq uint64       `json:"last_seq"` // of the newest event
	Sent    uint64       `json:"sent"`     // of the newest that was wholly written to a connection
	Events  [][]byte     `json:"-"`        // lines, up to that of LastSeq: all that are kept, or those since the last Keep
	Procs   []ProcCursor `json:"procs"`
}

// ProcCursor is how much of a process's output was made into events, in bytes
// since its start.
type ProcCursor struct {
	ProcID string   `json:"proc_id"`
	Offset [2]int64 `json:"offset"`         // of stdout and stderr
	Done   bool     `json:"done,omitempty"` // the exit is an event, too
}

// NewSession makes a session that goes on where a cursor stands; only its name
// matters for a new one.
func NewSession(c SessionCursor) *Session {
	s := &Session{name: c.Name, added: make(chan struct{}, 1), restored: map[string]ProcCursor{}, saves: c.Saves, kept: c.LastSeq}
	s.log = eventLog{last: c.LastSeq, sent: c.Sent}
	for _, e := range c.Events {
		s.log.keep(e)
	}
	if s.log.first() > s.log.sent+1 { // what was not sent is not here: never to be
		s.log.sent = s.log.first() - 1
	}
	for _, p := range c.Procs {
		s.restored[p.ProcID] = p
	}
	return s
}

// cursor is where the session stands, with the events since the last one.
func (s *Session) cursor() SessionCursor {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.saves++
	c := SessionCursor{Name: s.name, Saves: s.saves, LastSeq: s.log.last, Sent: s.log.sent}
	c.Events = slices.Clone(s.log.lines[max(s.kept+1, s.log.first())-s.log.first():])
	s.kept = s.log.last
	for _, f := range s.feeds {
		c.Procs = append(c.Procs, f.cursor(false))
	}
	for _, f := range s.done {
		c.Procs = append(c.Procs, f.cursor(true))
	}
	for _, p := range s.restored {
		c.Procs = append(c.Procs, p)
	}
	return c
}

// keep has the cursor stored, and tells of exits that will now not be lost.
func (s *Session) keep(b SessionBackend) {
	b.Keep(s.cursor())
	s.mu.Lock()
	defer s.mu.Unlock()
	s.done = slices.DeleteFunc(s.done, (*feed).settled)
	for _, f := range s.done {
		if !f.told {
			f.told = true
			b.Delivered(f.row.Handle)
		}
	}
}

// add begins to make events of a process, unless that has begun or is over.
func (s *Session) add(p SessionProc) {
	row := p.Row()
	s.mu.Lock()
	defer s.mu.Unlock()
	known := slices.ContainsFunc(slices.Concat(s.feeds, s.done), func(f *feed) bool { return f.row.ProcID == row.ProcID })
	if known || row.Delivered {
		return
	}
	f := &feed{proc: p, row: row}
	stood := s.restored[row.ProcID]
	delete(s.restored, row.ProcID)
	for i, offset := range stood.Offset {
		f.taps[i].offset = offset
	}
	if stood.Done {
		s.done = append(s.done, f)
		return
	}
	s.feeds = append(s.feeds, f)
	select {
	case s.added <- struct{}{}:
	default:
	}
}

// resume tells from which event on a client is to be sent: what came after the
// last one that it received, as far as it is kept, or what it was not sent.
func (s *Session) resume(lastSeq *int) (next uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	clear(s.restored) // what has no feed by now is forgotten
	if lastSeq == nil {
		return s.log.sent + 1
	}
	return s.log.after(uint64(*lastSeq))
}

// eventLog is the newest events, as lines. It is guarded by its session.
type eventLog struct {
	lines [][]byte // the last one is that of last
	bytes int
	last  uint64
	sent  uint64 // the newest that a connection took whole
}

// repeatBytes is how much of what was sent is kept to be sent again.
const repeatBytes = 256 << 10

func (l *eventLog) first() uint64 { return l.last + 1 - uint64(len(l.lines)) }

// append adds the next event.
func (l *eventLog) append(line []byte) {
	l.last++
	l.keep(line)
}

func (l *eventLog) keep(line []byte) {
	l.lines = append(l.lines, line)
	l.bytes += len(line)
	for len(l.lines) > 1 && l.bytes > repeatBytes && l.first() <= l.sent {
		l.bytes -= len(l.lines[0])
		l.lines[0] = nil
		l.lines = l.lines[1:]
	}
}

// after is the first event to send to a client that knows the one of seq. A
// client may know more than an agent whose cursor was lost with the machine:
// the numbers go on from there.
func (l *eventLog) after(seq uint64) uint64 {
	if seq > l.last {
		*l = eventLog{last: seq, sent: seq}
	}
	return max(seq+1, l.first())
}

// from appends events from next on to dst, at least one if there is one.
func (l *eventLog) from(dst []byte, next uint64) []byte {
	for i := int(next - l.first()); i < len(l.lines) && len(dst) < batchBytes; i++ {
		dst = append(dst, l.lines[i]...)
	}
	return dst
}

// took notes that a connection took n bytes from next on, and tells what is
// the next event then. One that it took in part was not sent.
func (l *eventLog) took(next uint64, n int) uint64 {
	for i := int(next - l.first()); i < len(l.lines) && n >= len(l.lines[i]); i++ {
		n -= len(l.lines[i])
		next++
	}
	l.sent = max(l.sent, next-1)
	return next
}

// secret makes what names a new session: 128 random bits.
func secret() string {
	var b [16]byte
	rand.Read(b[:]) // never fails, see crypto/rand
	return hex.EncodeToString(b[:])
}

// identify is what the agent may know of a secret.
func identify(secret string) SessionID {
	sum := sha256.Sum256([]byte(secret))
	hash := hex.EncodeToString(sum[:])
	return SessionID{Name: "s_" + hash[:12], Hash: hash}
}
