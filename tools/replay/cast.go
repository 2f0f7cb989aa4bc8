package main

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"supervisor/statemachine"
)

func (p *program) cast() *cobra.Command {
	cmd := p.command("cast JOURNAL HANDLE", "Print the last output of a terminal for asciinema", p.runCast)
	cmd.Long = `Print the last output of a terminal as a recording in the format asciicast v2,
which asciinema and other players show.

The journal keeps the end of what a terminal showed, but not when: all of it
comes at once, at the moment when the terminal was drained. The times of new
sizes, and of input as markers, are those of the journal. What is missing is in
the title of the recording.`
	return cmd
}

// castHeader is the first line of a recording.
// https://docs.asciinema.org/manual/asciicast/v2/
type castHeader struct {
	Version   int     `json:"version"`
	Width     int     `json:"width"`
	Height    int     `json:"height"`
	Timestamp int64   `json:"timestamp,omitempty"`
	Duration  float64 `json:"duration"`
	IdleLimit float64 `json:"idle_time_limit"` // seconds that a player waits at most
	Command   string  `json:"command,omitempty"`
	Title     string  `json:"title"`
}

// castEvent is a line of a recording: seconds since its start, what kind of
// thing happens, and the data.
type castEvent [3]any

// The kinds of lines.
const (
	castOutput = "o"
	castResize = "r"
	castMarker = "m"
)

func (p *program) runCast(src source, args []string) error {
	_, l, err := findLife(src, new(position), args[0])
	if err != nil {
		return err
	}
	switch {
	case !l.Spec.PTY:
		return fmt.Errorf("%s had no terminal: see replay logs", args[0])
	case !drained(&l.Process):
		return fmt.Errorf("the terminal of %s was not drained: no output of it is in the journal yet", args[0])
	}
	if err := p.printJSON(l.castHeader()); err != nil {
		return err
	}
	for _, e := range l.castEvents() {
		if err := p.printJSON(e); err != nil {
			return err
		}
	}
	return nil
}

func (l *life) castHeader() castHeader {
	const usualCols, usualRows = 80, 24
	return castHeader{
		Version: 2, Width: cmp.Or(l.cols, l.Spec.Cols, usualCols), Height: cmp.Or(l.rows, l.Spec.Rows, usualRows),
		Timestamp: l.StartedAt.Wall / 1e9, Duration: l.seconds(l.drained), IdleLimit: 2,
		Command: printable(command(l.Spec.Cmd)), Title: l.castTitle(),
	}
}

// castTitle says what is not in the recording.
func (l *life) castTitle() string {
	title := printable(l.Handle) + ": when the output was written is not known"
	if missing := l.Output.StdoutLen - int64(len(l.Output.StdoutTail)); missing > 0 {
		title += fmt.Sprintf("; the first %d of %s are missing", missing, bytesOf(l.Output.StdoutLen))
	}
	if l.cut {
		title += "; its first records were pruned"
	}
	if l.omitted > 0 {
		title += fmt.Sprintf("; %d records are left out", l.omitted)
	}
	return title
}

// castEvents are the lines after the header, in the order of their times.
func (l *life) castEvents() []castEvent {
	var events []castEvent
	for i := range l.steps {
		s := &l.steps[i]
		at := l.seconds(s.at)
		switch e := s.event.(type) {
		case *statemachine.Resized:
			events = append(events, castEvent{at, castResize, fmt.Sprintf("%dx%d", e.Cols, e.Rows)})
		case *statemachine.Stdin, *statemachine.StdinClosed, *statemachine.Signalled:
			events = append(events, castEvent{at, castMarker, l.says(s)})
		}
	}
	output := castEvent{l.seconds(l.drained), castOutput, text(l.Output.StdoutTail)}
	at, _ := slices.BinarySearchFunc(events, l.seconds(l.drained), func(e castEvent, at float64) int { return cmp.Compare(e[0].(float64), at) })
	return slices.Insert(events, at, output)
}

// seconds is a place as a time since the start.
func (l *life) seconds(at int64) float64 { return float64(max(at-l.from, 0)/1000) / 1e6 }

// text is bytes as a string. What was cut off in the middle of a character is
// left out, other bytes that are not UTF-8 become U+FFFD.
func text(b []byte) string {
	for i := 0; i < min(len(b), utf8.UTFMax-1) && !utf8.RuneStart(b[0]); i++ {
		b = b[1:]
	}
	return strings.ToValidUTF8(string(b), "\uFFFD")
}
