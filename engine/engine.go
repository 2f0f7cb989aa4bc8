// Package engine runs an agent: one loop owns the registry, and everything
// that changes it goes through that loop as
//
//	decide -> append -> apply -> perform -> reply
//
// Requests come in through Backend, observations from the processes; both are
// steps of a turn, and one turn is one commit of the journal. Nothing is
// performed, published or answered before its records are durable, and nothing
// that may wait is done inside the loop but that commit. Reading verbs never
// enter it: they use the rows published after each commit, and the rings.
package engine

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"

	"supervisor/journal"
	"supervisor/procs"
	"supervisor/statemachine"
)

// Config is what an engine is told. Sizes are bytes.
type Config struct {
	StateDir        string // holds journal.db and the lock
	RuntimeDir      string // holds the rings
	MaxProcs        int
	Retain          time.Duration // of ended records
	RingBytes       int64         // per stream
	TailBytes       int           // of each stream, kept in the journal
	JournalMaxBytes int64
	JournalSync     journal.SyncMode
	SetAsideDamaged bool          // start a new journal instead of refusing a damaged one
	SessionProcs    int           // quota of each session of the agent front
	SessionTTL      time.Duration // how long a session without a connection is kept
	ReapOrphans     bool          // see procs.Table.ReapOrphans: the process has no other children
	Version         string
	ImageSHA256     string
	Image           string // path of the installed image
	Log             *slog.Logger
	// Crashed is called where the engine panics, and must not return; nil lets
	// the process die of it.
	Crashed func(reason any, stack []byte)
}

// Engine is a running agent without its fronts. It implements wire.Backend.
type Engine struct {
	cfg     Config
	limits  statemachine.Limits
	gen     int // images since the agent started
	boot    statemachine.Boot
	born    statemachine.Instant
	environ []string // what children inherit
	keyed   keyedHash
	cursors *cursors
	lock    *os.File
	journal *journal.Journal
	table   *procs.Table

	inbox      chan step    // requests; a full one holds the connection back
	observed   observations // never full
	verbs      coalescer    // verbs that changed nothing
	attended   atomic.Int32 // older verbs that are not journaled yet
	view       view         // what readers see
	loud       broadcast    // a record that journal_read should wake for
	news       news         // those of which it was not woken yet
	health     atomic.Int32 // of the journal, see journalHealth
	oom        *oomWatch    // of the loop
	upgrade    upgrading
	upgrades   chan struct{} // holds one when an image is installed and waits for its turn
	quietSince atomic.Int64  // monotonic, when a handover began
	inherited  *Inheritance  // nil unless this image took over from another
	setAside   string        // name of a journal that was put aside at this start
	gate       gate          // shut when nothing new is taken and waits end
	between    chan func()   // what needs the loop's state, while no turn is under way
	stop       chan string   // reason of an orderly stop
	stopped    chan struct{} // closed when the loop has ended

	// owned by the loop
	registry    *statemachine.Registry
	encoder     statemachine.Encoder
	pending     [][]byte         // records applied and not yet durable
	unjournaled map[string]bool  // handles whose newest record is among them
	followUps   []step           // for the next turn, from effects performed in this one
	starting    map[string]*call // starts handed to the table
	snapshots   snapshotPolicy
}

// inboxSize bounds the requests that wait for a turn.
const inboxSize = 256

// Open takes the state directory's lock, replays its journal, finds the
// processes of an earlier life again, and starts the loop. Errors of the
// journal package come through unchanged.
func Open(cfg Config) (*Engine, error) {
	e := newEngine(cfg)
	if err := e.open(); err != nil {
		e.release()
		return nil, err
	}
	go e.run()
	return e, nil
}

func newEngine(cfg Config) *Engine {
	e := &Engine{
		cfg:      cfg,
		limits:   limits(cfg),
		environ:  childEnviron(os.Environ()),
		cursors:  newCursors(filepath.Join(cfg.RuntimeDir, "sessions")),
		inbox:    make(chan step, inboxSize),
		between:  make(chan func()),
		stop:     make(chan string, 1),
		upgrades: make(chan struct{}, 1),
		stopped:  make(chan struct{}),
		starting: map[string]*call{}, unjournaled: map[string]bool{},
	}
	e.observed.init()
	e.verbs.init()
	e.view.init()
	e.loud.init()
	e.gate.init()
	return e
}

