package statemachine

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
)

// What a request about a session can be rejected with.
var (
	ErrUnknownSession = errors.New("unknown session")
	ErrSessionFull    = errors.New("the session's quota of processes is used up")
	ErrSessionInUse   = errors.New("session name in use")
	ErrManySessions   = fmt.Errorf("too many sessions: %w", ErrRegistryFull)
)

// Session is a session of the agent front. It outlives its connections: one
// that has none is idle, and closed with its processes when it was idle for
// long enough.
type Session struct {
	Name      string // public
	Hash      string // of the secret that names it: hex of its SHA-256
	OpenedSeq uint64
	OpenedAt  Instant
	LeftAt    Instant // when its connection ended
	LeftSeq   uint64  // 0 while it has one

	procs int // that count against its quota
}

// Idle tells whether the session has no connection.
func (s *Session) Idle() bool { return s.LeftSeq != 0 }

// OpenSession asks for a new session, which has a connection.
type OpenSession struct{ Name, Hash string }

// ResumeSession asks for a session that is known; it has a connection again.
type ResumeSession struct{ Name, Hash string }

// Terminate asks for a signal to a process's group for proc/kill: what ends of
// it was killed.
type Terminate struct {
	Handle string
	Signal int
}

// LeaveSession is told of a session whose connection ended.
type LeaveSession struct{ Name string }

// Deliver is told of an exit that the client of the process's session was sent.
type Deliver struct{ Handle string }

func (OpenSession) command()   {}
func (ResumeSession) command() {}
func (LeaveSession) command()  {}
func (Deliver) command()       {}
func (Terminate) command()     {}

// ForgetSession lets go of what is held for a session that was closed.
type ForgetSession struct{ Name string }

func (ForgetSession) effect() {}

// Session returns a session, or nil.
func (r *Registry) Session(name string) *Session { return r.sessions[name] }

// Sessions returns all sessions in the order of their opening.
func (r *Registry) Sessions() []*Session {
	all := make([]*Session, 0, len(r.sessions))
	for _, s := range r.sessions {
		all = append(all, s)
	}
	slices.SortFunc(all, func(a, b *Session) int { return cmp.Compare(a.OpenedSeq, b.OpenedSeq) })
	return all
}

// decideSession decides the commands about sessions.
func (r *Registry) decideSession(l Limits, c Command) Decision {
	switch c := c.(type) {
	case OpenSession:
		return r.decideOpen(l, c)
	case ResumeSession:
		s := r.sessions[c.Name]
		if s == nil || s.Hash != c.Hash {
			return reject(ErrUnknownSession)
		}
		if s.Idle() {
			return sessionEvent(&SessionResumed{Session: c.Name})
		}
	case LeaveSession:
		if s := r.sessions[c.Name]; s != nil && !s.Idle() {
			return sessionEvent(&SessionLeft{Session: c.Name})
		}
	case Terminate:
		return r.decideTerminate(c)
	case Deliver:
		if p := r.processes[c.Handle]; p != nil && !p.Delivered {
			return r.fact(c.Handle, &Delivered{})
		}
	}
	return Decision{}
}

func (r *Registry) decideTerminate(c Terminate) Decision {
	if _, err := r.alive(c.Handle); err != nil {
		return reject(err)
	}
	return Decision{
		Events:  []HandleEvent{{c.Handle, &Signalled{Signal: c.Signal, Group: true, Kill: true}}},
		Effects: []Effect{Send{c.Handle, c.Signal, true}},
	}
}

func sessionEvent(e Event) Decision { return Decision{Events: []HandleEvent{{"", e}}} }

// decideOpen makes room, where it must, by closing a session without
// connection and without processes.
func (r *Registry) decideOpen(l Limits, c OpenSession) Decision {
	if c.Name == "" || r.sessions[c.Name] != nil {
		return reject(ErrSessionInUse)
	}
	var d Decision
	if len(r.sessions) >= l.MaxSessions {
		i := slices.IndexFunc(r.idle, func(s *Session) bool { return s.procs == 0 })
		if i < 0 {
			return reject(ErrManySessions)
		}
		d = closeSession(r.idle[i].Name, WhyRoom)
	}
	d.Events = append(d.Events, HandleEvent{"", &SessionOpened{Session: c.Name, Hash: c.Hash}})
	return d
}

func closeSession(name string, why CollectWhy) Decision {
	d := sessionEvent(&SessionClosed{Session: name, Why: why})
	d.Effects = []Effect{ForgetSession{name}}
	return d
}

// admit checks that a start may be made in its session. The quota bounds
// starts under way, leaders that live, and exits that were not yet delivered.
func (r *Registry) admit(l Limits, s Spec) error {
	if s.Session == "" {
		return nil
	}
	session := r.sessions[s.Session]
	switch {
	case session == nil:
		return ErrUnknownSession
	case session.procs >= l.SessionProcs:
		return ErrSessionFull
	}
	return nil
}

// decideSpawned records a start. One whose session was closed meanwhile has
// nobody to run for.
func (r *Registry) decideSpawned(c Spawned) Decision {
	d := r.fact(c.Handle, &c.Started)
	p := r.processes[c.Handle]
	if len(d.Events) > 0 && p.Spec.Session != "" && r.sessions[p.Spec.Session] == nil {
		return d.then(send(c.Handle, sigkill, true))
	}
	return d
}

// then is both decisions, one after the other.
func (d Decision) then(next Decision) Decision {
	d.Events = append(d.Events, next.Events...)
	d.Effects = append(d.Effects, next.Effects...)
	return d
}

