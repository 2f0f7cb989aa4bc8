package statemachine

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

// testBoot is a kernel that tests run on.
var testBoot = Boot{0x7b, 0x1c, 0x0e, 0x52, 0x9a, 0x31, 0x4f, 0x60, 0x8d, 0x2e, 0x11, 0xaa, 0x5c, 0x03, 0xf4, 0x97}

// fold derives a registry from stored records alone.
func fold(payloads [][]byte) (*Registry, error) {
	r := NewRegistry()
	return r, foldMore(r, payloads)
}

// foldMore goes on where r is.
func foldMore(r *Registry, payloads [][]byte) error {
	var dec Decoder
	for _, p := range payloads {
		rec, err := dec.Decode(r.Seq()+1, p)
		if err != nil {
			return err
		}
		if err := r.Apply(&rec); err != nil {
			return err
		}
	}
	return nil
}

// world is an agent without an operating system: it decides, stores, applies
// and checks after every command that the laws hold.
type world struct {
	limits   Limits
	now      Instant
	live     *Registry
	derived  *Registry // of the stored records alone
	payloads [][]byte
	enc      Encoder
	dec      Decoder
	handles  int             // given out so far
	gone     map[string]bool // collected, or never started
}

func newWorld(l Limits) *world {
	return &world{
		limits:  l,
		now:     Instant{Wall: 1_790_000_000_000_000_000, Mono: 1e9, Boot: testBoot},
		live:    NewRegistry(),
		derived: NewRegistry(),
		gone:    map[string]bool{},
	}
}

// pass lets time pass on both clocks.
func (w *world) pass(ns int64) {
	w.now = w.now.after(ns)
}

func (i Instant) after(ns int64) Instant {
	i.Wall += ns
	i.Mono += ns
	return i
}

// newHandle gives a handle that was never used.
func (w *world) newHandle() string {
	w.handles++
	return fmt.Sprintf("p%d", w.handles)
}

// in lists the handles of the processes in one of the states, sorted.
func (w *world) in(states ...State) []string {
	var found []string
	for _, p := range w.live.Processes() {
		if slices.Contains(states, p.State) {
			found = append(found, p.Handle)
		}
	}
	return found
}

func (w *world) forgotten() []string { return slices.Sorted(maps.Keys(w.gone)) }

// command plays one command and returns what followed. The error is the law
// that was broken.
func (w *world) command(c Command) (Decision, error) {
	d, err := w.decide(c)
	if err != nil {
		return d, err
	}
	before := w.live.Len()
	for _, e := range d.Events {
		if err := w.record(e); err != nil {
			return d, fmt.Errorf("after %#v: %w", c, err)
		}
	}
	return d, errors.Join(w.checkRegistries(), w.checkMemory(before), w.checkTick())
}

// decide checks that deciding changes nothing and depends on nothing but the
// registry's content.
func (w *world) decide(c Command) (Decision, error) {
	before := w.live.EncodeSnapshot()
	d := w.live.Decide(w.limits, w.now, c)
	if !bytes.Equal(before, w.live.EncodeSnapshot()) {
		return d, fmt.Errorf("deciding %#v changed the registry", c)
	}
	if d.Err != nil && len(d.Events)+len(d.Effects) > 0 {
		return d, fmt.Errorf("%#v was rejected, and more: %v", c, d)
	}
	restored, err := DecodeSnapshot(before)
	if err != nil {
		return d, err
	}
	if err := differ(w.live, restored); err != nil {
		return d, fmt.Errorf("after a snapshot: %w", err)
	}
	same := cmp.Diff(d, restored.Decide(w.limits, w.now, c), cmpopts.EquateErrors())
	if same != "" {
		return d, fmt.Errorf("an equal registry decides %#v differently: %s", c, same)
	}
	return d, errors.Join(w.checkStart(c, d), w.checkCollected(d))
}

// record stores an event and applies it to the live registry as it is, and to
// the derived one as it was stored.
func (w *world) record(e HandleEvent) error {
	rec := Record{Seq: w.live.Seq() + 1, Stamp: Stamp{w.now, 1}, Handle: e.Handle, Event: e.Event}
	payload := w.enc.Encode(&rec)
	stored, err := w.dec.Decode(rec.Seq, payload)
	if err != nil {
		return err
	}
	w.payloads = append(w.payloads, payload)
	switch e.Event.(type) {
	case *Collected, *StartFailed:
		w.gone[e.Handle] = true
	}
	return errors.Join(w.live.Apply(&rec), w.derived.Apply(&stored))
}