// maxSessions bounds the sessions of the agent front, each of which keeps events.
const maxSessions = 256

func limits(cfg Config) statemachine.Limits {
	return statemachine.Limits{
		MaxProcs: cfg.MaxProcs, RetainNS: int64(cfg.Retain),
		MaxSessions: maxSessions, SessionProcs: cfg.SessionProcs, SessionTTLNS: int64(cfg.SessionTTL),
	}
}

// open acquires everything; release gives back what it got, also half-way.
func (e *Engine) open() error {
	procs.CatchIgnored()
	var err error
	if e.boot, err = bootID(); err != nil {
		return err
	}
	e.born = e.now()
	e.oom = newOOMWatch()
	for _, dir := range []string{e.cfg.StateDir, e.cfg.RuntimeDir} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return err
		}
	}
	if e.lock == nil {
		if e.lock, err = journal.Lock(filepath.Join(e.cfg.StateDir, "lock")); err != nil {
			return err
		}
	}
	if e.keyed, err = loadKey(filepath.Join(e.cfg.StateDir, "key")); err != nil {
		return err
	}
	if err := e.openJournal(); err != nil {
		return err
	}
	e.table, err = procs.New(procs.Options{
		Dir:       filepath.Join(e.cfg.RuntimeDir, "rings"),
		RingBytes: e.cfg.RingBytes,
		TailBytes: e.cfg.TailBytes,
		Observe:   e.observed.add,
		Log:       e.cfg.Log,
		Crashed:   e.cfg.Crashed,
	})
	if err != nil {
		return err
	}
	if e.inherited != nil {
		err = e.takeOver()
	} else {
		err = e.recover()
	}
	if err != nil || !e.cfg.ReapOrphans {
		return err
	}
	return e.table.ReapOrphans()
}

func (e *Engine) openJournal() error {
	path := filepath.Join(e.cfg.StateDir, "journal.db")
	opts := journal.Options{Sync: e.cfg.JournalSync, MaxBytes: e.cfg.JournalMaxBytes, Committed: e.committed}
	if e.inherited != nil {
		var err error
		if opts.File, err = e.inherited.file(e.inherited.JournalFD, path); err != nil {
			return err
		}
	}
	j, err := journal.Open(path, opts)
	damaged := errors.Is(err, journal.ErrDamaged) || errors.Is(err, journal.ErrForeign) || errors.Is(err, journal.ErrNewer)
	if damaged && e.cfg.SetAsideDamaged && e.inherited == nil {
		e.cfg.Log.Error("journal put aside", "error", err)
		if e.setAside, err = journal.SetAside(path, time.Now()); err != nil {
			return err
		}
		j, err = journal.Open(path, opts)
	}
	e.journal = j
	return err
}

func (e *Engine) release() {
	if e.oom != nil {
		e.oom.close()
	}
	if e.table != nil {
		e.logError("closing the processes' table", e.table.Close())
	}
	if e.journal != nil {
		e.logError("closing the journal", e.journal.Close())
	}
	if e.lock != nil {
		e.logError("releasing the lock", e.lock.Close())
	}
}

func (e *Engine) logError(what string, err error) {
	if err != nil {
		e.cfg.Log.Error(what, "error", err)
	}
}

// Quiesce makes every verb that waits, and every later one that would change
// something, answer that the agent is shutting down. What was begun goes on.
// What runs for the older verbs is killed.
func (e *Engine) Quiesce() { e.gate.close(errShuttingDown) }

// Close ends the agent in order: what was asked is finished or refused, the
// journal gets a snapshot and agent.stopped, and the processes live on.
func (e *Engine) Close(ctx context.Context, reason string) error {
	e.Quiesce()
	select {
	case e.stop <- reason:
	default: // somebody else's reason was first
	}
	select {
	case <-e.stopped:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("engine did not stop: %w", ctx.Err())
	}
}
