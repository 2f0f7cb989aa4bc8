package main

import (
	"bytes"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
)

// whyCommand tells the story of one process.
type whyCommand struct {
	*program
	at   position
	json bool
}

// whySteps is how many steps of a process are told.
const whySteps = 400

func (p *program) why() *cobra.Command {
	w := &whyCommand{program: p}
	cmd := p.command("why JOURNAL HANDLE", "Tell why a process ended, or did not start, or still runs", w.run)
	cmd.Long = `Tell why a process ended, or did not start, or still runs: the records that led
there, in sentences. Who asked for it and for what, which signals, deadlines and
input came, what the kernel said of its end, the last of its output, and what is
not known and why. Requests that only asked about it are counted; steps alike in
a row are told as one.`
	cmd.Flags().Var(&w.at, "at", "tell what was known at the moment `SEQ|TIME`")
	cmd.Flags().BoolVar(&w.json, "json", false, "one JSON object")
	return cmd
}

func (w *whyCommand) run(src source, args []string) error {
	c, l, err := findLife(src, &w.at, args[0])
	if err != nil {
		return err
	}
	a := c.account(l)
	if w.json {
		return w.printJSON(a)
	}
	return w.print(a)
}

// findLife reads the life of one process up to a moment.
func findLife(src source, at *position, handle string) (*chronicle, *life, error) {
	first, head, err := src.extent()
	if err != nil {
		return nil, nil, err
	}
	until, _, err := at.locate(src, first, head.Seq)
	if err != nil {
		return nil, nil, err
	}
	var found *life
	near := nearest{to: handle}
	c := &chronicle{
		keep:  whySteps,
		wants: func(other string) bool { return other == handle || near.see(other) },
		over:  func(l *life) { found = l },
	}
	if err := c.read(src, first, until); err != nil {
		return nil, nil, err
	}
	if found == nil {
		return nil, nil, fmt.Errorf("no process %s is in the journal%s", handle, near.hint())
	}
	return c, found, nil
}

// nearest collects the handles most like one that is asked for.
type nearest struct {
	to   string
	seen []string // nearest first
}

// see looks at a handle. It is never the one asked for.
func (n *nearest) see(handle string) bool {
	const most, far = 3, 4
	d := distance(n.to, handle)
	if d > far || slices.Contains(n.seen, handle) {
		return false
	}
	at := slices.IndexFunc(n.seen, func(other string) bool { return distance(n.to, other) > d })
	if at < 0 {
		at = len(n.seen)
	}
	n.seen = slices.Insert(n.seen, at, handle)
	n.seen = n.seen[:min(len(n.seen), most)]
	return false
}

// distance counts the places in which two handles differ; a beginning of at
// least a digit differs in none.
func distance(asked, handle string) (d int) {
	if len(asked) > len("p_") && strings.HasPrefix(handle, asked) {
		return 0
	}
	for i := range max(len(asked), len(handle)) {
		if i >= len(asked) || i >= len(handle) || asked[i] != handle[i] {
			d++
		}
	}
	return d
}

func (n *nearest) hint() string {
	if len(n.seen) == 0 {
		return ""
	}
	return "; did you mean " + strings.Join(n.seen, " or ") + "?"
}

// print tells an account to people.
func (w *whyCommand) print(a *account) error {
	fmt.Fprintf(w.out, "%s %s.\n", printable(a.Handle), printable(a.Summary))
	if a.Ran != "" {
		fmt.Fprintf(w.out, "It ran for %s.\n", a.Ran)
	}
	fmt.Fprintln(w.out)
	w.printSteps(a)
	if o := a.Output; o != nil {
		w.printTail("stdout", &o.Stdout)
		w.printTail("stderr", &o.Stderr)
	}
	if len(a.Unknown) > 0 {
		fmt.Fprintln(w.out, "\nNot known:")
	}
	for _, u := range a.Unknown {
		fmt.Fprintf(w.out, "  - %s\n", printable(u))
	}
	return nil
}

// printSteps prints the steps, each below its day where that is another.
func (w *whyCommand) printSteps(a *account) {
	day := ""
	for _, s := range a.Steps {
		if d := s.Time.Local().Format(dayLayout); d != day {
			day = d
			fmt.Fprintf(w.out, "  %s\n", day)
		}
		fmt.Fprintf(w.out, "  %s  %6d  %s\n", s.Time.Local().Format(clockLayout), s.Seq, printable(s.text()))
	}
	if len(a.Reads) > 0 {
		fmt.Fprintf(w.out, "  Requests that only asked about it: %s.\n", printable(counts(a.Reads)))
	}
}

// counts lists counted names, in their order.
func counts(of map[string]int) string {
	var all []string
	for name, n := range of {
		all = append(all, fmt.Sprintf("%s %d", name, n))
	}
	slices.Sort(all)
	return strings.Join(all, ", ")
}

// printTail prints the last lines of a stream.
func (w *whyCommand) printTail(name string, s *streamJSON) {
	const most = 20
	if s.Len == 0 {
		return
	}
	lines := bytes.SplitAfter(bytes.TrimSuffix(s.Tail, []byte("\n")), []byte("\n"))
	lines = lines[max(0, len(lines)-most):]
	fmt.Fprintf(w.out, "\nThe last of %s of %s:\n", bytesOf(s.Len), name)
	fmt.Fprint(w.out, indent(string(bytes.Join(lines, nil)), "  | "))
}
