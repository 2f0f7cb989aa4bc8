package main

import (
	"fmt"
	"strings"
)

// column is one of a table. The first is never cut; the last takes the room
// that is left.
type column struct {
	name  string
	right bool // of numbers: to the right
}

// row is what stands in the columns; paint, an escape sequence, is for the
// painted one.
type row struct {
	cells []string
	paint string
}

// table is rows in columns.
type table struct {
	columns []column
	painted int // the column that paint is for
	rows    []row
}

// gutter is what separates columns.
const gutter = "  "

// lines are the head and the rows, no wider than a terminal; 0 is none.
func (t *table) lines(terminal int, colour bool) []string {
	head := row{cells: make([]string, len(t.columns))}
	for i, c := range t.columns {
		head.cells[i] = c.name
	}
	widths := t.layout(head, terminal)
	lines := []string{t.line(head, widths, false)}
	for _, r := range t.rows {
		lines = append(lines, t.line(r, widths, colour))
	}
	return lines
}

// layout is the width of each column. Columns that do not fit are left out,
// the last first, and have width -1.
func (t *table) layout(head row, terminal int) []int {
	used := -len(gutter)
	widths := make([]int, len(t.columns))
	last := len(widths) - 1
	for c := range widths {
		widths[c] = width(head.cells[c])
		for _, r := range t.rows {
			widths[c] = max(widths[c], width(r.cells[c]))
		}
		room := terminal - used - len(gutter)
		switch {
		case terminal == 0 || c == 0:
		case c == last && room >= len(t.columns[c].name):
			widths[c] = room
		case room < widths[c]:
			widths[c] = -1
			terminal = min(terminal, used) // nothing fits behind a gap
			continue
		}
		used += widths[c] + len(gutter)
	}
	return widths
}

// line is a row in its columns.
func (t *table) line(r row, widths []int, colour bool) string {
	var b strings.Builder
	for c, width := range widths {
		if width < 0 {
			continue
		}
		if c > 0 {
			b.WriteString(gutter)
		}
		cell := t.cell(r, c, width)
		if colour && c == t.painted && r.paint != "" {
			cell = r.paint + cell + plainText
		}
		b.WriteString(cell)
	}
	return strings.TrimRight(b.String(), " ")
}

// cell pads what stands in a column, or cuts the last one.
func (t *table) cell(r row, c, width int) string {
	switch {
	case c == len(t.columns)-1:
		return fit(r.cells[c], width)
	case t.columns[c].right:
		return fmt.Sprintf("%*s", width, r.cells[c])
	default:
		return fmt.Sprintf("%-*s", width, r.cells[c])
	}
}
