package main

import (
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"supervisor/statemachine"
)

// stateCommand prints the registry as it was after a record.
type stateCommand struct {
	*program
	at   position
	json bool
}

func (p *program) state() *cobra.Command {
	s := &stateCommand{program: p}
	cmd := p.command("state JOURNAL", "Print the processes that there were at any moment", s.run)
	cmd.Long = `Print the processes that there were at any moment: now, or with --at after the
record SEQ, or after the last record that was not made later than TIME.

A start whose outcome is not known yet is in state requested; --json lists it
under "starting". Stream lengths are known once a process has drained.`
	cmd.Flags().Var(&s.at, "at", "the moment, a `SEQ|TIME`")
	cmd.Flags().BoolVar(&s.json, "json", false, "one JSON object")
	return cmd
}

func (s *stateCommand) run(src source, _ []string) error {
	first, head, err := src.extent()
	if err != nil {
		return err
	}
	at, stamp, err := s.at.locate(src, first, head.Seq)
	if err != nil {
		return err
	}
	registry, err := foldTo(src, first, at)
	if err != nil {
		return err
	}
	if registry.Partial() {
		s.warn("kinds of records unknown to this version were passed over: the state may differ from the agent's")
	}
	if s.json {
		return s.printJSON(stateOf(registry, stamp))
	}
	return s.printTable(registry, stamp, head.Seq)
}

// locate finds the record that is meant, and when it was made.
func (p *position) locate(src source, first, head uint64) (at uint64, stamp statemachine.Stamp, err error) {
	at = head
	switch {
	case !p.IsZero():
		at, err = lastNotAfter(src, first, head, p.Time)
	case p.text != "":
		at, err = p.seq, inRange(p.seq, first, head)
	}
	if err == nil && at >= first {
		stamp, err = stampOf(src, at)
	}
	return at, stamp, err
}

// inRange says whether the state after a record can be asked for.
func inRange(at, first, head uint64) error {
	switch {
	case first > head:
		return fmt.Errorf("record %d: the journal holds no records", at)
	case at < first || at > head:
		return fmt.Errorf("record %d is not among the records %d to %d of the journal", at, first, head)
	}
	return nil
}

// stampOf reads when a retained record was made.
func stampOf(src source, seq uint64) (statemachine.Stamp, error) {
	stored, err := src.page(seq - 1)
	if len(stored) == 0 {
		return statemachine.Stamp{}, err
	}
	var d statemachine.Decoder
	rec, err := d.Decode(stored[0].Seq, stored[0].Payload)
	return rec.Stamp, err
}

// lastNotAfter finds the last record that was not made after t. All are
// looked at: a wall clock can be set back.
func lastNotAfter(src source, first, head uint64, t time.Time) (at uint64, err error) {
	var oldest int64
	for e, err := range entries(src, first-1, head) {
		if err != nil {
			return 0, err
		}
		if e.Seq == first {
			oldest = e.Stamp.Wall
		}
		if e.Stamp.Wall <= t.UnixNano() {
			at = e.Seq
		}
	}
	if at == 0 && head >= first {
		return 0, fmt.Errorf("%s is before the records %d to %d of the journal, the first of which was made at %s",
			t.Local().Format(timeLayout), first, head, local(oldest).Format(timeLayout))
	}
	return at, nil
}