// checkRegistries: a replay's registry is the live one.
func (w *world) checkRegistries() error {
	if err := errors.Join(w.live.Check(), w.derived.Check()); err != nil {
		return err
	}
	return differ(w.live, w.derived)
}

// differ compares what two registries hold, in their own words and in those of
// a snapshot, which might have left something out.
func differ(a, b *Registry) error {
	if a.Seq() != b.Seq() || a.Partial() != b.Partial() || !bytes.Equal(a.EncodeSnapshot(), b.EncodeSnapshot()) {
		return errors.New("the registries differ")
	}
	diff := cmp.Diff(a.Processes(), b.Processes(), cmpopts.IgnoreUnexported(Process{}), byContent)
	if diff != "" {
		return fmt.Errorf("processes differ: %s", diff)
	}
	return nil
}

// checkMemory: the registry never outgrows its limit, and what is gone stays
// gone.
func (w *world) checkMemory(before int) error {
	if n := w.live.Len(); n > w.limits.MaxProcs && n > before {
		return fmt.Errorf("%d records of at most %d", n, w.limits.MaxProcs)
	}
	for handle := range w.gone {
		if w.live.Get(handle) != nil {
			return fmt.Errorf("%s was resurrected", handle)
		}
	}
	return nil
}

// checkCollected: only what ended is forgotten.
func (w *world) checkCollected(d Decision) error {
	for _, e := range d.Events {
		_, collected := e.Event.(*Collected)
		if p := w.live.Get(e.Handle); collected && (p == nil || !p.State.Ended()) {
			return fmt.Errorf("%s is collected, and had not ended", e.Handle)
		}
	}
	return nil
}

// checkStart: a start is refused for its handle or its key, or when every
// record is alive or under way; else nothing but room stands in its way.
func (w *world) checkStart(c Command, d Decision) error {
	start, ok := c.(Start)
	switch {
	case !ok:
		return nil
	case start.Handle == "" || w.live.Get(start.Handle) != nil:
		return want(d.Err, ErrHandleInUse)
	case d.Same != nil:
		return w.checkSame(start, d)
	case errors.Is(d.Err, ErrKeyInUse) && start.Spec.Idem != "":
		return nil
	}
	return w.checkRoom(d)
}

func want(got, err error) error {
	if !errors.Is(got, err) {
		return fmt.Errorf("%v instead of %v", got, err)
	}
	return nil
}

// checkSame: a start that is the same as another one is nothing new.
func (w *world) checkSame(c Start, d Decision) error {
	p := w.live.Get(d.Same.Handle)
	known := p != nil && p.Spec.Idem == c.Spec.Idem && p.Spec.IdemArgs == c.Spec.IdemArgs
	if len(d.Events)+len(d.Effects) > 0 || d.Err != nil || !known && !w.gone[d.Same.Handle] {
		return fmt.Errorf("%v is not the same as %v", c, d)
	}
	return nil
}

// checkRoom: room is made by the drained one that exited first, else by an
// undrained one.
func (w *world) checkRoom(d Decision) error {
	victim := ""
	if w.live.Len() >= w.limits.MaxProcs {
		ended := slices.DeleteFunc(w.live.Processes(), func(p *Process) bool { return !p.State.Ended() })
		if len(ended) == 0 {
			return want(d.Err, ErrRegistryFull)
		}
		victim = slices.MinFunc(ended, givenUpFirst).Handle
	}
	got := ""
	if len(d.Events) == 2 {
		got = d.Events[0].Handle
	}
	if d.Err != nil || got != victim {
		return fmt.Errorf("room was made by %q, not by %q: %v", got, victim, d.Err)
	}
	return nil
}

func givenUpFirst(a, b *Process) int {
	if a.State != b.State {
		return int(b.State) - int(a.State) // drained before exited
	}
	return int(a.ExitedSeq) - int(b.ExitedSeq)
}

// checkTick: NextTick names the first time at which a Tick has something to
// do: never later, so that nothing is late, and never earlier, so that nobody
// ticks in vain.
func (w *world) checkTick() error {
	does := func(at Instant) bool { return len(w.live.Decide(w.limits, at, Tick{}).Events) > 0 }
	ns, ok := w.live.NextTick(w.limits, w.now)
	if !ok {
		if does(w.now.after(1 << 61)) {
			return errors.New("a tick would do something, and none is due")
		}
		return nil
	}
	if !does(w.now.after(ns)) {
		return fmt.Errorf("a tick is due in %d ns and does nothing", ns)
	}
	for _, early := range []int64{0, ns / 2, ns - 1} {
		if early >= 0 && early < ns && does(w.now.after(early)) {
			return fmt.Errorf("a tick is due in %d ns and has something to do in %d", ns, early)
		}
	}
	return nil
}
