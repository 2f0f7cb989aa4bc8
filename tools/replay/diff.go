package main

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
)

// diffCommand prints what changed between two states.
type diffCommand struct {
	*program
	json bool
}

func (p *program) diff() *cobra.Command {
	d := &diffCommand{program: p}
	cmd := p.command("diff JOURNAL A B", "Print what changed between two moments", d.run)
	cmd.Long = `Print what changed between two moments A and B, each a SEQ or a TIME: processes
that are new (+), changed (~) or forgotten (-). Only the two states are
compared: a process that came and went between them is not shown.

With --json the changes are those of what state --json prints, field by field:
made to the state at A they give the state at B.`
	cmd.Flags().BoolVar(&d.json, "json", false, "one JSON object")
	return cmd
}

func (d *diffCommand) run(src source, args []string) error {
	first, head, err := src.extent()
	if err != nil {
		return err
	}
	var states [2]*stateJSON
	for i, text := range args {
		if states[i], err = stateAt(src, text, first, head.Seq); err != nil {
			return err
		}
	}
	if d.json {
		return d.printJSON(compareStates(states[0], states[1]))
	}
	return d.print(states[0], states[1])
}

// stateAt derives the state at a moment.
func stateAt(src source, text string, first, head uint64) (*stateJSON, error) {
	var p position
	if err := p.Set(text); err != nil {
		return nil, fmt.Errorf("%q: %w", text, err)
	}
	seq, stamp, err := p.locate(src, first, head)
	if err != nil {
		return nil, err
	}
	r, err := foldTo(src, first, seq)
	if err != nil {
		return nil, err
	}
	return stateOf(r, stamp), nil
}

// print prints the changes for people.
func (d *diffCommand) print(a, b *stateJSON) error {
	fmt.Fprintf(d.out, "from %s to %s\n", endpoint(a), endpoint(b))
	changes := compareRows(a.rows(), b.rows())
	if len(changes.Added)+len(changes.Removed)+len(changes.Changed) == 0 {
		_, err := fmt.Fprintln(d.out, "no process changed")
		return err
	}
	for _, handle := range changes.Removed {
		d.line("-", handle, "forgotten")
	}
	for _, c := range changes.Changed {
		d.line("~", c.Handle, changed(c.Fields))
	}
	for _, row := range changes.Added {
		var cmd []string
		_ = json.Unmarshal(row["cmd"], &cmd) // a row of ours
		d.line("+", row.text("handle"), row.text("state")+"  "+command(cmd))
	}
	return nil
}

func (d *diffCommand) line(sign, handle, what string) {
	handle = printable(handle)
	fmt.Fprintln(d.out, fit(fmt.Sprintf("%s %s  %s", sign, handle, printable(what)), len("~ ")+len(handle), d.width))
}

func endpoint(s *stateJSON) string {
	text := fmt.Sprintf("record %d", s.Seq)
	if s.Time != nil {
		text += " (" + s.Time.Local().Format(timeLayout) + ")"
	}
	return text
}

// changed tells changed fields in one line. running follows from state.
func changed(fields map[string]fieldJSON) string {
	var all []string
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		if name != "running" {
			f := fields[name]
			all = append(all, fmt.Sprintf("%s %s -> %s", name, side(f.From), side(f.To)))
		}
	}
	return strings.Join(all, ", ")
}

// side is a value as people write it.
func side(v json.RawMessage) string {
	if v == nil {
		return "-"
	}
	var t time.Time
	if json.Unmarshal(v, &t) == nil {
		return t.Local().Format(clockLayout)
	}
	return fieldsJSON{"": v}.text("")
}
