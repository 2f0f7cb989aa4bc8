package main

import (
	"errors"
	"fmt"
	"iter"
	"strings"

	"github.com/spf13/cobra"

	"supervisor/journal"
	"supervisor/statemachine"
)

// eventsCommand prints records.
type eventsCommand struct {
	*program
	filter
	json, raw, follow bool
	day               string // that of the last line
	seqWidth          int    // digits of a sequence number
}

// filter says which records are wanted.
type filter struct {
	after  uint64
	handle string
	kinds  []string
	since  moment
}

func (p *program) events() *cobra.Command {
	e := &eventsCommand{program: p}
	cmd := p.command("events JOURNAL", "Print the records, oldest first", e.run)
	cmd.Long = `Print the records, oldest first.

--json prints what journal_read answers, one object a line. --raw prints what
an independent verifier needs: {"seq","hash","payload"}, the payload in base64.
Each hash is

    SHA-256(previous hash || seq as 8 bytes, big-endian || payload)

where the hash before record 1 is 32 zero bytes. A first line without payload
stands for what is not printed: its hash is the one to start from.`
	flags := cmd.Flags()
	flags.Uint64Var(&e.after, "after", 0, "only records after this `SEQ`")
	flags.StringVar(&e.handle, "handle", "", "only records about the process with this `HANDLE`")
	flags.StringSliceVar(&e.kinds, "kind", nil, "only records of this `KIND`, or of a family of kinds such as proc (repeatable)")
	flags.Var(&e.since, "since", "only records made at or after this `TIME`")
	flags.BoolVar(&e.json, "json", false, "one JSON object a line")
	flags.BoolVar(&e.raw, "raw", false, "the stored records and their hashes, for a verifier")
	flags.BoolVarP(&e.follow, "follow", "f", false, "wait for more (live agents only)")
	for _, other := range []string{"handle", "kind", "since", "json", "follow"} {
		cmd.MarkFlagsMutuallyExclusive("raw", other)
	}
	return cmd
}

func (e *eventsCommand) run(src source, _ []string) error {
	live, isLive := src.(*liveSource)
	if e.follow && !isLive {
		return errors.New("a file does not grow while it is read: -f takes the address of a live agent")
	}
	first, head, err := src.extent()
	if err != nil {
		return err
	}
	e.skipTo(first)
	if e.raw {
		return e.printRaw(src, head.Seq)
	}
	if !e.json {
		e.header(head.Seq)
	}
	err = e.print(records(src, e.after, head.Seq))
	if err != nil || !e.follow {
		return err
	}
	return e.wait(live, max(e.after, head.Seq))
}

// skipTo starts at the oldest retained record, and says so, if that is later.
func (e *eventsCommand) skipTo(first uint64) {
	if e.after+1 < first {
		e.warn("records %d to %d were pruned", e.after+1, first-1)
		e.after = first - 1
	}
}

// wait prints the records after the given one as they are made.
func (e *eventsCommand) wait(live *liveSource, after uint64) error {
	for e.after = after; ; {
		if err := e.out.Flush(); err != nil {
			return err
		}
		rs, err := live.next(e.after)
		if err != nil {
			return err
		}
		if len(rs) == 0 {
			continue
		}
		e.skipTo(rs[0].Seq)
		if err := e.print(each(rs)); err != nil {
			return err
		}
		e.after = rs[len(rs)-1].Seq
	}
}

// print prints those records that are wanted.
func (e *eventsCommand) print(stored iter.Seq2[journal.Record, error]) error {
	for rec, err := range decode(stored) {
		switch {
		case err != nil:
		case !e.wants(&rec.Record):
			continue
		case e.json:
			_, err = e.out.Write(append(rec.AppendJSON(e.out.AvailableBuffer(), rec.hash.String()), '\n'))
		default:
			err = e.line(&rec.Record)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (f *filter) wants(rec *statemachine.Record) bool {
	return (f.handle == "" || rec.Handle == f.handle) &&
		(f.since.IsZero() || rec.Stamp.Wall >= f.since.UnixNano()) &&
		(len(f.kinds) == 0 || f.wantsKind(string(rec.Event.Kind())))
}

func (f *filter) wantsKind(kind string) bool {
	for _, k := range f.kinds {
		if kind == k || strings.HasPrefix(kind, k+".") {
			return true
		}
	}
	return false
}

// Widths of the columns of kinds and handles, where nothing is longer.
const (
	kindWidth   = len(statemachine.KindStartFailed)
	handleWidth = len("p_0123456789abcdef")
)

func (e *eventsCommand) header(head uint64) {
	e.seqWidth = max(len("SEQ"), len(fmt.Sprint(head)))
	fmt.Fprintf(e.out, "%*s  %-*s  %-*s  %-*s  %s\n",
		e.seqWidth, "SEQ", len(clockLayout), "TIME", kindWidth, "KIND", handleWidth, "HANDLE", "WHAT")
}

// line prints a record for people, below its day where that is another than
// the one before.
func (e *eventsCommand) line(rec *statemachine.Record) error {
	at := local(rec.Stamp.Wall)
	if day := at.Format(dayLayout); day != e.day {
		e.day = day
		fmt.Fprintf(e.out, "%*s  %s\n", e.seqWidth, "", day)
	}
	place := printable(fmt.Sprintf("%*d  %s  %-*s  %-*s",
		e.seqWidth, rec.Seq, at.Format(clockLayout), kindWidth, rec.Event.Kind(), handleWidth, rec.Handle))
	line := strings.TrimRight(place+"  "+printable(words(rec)), " ")
	_, err := fmt.Fprintln(e.out, fit(line, len(place), e.width))
	return err
}
