package main

import (
	"bufio"
	"fmt"
	"strings"

	"supervisor/statemachine"
)

// ruler maps places on the axis to the columns of a lane.
type ruler struct {
	from, to int64
	width    int
}

func (r ruler) column(at int64) int {
	if r.to <= r.from {
		return 0
	}
	share := float64(at-r.from) / float64(r.to-r.from)
	return max(0, min(r.width-1, int(share*float64(r.width))))
}

// lane is a row of characters.
type lane []rune

func (r ruler) lane() lane { return lane(strings.Repeat(" ", r.width)) }

// fill draws a line between two columns, both included.
func (l lane) fill(from, to int, with rune) {
	for i := from; i <= to; i++ {
		l[i] = with
	}
}

// Widths of a text timeline where no terminal tells one, and of its lanes.
const (
	textWidth = 120
	leastLane = 20
)

const legend = "= runs  - ended, output open  s signal sent  d deadline  f found again\n| exit 0  x other end  ? lost  ! start failed  > still there"

// writeText draws a lane for each process. Every handle is whole, whatever the
// width of the terminal.
func (s *scene) writeText(w *bufio.Writer, width int) error {
	if len(s.agents) == 0 {
		_, err := fmt.Fprintln(w, "no records")
		return err
	}
	if width == 0 {
		width = textWidth
	}
	r := ruler{s.from, s.to, max(leastLane, (width-handleWidth)/2)}
	from, to := local(s.from).Format(timeLayout), local(s.to).Format(timeLayout)
	fmt.Fprintf(w, "%*s  %s%*s\n", handleWidth, "", from, max(1+len(to), r.width-len(from)), to)
	fmt.Fprintf(w, "%-*s  %s\n", handleWidth, "agent", string(s.agentLane(r)))
	for _, l := range s.lanes {
		handle := fmt.Sprintf("%-*s", handleWidth, printable(l.Handle))
		line := handle + "  " + string(s.lane(r, l)) + "  " + printable(l.endWords()+"  "+spec(&l.Spec))
		if _, err := fmt.Fprintln(w, fit(strings.TrimRight(line, " "), len(handle), width)); err != nil {
			return err
		}
	}
	_, err := fmt.Fprintf(w, "\n%s\n", legend)
	return err
}

// agentLane draws the agent's lives and, between them, that there was none.
func (s *scene) agentLane(r ruler) lane {
	row := r.lane()
	for i := range s.agents {
		a := &s.agents[i]
		end := map[agentEnd]rune{agentOpen: '>', agentStopped: '|', agentCrashed: 'x'}[a.end]
		row.fill(r.column(a.from), r.column(a.to), '=')
		row[r.column(a.to)] = end
	}
	return row
}

func (s *scene) lane(r ruler, l *life) lane {
	row := r.lane()
	until := s.until(l)
	if l.drained > until {
		row.fill(r.column(until), r.column(l.drained), '-')
	}
	row.fill(r.column(l.from), r.column(until), '=')
	for i := range l.steps {
		if mark := markOf(l.steps[i].event); mark != 0 {
			row[r.column(l.steps[i].at)] = mark
		}
	}
	row[r.column(until)] = l.endMark()
	return row
}

// markOf is the sign of a step within a lane, 0 for none.
func markOf(e statemachine.Event) rune {
	switch e.(type) {
	case *statemachine.Signalled:
		return 's'
	case *statemachine.Deadline:
		return 'd'
	case *statemachine.Orphaned:
		return 'f'
	}
	return 0
}

func (l *life) endMark() rune {
	switch l.look() {
	case "start-failed":
		return '!'
	case "running":
		return '>'
	case "lost":
		return '?'
	case "ok":
		return '|'
	}
	return 'x'
}
