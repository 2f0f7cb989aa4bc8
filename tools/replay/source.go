package main

import (
	"errors"
	"fmt"
	"iter"

	"supervisor/journal"
	"supervisor/statemachine"
)

// source is a journal to read.
type source interface {
	// page returns the records after the given one in order, at least one if
	// there is any up to the head. Each is on the hash chain; the records
	// before a broken link come with the error that names it. Where the next
	// one was pruned, they start with the oldest retained one.
	page(after uint64) ([]journal.Record, error)
	// extent is the oldest retained record, the head's successor if there is
	// none, and the head as it is now.
	extent() (first uint64, head journal.Head, err error)
	// base is the link before the oldest retained record, if it is known.
	base() (journal.Head, bool)
	// snapshot is the newest snapshot of the record at or of one before it, and
	// whether there is one. A damaged one is found, and has its Seq.
	snapshot(at uint64) (journal.Snapshot, bool, error)
	close() error
}

// A page, at most.
const (
	pageRecords = 4096
	pageBytes   = 1 << 20
)

// open opens a JOURNAL. The caller closes it.
func open(name string) (source, error) {
	if isAddress(name) {
		return dial(name)
	}
	return openFile(name)
}

// fileSource is a journal file.
type fileSource struct{ *journal.Reader }

func openFile(name string) (source, error) {
	r, err := journal.OpenReadOnly(name)
	if errors.Is(err, journal.ErrLocked) {
		return nil, fmt.Errorf("%w; read a live agent's journal by its address, such as unix:/run/supervisor/agent.sock", err)
	}
	if err != nil {
		return nil, err
	}
	return fileSource{r}, nil
}

func (f fileSource) page(after uint64) ([]journal.Record, error) {
	return f.Read(after, pageRecords, pageBytes)
}

func (f fileSource) extent() (uint64, journal.Head, error) { return f.FirstSeq(), f.Head(), nil }

func (f fileSource) base() (journal.Head, bool) { return f.Base(), true }

func (f fileSource) snapshot(at uint64) (journal.Snapshot, bool, error) { return f.SnapshotAt(at) }

func (f fileSource) close() error { return f.Close() }

// batch is a page on its way.
type batch struct {
	records []journal.Record
	err     error
}

// records yields the records after one up to another. The next page is read,
// and its hashes are computed, while this one is looked at. An error comes
// last.
func records(src source, after, until uint64) iter.Seq2[journal.Record, error] {
	return func(yield func(journal.Record, error) bool) {
		stop, batches := make(chan struct{}), make(chan batch, 1)
		go readAhead(src, after, until, batches, stop)
		defer func() {
			close(stop)
			for range batches { // until the reader is gone: the source may be closed next
			}
		}()
		for b := range batches {
			for _, r := range b.records {
				if r.Seq > until || !yield(r, nil) {
					return
				}
			}
			if b.err != nil {
				yield(journal.Record{}, b.err)
				return
			}
		}
	}
}

// readAhead sends pages until there are no more, one failed, or stop is closed.
func readAhead(src source, after, until uint64, batches chan<- batch, stop <-chan struct{}) {
	defer close(batches)
	for after < until {
		rs, err := src.page(after)
		switch {
		case err == nil && len(rs) == 0:
			return
		case err == nil && rs[0].Seq != after+1:
			rs, err = nil, fmt.Errorf("records %d to %d were pruned meanwhile", after+1, rs[0].Seq-1)
		}
		select {
		case batches <- batch{rs, err}:
		case <-stop:
			return
		}
		if err != nil {
			return
		}
		after = rs[len(rs)-1].Seq
	}
}

// entry is a record that was read.
type entry struct {
	statemachine.Record
	hash journal.Hash
	size int // bytes of its stored form
}

// entries yields what records yields, decoded.
func entries(src source, after, until uint64) iter.Seq2[entry, error] {
	return decode(records(src, after, until))
}

func decode(stored iter.Seq2[journal.Record, error]) iter.Seq2[entry, error] {
	return func(yield func(entry, error) bool) {
		var d statemachine.Decoder
		for r, err := range stored {
			var rec statemachine.Record
			if err == nil {
				rec, err = d.Decode(r.Seq, r.Payload)
			}
			if !yield(entry{rec, r.Hash, len(r.Payload)}, err) || err != nil {
				return
			}
		}
	}
}

// each yields records that are at hand.
func each(rs []journal.Record) iter.Seq2[journal.Record, error] {
	return func(yield func(journal.Record, error) bool) {
		for _, r := range rs {
			if !yield(r, nil) {
				return
			}
		}
	}
}
