package statemachine

import (
	"fmt"
	"slices"
)

// maxForgotten bounds the keys kept of records that were collected.
const maxForgotten = 4096

// Key makes starts idempotent: a second start with the same name and the same
// arguments is the first one's. Names and arguments are keyed hashes.
//
// A key lives as long as its record, and for the retention time after it was
// collected. A start that fails frees its key.
type Key struct {
	Name         string
	Args         string
	Handle       string
	PID          int
	Forgotten    Instant // when the record was collected
	ForgottenSeq uint64  // 0 while there is a record
}

// alive tells whether the key still answers.
func (k *Key) alive(l Limits, now Instant) bool {
	return k.ForgottenSeq == 0 || age(k.Forgotten, now) < l.RetainNS
}

// find looks a start's key up; nil if it has none or the key is not taken.
func (r *Registry) find(l Limits, now Instant, s Spec) (*Key, error) {
	k := r.keys[s.Idem]
	switch {
	case s.Idem == "" || k == nil || !k.alive(l, now):
		return nil, nil
	case k.Args != s.IdemArgs:
		return nil, ErrKeyInUse
	}
	return k, nil
}

// noteKey keeps the registry's keys in step with an event about a process.
func (r *Registry) noteKey(p *Process, rec *Record) {
	name := p.Spec.Idem
	if name == "" {
		return
	}
	if _, ok := rec.Event.(*Requested); ok {
		r.takeKey(&Key{Name: name, Args: p.Spec.IdemArgs, Handle: p.Handle})
		return
	}
	k := r.keys[name]
	if k == nil || k.Handle != p.Handle { // a later start took the name over
		return
	}
	switch e := rec.Event.(type) {
	case *Started:
		k.PID = e.PID
	case *StartFailed:
		delete(r.keys, name)
	case *Collected:
		k.Forgotten, k.ForgottenSeq = rec.Stamp.Instant, rec.Seq
		r.forgetKey(k)
	}
}

// takeKey puts a key in place of one of the same name.
func (r *Registry) takeKey(k *Key) {
	if i := slices.Index(r.forgotten, r.keys[k.Name]); i >= 0 {
		r.forgotten = slices.Delete(r.forgotten, i, i+1)
	}
	r.keys[k.Name] = k
}

// forgetKey lines up a key whose record was collected; the oldest makes room.
func (r *Registry) forgetKey(k *Key) {
	r.forgotten = append(r.forgotten, k)
	if len(r.forgotten) > maxForgotten {
		delete(r.keys, r.forgotten[0].Name)
		r.forgotten = slices.Delete(r.forgotten, 0, 1)
	}
}

// restoreKeys derives the keys of records, and takes over the forgotten ones.
func (r *Registry) restoreKeys(processes []*Process, forgotten []*Key) {
	for _, p := range processes {
		if name := p.Spec.Idem; name != "" {
			r.keys[name] = &Key{Name: name, Args: p.Spec.IdemArgs, Handle: p.Handle, PID: p.Started.PID}
		}
	}
	r.forgotten = forgotten
	for _, k := range forgotten {
		r.keys[k.Name] = k
	}
}

// checkKeys verifies that every key is that of a record or of a forgotten one.
func (r *Registry) checkKeys() error {
	for _, k := range r.forgotten {
		if k.ForgottenSeq == 0 || r.keys[k.Name] != k {
			return fmt.Errorf("key of %s is lined up but not forgotten", k.Handle)
		}
	}
	held := 0
	for name, k := range r.keys {
		if k.ForgottenSeq != 0 {
			continue
		}
		held++
		if p := r.processes[k.Handle]; p == nil || p.Spec.Idem != name || p.Spec.IdemArgs != k.Args {
			return fmt.Errorf("key of %s has no record", k.Handle)
		}
	}
	if held+len(r.forgotten) != len(r.keys) || len(r.forgotten) > maxForgotten {
		return fmt.Errorf("%d keys, %d of records and %d forgotten", len(r.keys), held, len(r.forgotten))
	}
	return nil
}

type keyList []*Key

func (l *keyList) Len() int { return len(*l) }

// Least is well under what the names of a key's fields alone take.
func (l *keyList) Least() int { return 32 }

func (l *keyList) At(i int) fieldLister {
	if i == len(*l) {
		*l = append(*l, &Key{})
	}
	return (*l)[i]
}

func (k *Key) fields(v visitor) {
	v.String("name", &k.Name, always)
	v.String("args", &k.Args, always)
	v.String("handle", &k.Handle, always)
	v.Int("pid", &k.PID, always)
	v.Struct("forgotten", &k.Forgotten, always)
	v.Uint64("forgotten_seq", &k.ForgottenSeq, always)
}
