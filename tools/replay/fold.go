package main

import (
	"cmp"
	"errors"
	"fmt"
	"iter"
	"math"

	"supervisor/journal"
	"supervisor/statemachine"
)

// fold derives a registry, record by record.
type fold struct {
	registry *statemachine.Registry
	decoder  statemachine.Decoder
}

// apply folds the next record. Errors name it.
func (f *fold) apply(stored journal.Record) (statemachine.Record, error) {
	rec, err := f.decoder.Decode(stored.Seq, stored.Payload)
	if err == nil {
		err = f.registry.Apply(&rec)
	}
	return rec, err
}

// errNoSnapshot is a journal without its oldest records and without the
// snapshot that stands for them: an old live agent does not serve it.
var errNoSnapshot = errors.New("there is no snapshot to start from")

// start returns the registry from which a fold up to the record at can go on:
// that of the last snapshot before, or of before the first record. It is an error
// if the oldest records were pruned and there is no snapshot of that time.
func start(src source, first, at uint64) (*statemachine.Registry, error) {
	var unreadable error // by this version
	for s, err := range snapshots(src, at) {
		if err != nil {
			return nil, err
		}
		r, err := restore(s)
		if err == nil {
			return r, nil
		}
		unreadable = cmp.Or(unreadable, err)
	}
	if first == 1 {
		return statemachine.NewRegistry(), nil
	}
	oldest, found, err := oldestSnapshot(src)
	switch err = cmp.Or(unreadable, err); {
	case err != nil:
		return nil, err
	case !found:
		return nil, fmt.Errorf("records 1 to %d were pruned, and %w", first-1, errNoSnapshot)
	}
	return nil, fmt.Errorf("records 1 to %d were pruned: the state is known from record %d on, not at record %d", first-1, oldest.Seq, at)
}

// oldestSnapshot is the first one from which a fold can start.
func oldestSnapshot(src source) (oldest journal.Snapshot, found bool, err error) {
	for s, err := range snapshots(src, math.MaxUint64) {
		if err != nil {
			return s, false, err
		}
		oldest, found = s, true
	}
	return oldest, found, nil
}

// snapshots yields those of the record at and before, the newest first. One
// that comes with an error is damaged.
func snapshots(src source, at uint64) iter.Seq2[journal.Snapshot, error] {
	return func(yield func(journal.Snapshot, error) bool) {
		for {
			s, found, err := src.snapshot(at)
			if err == nil && !found || !yield(s, err) || !found || s.Seq == 0 {
				return
			}
			at = s.Seq - 1
		}
	}
}

// restore reads the registry in a snapshot.
func restore(s journal.Snapshot) (*statemachine.Registry, error) {
	r, err := statemachine.DecodeSnapshot(s.Blob)
	if err == nil && r.Seq() != s.Seq {
		err = fmt.Errorf("it is one of record %d", r.Seq())
	}
	if err != nil {
		return nil, fmt.Errorf("the snapshot at record %d: %w", s.Seq, err)
	}
	return r, nil
}

// foldTo derives the registry as it was after the record at.
func foldTo(src source, first, at uint64) (*statemachine.Registry, error) {
	r, err := start(src, first, at)
	if err != nil {
		return nil, err
	}
	f := fold{registry: r}
	for stored, err := range records(src, r.Seq(), at) {
		if err == nil {
			_, err = f.apply(stored)
		}
		if err != nil {
			return nil, err
		}
	}
	if r.Seq() != at {
		return nil, fmt.Errorf("the journal ends at record %d, not at %d", r.Seq(), at)
	}
	return r, nil
}