// closeIdle closes the sessions that were idle for long enough, and kills what
// still runs in them. Sessions become idle in the order of their list.
func (r *Registry) closeIdle(l Limits, now Instant) Decision {
	var d Decision
	for _, s := range r.idle {
		if age(s.LeftAt, now) < l.SessionTTLNS {
			break
		}
		for _, p := range r.Processes() {
			if p.Spec.Session == s.Name && p.State.Alive() {
				d = d.then(send(p.Handle, sigkill, true))
			}
		}
		d = d.then(closeSession(s.Name, WhyRetention))
	}
	return d
}

// nextClose is in how many nanoseconds closeIdle has something to do.
func (r *Registry) nextClose(l Limits, now Instant) (ns int64, ok bool) {
	if len(r.idle) == 0 {
		return 0, false
	}
	return l.SessionTTLNS - age(r.idle[0].LeftAt, now), true
}

// changeSession does what an event about a session means; any other is left
// alone.
func (r *Registry) changeSession(rec *Record) error {
	name, ok := "", true
	switch e := rec.Event.(type) {
	case *SessionOpened:
		name, ok = e.Session, r.openSession(rec, e)
	case *SessionResumed:
		name, ok = e.Session, r.setIdle(e.Session, false, rec)
	case *SessionLeft:
		name, ok = e.Session, r.setIdle(e.Session, true, rec)
	case *SessionClosed:
		name, ok = e.Session, r.setIdle(e.Session, false, rec)
		if ok {
			delete(r.sessions, e.Session)
		}
	}
	if ok || r.partial {
		return nil
	}
	return fmt.Errorf("record %d: %s of session %q cannot follow", rec.Seq, rec.Event.Kind(), name)
}

func (r *Registry) openSession(rec *Record, e *SessionOpened) bool {
	if e.Session == "" || r.sessions[e.Session] != nil {
		return false
	}
	r.sessions[e.Session] = &Session{
		Name: e.Session, Hash: e.Hash, OpenedSeq: rec.Seq, OpenedAt: rec.Stamp.Instant,
	}
	for _, p := range r.processes { // of an earlier session of that name
		if p.Spec.Session == e.Session {
			r.count(p, false)
		}
	}
	return true
}

// setIdle makes a session idle, or no longer idle. It reports false if there
// is none, or if it is so already.
func (r *Registry) setIdle(name string, idle bool, rec *Record) bool {
	s := r.sessions[name]
	if s == nil || s.Idle() == idle {
		return false
	}
	if idle {
		s.LeftAt, s.LeftSeq = rec.Stamp.Instant, rec.Seq
		r.idle = append(r.idle, s)
		return true
	}
	s.LeftAt, s.LeftSeq = Instant{}, 0
	r.idle = slices.DeleteFunc(r.idle, func(other *Session) bool { return other == s })
	return true
}

// usesQuota tells whether a process counts against its session's quota.
func (p *Process) usesQuota() bool {
	return p.State == StateRequested || p.State.Alive() || p.State.Ended() && !p.Delivered
}

// count keeps the quota of a process's session in step with the process.
func (r *Registry) count(p *Process, before bool) {
	s := r.sessions[p.Spec.Session]
	switch after := p.usesQuota(); {
	case s == nil || before == after:
	case after:
		s.procs++
	default:
		s.procs--
	}
}

// restoreSessions takes over the sessions of a snapshot. Processes are there.
func (r *Registry) restoreSessions(sessions []*Session) {
	for _, s := range sessions {
		r.sessions[s.Name] = s
		if s.Idle() {
			r.idle = append(r.idle, s)
		}
	}
	slices.SortFunc(r.idle, func(a, b *Session) int { return cmp.Compare(a.LeftSeq, b.LeftSeq) })
	for _, p := range r.processes {
		r.count(p, false)
	}
}

// checkSessions verifies the list of idle sessions and every quota.
func (r *Registry) checkSessions() error {
	used := map[string]int{}
	for _, p := range r.processes {
		if p.usesQuota() {
			used[p.Spec.Session]++
		}
	}
	idle := 0
	for name, s := range r.sessions {
		switch {
		case name == "" || s.Name != name:
			return fmt.Errorf("session %s is filed under %q", s.Name, name)
		case s.OpenedSeq == 0 || s.OpenedSeq > r.seq || s.LeftSeq > r.seq || s.Idle() && s.LeftSeq <= s.OpenedSeq:
			return fmt.Errorf("session %s: opened at %d and left at %d of %d", name, s.OpenedSeq, s.LeftSeq, r.seq)
		case s.procs != used[name]:
			return fmt.Errorf("session %s counts %d processes, not %d", name, s.procs, used[name])
		}
		if s.Idle() {
			idle++
		}
	}
	return r.checkIdle(idle)
}

func (r *Registry) checkIdle(want int) error {
	for i, s := range r.idle {
		if r.sessions[s.Name] != s || !s.Idle() || i > 0 && s.LeftSeq <= r.idle[i-1].LeftSeq {
			return fmt.Errorf("the list of idle sessions is wrong at %s", s.Name)
		}
	}
	if len(r.idle) != want {
		return fmt.Errorf("%d sessions are listed as idle, not %d", len(r.idle), want)
	}
	return nil
}

type sessionList []*Session

func (l *sessionList) Len() int { return len(*l) }

// Least is well under what the names of a session's fields alone take.
func (l *sessionList) Least() int { return 32 }

func (l *sessionList) At(i int) fieldLister {
	if i == len(*l) {
		*l = append(*l, &Session{})
	}
	return (*l)[i]
}

func (s *Session) fields(v visitor) {
	v.String("name", &s.Name, always)
	v.String("hash", &s.Hash, always)
	v.Uint64("opened_seq", &s.OpenedSeq, always)
	v.Struct("opened_at", &s.OpenedAt, always)
	v.Struct("left_at", &s.LeftAt, always)
	v.Uint64("left_seq", &s.LeftSeq, optional)
}
