package statemachine

import (
	"bytes"
	"errors"
	"fmt"
)

// SnapshotVersion is that of the reducer and of the snapshot's form. A
// snapshot is a cache: one of another version is not read, the records are.
const SnapshotVersion = 1

// ReducerVersion grows whenever the same records can give another registry, or
// a snapshot gets another field: only registries of one version are compared
// byte by byte.
const ReducerVersion = 3

// ErrSnapshot is a snapshot that cannot be read.
var ErrSnapshot = errors.New("not a snapshot of this version")

// EncodeSnapshot returns the registry in a form that DecodeSnapshot reads.
// Equal registries give equal bytes.
func (r *Registry) EncodeSnapshot() []byte {
	p := newPacker()
	s := registrySnapshot{version: SnapshotVersion, seq: r.seq, partial: r.partial, processes: r.Processes(), forgotten: r.forgotten, sessions: r.Sessions()}
	p.Map(&s)
	return bytes.Clone(p.buf.Bytes())
}

// DecodeSnapshot reads a registry back.
func DecodeSnapshot(b []byte) (*Registry, error) {
	var s registrySnapshot
	var u unpacker
	if err := u.read(b, &s); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrSnapshot, err)
	}
	if s.version != SnapshotVersion {
		return nil, fmt.Errorf("%w: its version is %d", ErrSnapshot, s.version)
	}
	r := NewRegistry()
	r.seq, r.partial = s.seq, s.partial
	for _, p := range s.processes {
		r.processes[p.Handle] = p
		r.index(p)
	}
	r.restoreKeys(s.processes, s.forgotten)
	r.restoreSessions(s.sessions)
	if err := r.Check(); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrSnapshot, err)
	}
	return r, nil
}

// registrySnapshot is the stored form of a registry.
type registrySnapshot struct {
	version   int
	seq       uint64
	partial   bool
	processes processList
	forgotten keyList
	sessions  sessionList
}

func (s *registrySnapshot) fields(v visitor) {
	v.Int("version", &s.version, always)
	v.Uint64("seq", &s.seq, always)
	v.Bool("partial", &s.partial, optional)
	v.List("processes", &s.processes)
	v.List("forgotten_keys", &s.forgotten)
	v.List("sessions", &s.sessions)
}

type processList []*Process

func (l *processList) Len() int { return len(*l) }

// Least is well under what the names of a process's fields alone take.
func (l *processList) Least() int { return 128 }

func (l *processList) At(i int) fieldLister {
	if i == len(*l) {
		*l = append(*l, &Process{})
	}
	return (*l)[i]
}

func (p *Process) fields(v visitor) {
	v.String("handle", &p.Handle, always)
	v.Int("state", (*int)(&p.State), always)
	v.Struct("spec", &p.Spec, always)
	v.Uint64("requested_seq", &p.RequestedSeq, always)
	v.Struct("started", &p.Started, always)
	v.Struct("started_at", &p.StartedAt, always)
	v.Bool("stdin_closed", &p.StdinClosed, optional)
	v.Bool("orphaned", &p.Orphaned, optional)
	v.Bool("deadline_hit", &p.DeadlineHit, optional)
	v.Bool("killed", &p.Killed, optional)
	v.Bool("delivered", &p.Delivered, optional)
	v.Uint64("sent", (*uint64)(&p.Sent), optional)
	v.Struct("exit", &p.Exit, always)
	v.Struct("exited_at", &p.ExitedAt, always)
	v.Uint64("exited_seq", &p.ExitedSeq, optional)
	v.Struct("output", &p.Output, always)
}

func (i *Instant) fields(v visitor) {
	v.Time("wall", &i.Wall, always)
	v.Int64("mono", &i.Mono, always)
	v.Boot("boot", &i.Boot, always)
}
