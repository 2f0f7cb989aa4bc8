package wire

import (
	"context"
	"reflect"
	"slices"
	"sync"
	"time"
)

// batchBytes is how much is written at once: a session holds about as much of
// events that were not sent.
const batchBytes = 64 << 10

// pace is the least time between two writes of what comes bit by bit: a process
// that prints line by line, without a pause, is read by the batch.
const pace = time.Millisecond

// push sends a session's events on a connection from the event next on, until
// ctx ends or the connection breaks. There is one at a time for a session. It
// makes events only when all that were made are written, so a client that does
// not read holds nothing back but itself. Where the session stands is kept
// before each write, and once more when nothing happens.
func (s *Session) push(ctx context.Context, b SessionBackend, next uint64, write func([]byte) (int, error)) {
	p := pusher{session: s, backend: b, unsaved: true}
	var written time.Time
	for ctx.Err() == nil {
		batch := s.batch(next, p.batch[:0])
		p.batch = batch
		if len(batch) == 0 {
			if !p.gather(time.Now()) {
				p.wait(ctx)
				time.Sleep(pace - time.Since(written))
			}
			continue
		}
		p.save()
		n, err := write(batch)
		if next = s.took(next, n); err != nil {
			return
		}
		written, p.unsaved = time.Now(), true
	}
}

// ringReads is memory for what is read of a ring.
var ringReads = sync.Pool{New: func() any {
	b := make([]byte, maxPiece)
	return &b
}}

// pusher is the memory of one push.
type pusher struct {
	session *Session
	backend SessionBackend
	batch   []byte
	cases   []reflect.SelectCase // of wait
	unsaved bool                 // the session's cursor is another one by now
}

func (p *pusher) save() {
	if p.unsaved {
		p.session.keep(p.backend)
		p.unsaved = false
	}
}

// batch appends the events from next on to dst.
func (s *Session) batch(next uint64, dst []byte) []byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.log.from(dst, next)
}

func (s *Session) took(next uint64, n int) uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.log.took(next, n)
}

// gather makes a batch of events of what there is, and tells whether there was
// anything. The feeds take turns in being first.
func (p *pusher) gather(now time.Time) bool {
	s := p.session
	s.mu.Lock()
	defer s.mu.Unlock()
	buf := ringReads.Get().(*[]byte)
	defer ringReads.Put(buf)
	made := 0
	to := func(f *feed, stream string, data []byte) bool {
		line := s.event(f, stream, data, now)
		made += len(line)
		s.log.append(line)
		return made < batchBytes
	}
	for range len(s.feeds) {
		s.first %= len(s.feeds)
		f := s.feeds[s.first]
		drained, done := f.pull(now, *buf, to)
		if done {
			s.feeds = slices.Delete(s.feeds, s.first, s.first+1)
			s.done = append(s.done, f)
		} else {
			s.first++
		}
		if !drained || made >= batchBytes {
			break
		}
	}
	p.unsaved = p.unsaved || made > 0
	return made > 0
}

// event is the line of the session's next event. Called with mu held.
func (s *Session) event(f *feed, stream string, data []byte, now time.Time) []byte {
	e := encoder{dst: make([]byte, 0, len(data)+len(data)/8+256)}
	e.envelope("proc/read/event", now)
	text, seq := string(data), s.log.last+1
	e.text("proc_id", &f.row.ProcID, always)
	e.text("stream_type", &stream, always)
	e.text("data", &text, always)
	e.text("req_id", &f.row.ReqID, always)
	e.sequence("seq", &seq, always)
	return append(e.dst, '}', '\n')
}

// wait blocks until there may be something to gather. What wakes is armed
// first, and then looked at once more, so that nothing slips between.
func (p *pusher) wait(ctx context.Context) {
	p.arm(ctx)
	if p.gather(time.Now()) {
		return
	}
	p.save()
	p.batch = nil // nothing is held while nothing happens
	if at := p.session.wakeAt(); !at.IsZero() {
		timer := time.NewTimer(time.Until(at))
		defer timer.Stop()
		p.cases = append(p.cases, received(timer.C))
	}
	reflect.Select(p.cases)
}

// arm lists what ends a wait.
func (p *pusher) arm(ctx context.Context) {
	s := p.session
	clear(p.cases)
	p.cases = append(p.cases[:0], received(ctx.Done()), received(s.added))
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, f := range s.feeds {
		p.cases = append(p.cases, received(f.row.Replaced))
		for i := range f.taps {
			if !f.taps[i].over {
				p.cases = append(p.cases, received(f.proc.Output(i).Changed()))
			}
		}
	}
}

// received is the case of one channel; a nil one is never ready.
func received[T any](c <-chan T) reflect.SelectCase {
	return reflect.SelectCase{Dir: reflect.SelectRecv, Chan: reflect.ValueOf(c)}
}

// wakeAt is when there is something to gather although nothing happened.
func (s *Session) wakeAt() (at time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, f := range s.feeds {
		at = earlier(at, f.wakeAt())
	}
	return at
}
