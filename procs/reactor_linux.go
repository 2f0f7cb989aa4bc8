package procs

import (
	"container/heap"
	"fmt"
	"os"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// A source is one descriptor that the reactor waits on. It is registered
// one-shot, and always in exactly one place: armed in the epoll, in the
// timers, among the hot, or being served. A stdin is the exception: armed and
// timed at once, because its deadline runs while it waits.
type source struct {
	id uint64 // never reused, so an event that comes late finds nobody
	fd int
	p  *process
	// serve is called with p.mu held. events is 0 when the timer ran out or
	// the source was hot.
	serve func(events uint32)

	due  time.Time // of the timer
	slot int       // in reactor.timers; -1: no timer
}

// reactor waits for all descriptors in one goroutine. Its own epoll descriptor
// sits in the poller of the Go runtime, so waiting costs no thread. Timers are
// a timerfd in that epoll, not read deadlines, because the runtime's poller
// sleeps whole milliseconds and a rest is a tenth of one.
type reactor struct {
	epfd  int
	timer int      // the timerfd; closed with file
	file  *os.File // holds epfd
	raw   syscall.RawConn
	poll  func(uintptr) bool // fills events

	crashed func(reason any, stack []byte) // see Options.Crashed
	done    chan struct{}                  // closed when the goroutine has ended

	// Owned by the goroutine.
	events []unix.EpollEvent
	ready  int
	memory []byte // see scratch

	mu       sync.Mutex
	sources  map[uint64]*source
	lastID   uint64
	timers   timers
	deadline time.Time // what timer is set to; zero: not set
	hot      []*source // had more to do when their turn was over
	stopping bool
}

func newReactor() (*reactor, error) {
	r := &reactor{
		epfd:    -1,
		timer:   -1,
		events:  make([]unix.EpollEvent, 128),
		sources: make(map[uint64]*source),
	}
	if err := r.open(); err != nil {
		closeAll(r.epfd, r.timer)
		return nil, fmt.Errorf("epoll: %w", err)
	}
	r.poll = func(uintptr) bool {
		r.ready = r.wait()
		return r.ready > 0
	}
	return r, nil
}

func (r *reactor) open() (err error) {
	if r.epfd, err = unix.EpollCreate1(unix.EPOLL_CLOEXEC); err != nil {
		return err
	}
	if r.timer, err = unix.TimerfdCreate(unix.CLOCK_MONOTONIC, unix.TFD_CLOEXEC|unix.TFD_NONBLOCK); err != nil {
		return err
	}
	// Edge-triggered: it need not be read. Its id 0 is no source's.
	ev := unix.EpollEvent{Events: unix.EPOLLIN | unix.EPOLLET}
	if err = unix.EpollCtl(r.epfd, unix.EPOLL_CTL_ADD, r.timer, &ev); err != nil {
		return err
	}
	if err = unix.SetNonblock(r.epfd, true); err != nil {
		return err
	}
	r.file = os.NewFile(uintptr(r.epfd), "epoll")
	// NewFile does not say that a file cannot be waited for, deadlines do.
	if err = r.file.SetReadDeadline(time.Time{}); err != nil {
		return err
	}
	r.raw, err = r.file.SyscallConn()
	return err
}

// start runs the reactor until stop. It may be started again afterwards.
func (r *reactor) start() {
	r.stopping = false
	r.done = make(chan struct{})
	go r.run()
}

// stop waits until the goroutine has ended; nothing is read any more. What is
// armed stays armed.
func (r *reactor) stop() {
	r.mu.Lock()
	r.stopping = true
	r.wakeAt(time.Now())
	r.mu.Unlock()
	<-r.done
}

// close ends what stop has stopped.
func (r *reactor) close() error {
	unix.Close(r.timer)
	return r.file.Close()
}

func (r *reactor) run() {
	defer close(r.done)
	defer Recover(r.crashed)
	for r.await() {
		for _, ev := range r.events[:r.ready] {
			if s := r.lookup(&ev); s != nil {
				r.serve(s, ev.Events)
			}
		}
		for _, s := range r.takeDue() {
			r.serve(s, 0)
		}
	}
}

// await waits until there is something to do; false means stop.
func (r *reactor) await() bool {
	r.mu.Lock()
	stopping, busy := r.stopping, len(r.hot) > 0
	r.mu.Unlock()
	switch {
	case stopping:
		return false
	case busy:
		r.ready = r.wait()
		return true
	}
	return r.raw.Read(r.poll) == nil
}

// wait takes the events that are there, without waiting.
func (r *reactor) wait() int {
	n, _ := ignoringEINTR(func() (int, error) { return unix.EpollWait(r.epfd, r.events, 0) })
	return max(n, 0)
}

// wakeAt ends await at the given time, if it is not set to end sooner. Called
// with mu held.
func (r *reactor) wakeAt(t time.Time) {
	if !r.deadline.IsZero() && !t.Before(r.deadline) {
		return
	}
	r.deadline = t
	wait := unix.NsecToTimespec(max(1, time.Until(t).Nanoseconds()))
	_ = unix.TimerfdSettime(r.timer, 0, &unix.ItimerSpec{Value: wait}, nil)
}

// scratch is memory for one read, for the goroutine alone.
func (r *reactor) scratch() []byte {
	if r.memory == nil {
		r.memory = make([]byte, 64<<10)
	}
	return r.memory
}

func (r *reactor) serve(s *source, events uint32) {
	s.p.mu.Lock()
	defer s.p.mu.Unlock()
	s.serve(events)
}

func (r *reactor) lookup(ev *unix.EpollEvent) *source {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.sources[uint64(uint32(ev.Fd))|uint64(uint32(ev.Pad))<<32]
}

// takeDue returns what is hot and every source whose timer ran out.
func (r *reactor) takeDue() []*source {
	r.mu.Lock()
	defer r.mu.Unlock()
	due := r.hot
	r.hot = nil
	if r.deadline.IsZero() {
		return due
	}
	t := time.Now()
	for len(r.timers) > 0 && !r.timers[0].due.After(t) {
		due = append(due, heap.Pop(&r.timers).(*source))
	}
	if !r.deadline.After(t) {
		r.deadline = time.Time{}
		if len(r.timers) > 0 {
			r.wakeAt(r.timers[0].due)
		}
	}
	return due
}

// add registers s and arms it for events.
func (r *reactor) add(s *source, events uint32) error {
	r.mu.Lock()
	r.lastID++
	s.id = r.lastID
	r.sources[s.id] = s
	r.mu.Unlock()
	if err := r.ctl(unix.EPOLL_CTL_ADD, s, events); err != nil {
		r.drop(s)
		return err
	}
	return nil
}

// arm lets the next of events be served, once.
func (r *reactor) arm(s *source, events uint32) { _ = r.ctl(unix.EPOLL_CTL_MOD, s, events) }

func (r *reactor) ctl(op int, s *source, events uint32) error {
	ev := unix.EpollEvent{Events: events | unix.EPOLLONESHOT, Fd: int32(uint32(s.id)), Pad: int32(uint32(s.id >> 32))}
	if err := unix.EpollCtl(r.epfd, op, s.fd, &ev); err != nil {
		return fmt.Errorf("epoll_ctl: %w", err)
	}
	return nil
}

// drop forgets s, which the caller closes. Closing takes it out of the epoll:
// a fork in flight can hold the description a moment longer, but a one-shot
// source fires at most once more, and its id is known to nobody then.
func (r *reactor) drop(s *source) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.sources, s.id)
	r.cancel(s)
}

