package main

import (
	"cmp"
	"crypto/sha256"
	"fmt"
	"math"

	"github.com/spf13/cobra"

	"supervisor/journal"
	"supervisor/statemachine"
)

func (p *program) verify() *cobra.Command {
	var log string
	cmd := p.command("verify JOURNAL", "Check the whole journal, or a log that was saved", func(src source, args []string) error {
		if log != "" {
			return p.verifyLog(src, log, args[0], args[1])
		}
		return p.runVerify(src, args)
	})
	cmd.Use += " [--log FILE HANDLE STREAM]"
	cmd.Args = func(_ *cobra.Command, args []string) error {
		if log != "" {
			return exactly("verify JOURNAL HANDLE STREAM")(cmd, args)
		}
		return exactly("verify JOURNAL")(cmd, args)
	}
	cmd.Long = `Check the whole journal: that no record is missing or altered (the hash
chain), that each can be read and can follow those before it, that the state
after each is sound, and that each snapshot is the state that it claims to be.

Exit 0 and one line with the head, or exit 1 and the first record that is bad.
A chain does not show that its end was cut off: compare the head with one that
was kept elsewhere.

With --log check a saved log instead: that FILE holds every byte that the
process HANDLE wrote to STREAM, stdout or stderr, and nothing else, by the
SHA-256 that the journal keeps of the whole stream.`
	cmd.Flags().StringVar(&log, "log", "", "check this `FILE`, a saved log")
	return cmd
}

func (p *program) runVerify(src source, _ []string) error {
	v, err := newVerifier(src)
	if err != nil {
		return err
	}
	for stored, err := range records(src, v.first-1, v.head.Seq) {
		if err == nil {
			err = v.check(stored)
		}
		if err != nil {
			return err
		}
	}
	if err := v.finish(); err != nil {
		return err
	}
	for _, doubt := range v.doubts {
		p.warn("%s", doubt)
	}
	if v.first > v.head.Seq {
		_, err = fmt.Fprintf(p.out, "ok: no records, head %s\n", v.head.Hash)
		return err
	}
	_, err = fmt.Fprintf(p.out, "ok: records %d..%d, head %s\n", v.first, v.head.Seq, v.head.Hash)
	return err
}

// verifier checks records one after the other. That they are on the chain is
// checked by the source.
type verifier struct {
	fold
	first     uint64 // the oldest retained record
	foldable  uint64 // the oldest one that can be folded
	head      journal.Head
	last      journal.Head    // the last record checked
	marks     map[uint64]mark // the snapshots, by the record that each is of
	flaw      error           // of a snapshot: told last, for it can be a consequence
	unchecked int             // changes of the registry since it was checked
	doubts    []string        // what could not be checked
}

// mark is what of a snapshot is compared.
type mark struct {
	hash    journal.Hash
	version int
	sum     [sha256.Size]byte // of its blob
}

// newVerifier starts at the first record, or, where the oldest were pruned, at
// the oldest snapshot: the records up to there can be read, but not folded.
func newVerifier(src source) (*verifier, error) {
	v := &verifier{fold: fold{registry: statemachine.NewRegistry()}, foldable: 1, marks: map[uint64]mark{}}
	var err error
	if v.first, v.head, err = src.extent(); err != nil {
		return nil, err
	}
	oldest := v.collect(src)
	switch {
	case v.first == 1:
	case oldest != nil:
		v.startAt(*oldest)
	default:
		v.foldable = v.head.Seq + 1
		v.missSnapshot(src)
	}
	return v, nil
}

// collect marks the snapshots and returns the oldest that is whole.
func (v *verifier) collect(src source) (oldest *journal.Snapshot) {
	for s, err := range snapshots(src, math.MaxUint64) {
		if err != nil {
			v.flaw = cmp.Or(v.flaw, err)
			continue
		}
		v.marks[s.Seq], oldest = mark{s.Hash, s.Version, sha256.Sum256(s.Blob)}, &s
	}
	return oldest
}

func (v *verifier) startAt(s journal.Snapshot) {
	v.foldable = s.Seq + 1
	r, err := restore(s)
	if err != nil {
		v.flaw, v.foldable = cmp.Or(v.flaw, err), v.head.Seq+1
		return
	}
	v.registry = r
}

// missSnapshot says that there is none where there should be one. An old live
// agent does not serve it.
func (v *verifier) missSnapshot(src source) {
	err := fmt.Errorf("records 1 to %d were pruned, and %w", v.first-1, errNoSnapshot)
	if _, live := src.(*liveSource); live {
		v.doubt("only the hash chain was checked, not the states: %v", err)
		return
	}
	v.flaw = cmp.Or(v.flaw, err)
}

// check checks the next record. Errors name it.
func (v *verifier) check(stored journal.Record) error {
	v.last = journal.Head{Seq: stored.Seq, Hash: stored.Hash}
	if stored.Seq < v.foldable {
		if _, err := v.decoder.Decode(stored.Seq, stored.Payload); err != nil {
			return err
		}
		return v.compare()
	}
	rec, err := v.apply(stored)
	if err == nil {
		err = v.audit(&rec)
	}
	if err == nil {
		err = v.compare()
	}
	return err
}

// audit checks the registry after a record that changed it. That takes a look
// at all of it, so a large one is not checked after each of its changes: the
// cost of a record must not grow with the number of processes.
func (v *verifier) audit(rec *statemachine.Record) error {
	const often = 64 // processes up to which each change is checked
	if rec.Handle == "" || rec.Event.Kind() == statemachine.KindVerb {
		return nil
	}
	if v.unchecked++; v.unchecked*often < v.registry.Len() {
		return nil
	}
	return v.checkRegistry()
}

func (v *verifier) checkRegistry() error {
	v.unchecked = 0
	if err := v.registry.Check(); err != nil {
		return fmt.Errorf("record %d: the state after it is wrong: %w", v.registry.Seq(), err)
	}
	return nil
}

// compare compares the snapshot of the last record, if there is one, with the
// chain and the state there.
func (v *verifier) compare() error {
	seq := v.last.Seq
	s, ok := v.marks[seq]
	switch {
	case !ok:
	case s.hash != v.last.Hash:
		return fmt.Errorf("record %d: the snapshot after it does not fit the hash chain", seq)
	case seq < v.foldable: // then the fold starts from it
	case s.version != statemachine.SnapshotVersion:
		v.doubt("the snapshot at record %d was not compared: it has version %d, this program knows %d", seq, s.version, statemachine.SnapshotVersion)
	case v.registry.Partial():
		v.doubt("the snapshot at record %d was not compared: records before it are of unknown kinds", seq)
	case s.sum != sha256.Sum256(v.registry.EncodeSnapshot()):
		return fmt.Errorf("record %d: the snapshot after it is not the state that the records give", seq)
	}
	return nil
}

func (v *verifier) doubt(format string, args ...any) {
	v.doubts = append(v.doubts, fmt.Sprintf(format, args...))
}

// finish checks that the journal ended where its head is, and what is left.
func (v *verifier) finish() error {
	if v.first <= v.head.Seq && v.last != v.head {
		return fmt.Errorf("record %d: the journal goes on to record %d, which cannot be read", v.last.Seq, v.head.Seq)
	}
	if v.flaw != nil {
		return v.flaw
	}
	if v.registry.Partial() {
		v.doubt("records of kinds unknown to this version were passed over")
	}
	return v.checkRegistry()
}