// owners returns the processes that have sources; some more than once.
func (r *reactor) owners() []*process {
	r.mu.Lock()
	defer r.mu.Unlock()
	var all []*process
	for _, s := range r.sources {
		all = append(all, s.p)
	}
	return all
}

// again serves s after the others had their turn.
func (r *reactor) again(s *source) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.hot = append(r.hot, s)
}

// at serves s at the given time; it replaces an earlier timer of s.
func (r *reactor) at(s *source, due time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.cancel(s)
	s.due = due
	heap.Push(&r.timers, s)
	r.wakeAt(due)
}

// rouse arms s if it rests, and does nothing otherwise.
func (r *reactor) rouse(s *source, events uint32) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if s.slot >= 0 {
		r.cancel(s)
		r.arm(s, events)
	}
}

// stopTimer takes s out of the timers.
func (r *reactor) stopTimer(s *source) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.cancel(s)
}

// cancel takes s out of the timers. Called with mu held.
func (r *reactor) cancel(s *source) {
	if s.slot >= 0 {
		heap.Remove(&r.timers, s.slot)
	}
}

// timers is a heap of sources by due time.
type timers []*source

func (t timers) Len() int           { return len(t) }
func (t timers) Less(i, j int) bool { return t[i].due.Before(t[j].due) }
func (t timers) Swap(i, j int) {
	t[i], t[j] = t[j], t[i]
	t[i].slot, t[j].slot = i, j
}

func (t *timers) Push(s any) {
	s.(*source).slot = len(*t)
	*t = append(*t, s.(*source))
}

func (t *timers) Pop() any {
	last := len(*t) - 1
	s := (*t)[last]
	(*t)[last] = nil
	*t = (*t)[:last]
	s.slot = -1
	return s
}

// ignoringEINTR repeats a system call that a signal interrupted.
func ignoringEINTR(call func() (int, error)) (int, error) {
	for {
		if n, err := call(); err != unix.EINTR {
			return n, err
		}
	}
}
