package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"supervisor/client"
)

// What a terminal is told: to use a second screen without a cursor, and to
// show nothing of a frame before it is whole (where it can). Only what is left
// of a line or of the screen is cleared: behind the last column the cursor is
// still on it, and would clear what stands there.
const (
	enterScreen = "\x1b[?1049h\x1b[?25l\x1b[?7l"
	leaveScreen = "\x1b[?7h\x1b[?25h\x1b[?1049l"
	beginFrame  = "\x1b[?2026h\x1b[H"
	clearRest   = "\x1b[K"
	clearBelow  = "\r\n\x1b[J"
	endFrame    = "\x1b[?2026l"
)

func (a *app) topCommand() *cobra.Command {
	every := time.Second
	cmd := &cobra.Command{
		Use:   "top [--every DURATION]",
		Short: "Watch processes, their output and the journal",
		Long: `Top shows the processes, what they write each second and the head of the journal, and
keeps that up to date. Arrows, j and k move through a list that is too long; q ends.`,
		Example: `  supctl top
  supctl top --every 200ms`,
		Args: operands(),
		RunE: a.connected(tidily(func(ctx context.Context, c *client.Client, _ []string) error {
			if a.terminalIn() == nil || a.terminalWidth() == 0 {
				return errors.New("top needs a terminal: see ps")
			}
			w := &watch{app: a, client: c, every: max(every, 50*time.Millisecond)}
			return a.inRawMode(func() error {
				io.WriteString(a.stdout, enterScreen)
				defer io.WriteString(a.stdout, leaveScreen)
				return w.run(ctx)
			})
		})),
	}
	cmd.Flags().DurationVar(&every, "every", every, "how often to look, at least 50ms")
	return cmd
}

// watch is what top shows.
type watch struct {
	*app
	client *client.Client
	every  time.Duration

	info    client.InfoReply
	journal client.JournalInfoReply
	procs   []client.Proc
	trouble error // why the last look failed

	looked  time.Time
	written map[string]int64 // bytes of both streams at the last look
	rates   map[string]int64 // bytes a second
	first   int              // the row at the top
}

// run shows what there is until q, or until ctx ends.
func (w *watch) run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	keys, sizes := make(chan string), w.sizes(ctx)
	go w.readKeys(ctx, keys)
	ticker := time.NewTicker(w.every)
	defer ticker.Stop()
	w.look(ctx, time.Now())
	for {
		w.draw(time.Now())
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case typed, more := <-keys:
			if !more || strings.ContainsAny(typed, "q\x03") {
				return nil
			}
			w.move(typed)
		case <-sizes:
		case now := <-ticker.C:
			w.look(ctx, now)
		}
	}
}

// readKeys tells what is typed until there is no more.
func (w *watch) readKeys(ctx context.Context, keys chan<- string) {
	defer close(keys)
	buf := make([]byte, 64)
	for {
		n, err := w.stdin.Read(buf)
		if err != nil {
			return
		}
		select {
		case keys <- string(buf[:n]):
		case <-ctx.Done():
			return
		}
	}
}

// move moves through the rows, as far as the keys say that were typed since the
// last frame. The next one keeps it within them.
func (w *watch) move(typed string) {
	for _, down := range []string{"j", "\x1b[B", "\x1bOB"} {
		w.first += strings.Count(typed, down)
	}
	for _, up := range []string{"k", "\x1b[A", "\x1bOA"} {
		w.first -= strings.Count(typed, up)
	}
}

// look asks the agent, which has until the next look to answer.
func (w *watch) look(ctx context.Context, now time.Time) {
	ctx, cancel := context.WithTimeout(ctx, max(w.every, time.Second))
	defer cancel()
	var err error
	if w.info, err = w.client.Info(ctx); err == nil {
		w.procs, err = w.client.List(ctx)
	}
	if err == nil {
		w.journal, err = w.client.JournalInfo(ctx)
	}
	if w.trouble = err; err != nil {
		return
	}
	slices.SortStableFunc(w.procs, func(p, q client.Proc) int {
		switch {
		case p.Running == q.Running:
			return 0
		case p.Running:
			return -1
		}
		return 1
	})
	w.measure(now)
}

// measure works out what was written since the last look.
func (w *watch) measure(now time.Time) {
	written, rates := map[string]int64{}, map[string]int64{}
	for _, p := range w.procs {
		written[p.Handle] = p.StdoutLen + p.StderrLen
		if before, known := w.written[p.Handle]; known {
			passed := max(now.Sub(w.looked), time.Millisecond)
			rates[p.Handle] = int64(float64(written[p.Handle]-before) / passed.Seconds())
		}
	}
	w.written, w.rates, w.looked = written, rates, now
}

// draw writes one frame.
func (w *watch) draw(now time.Time) {
	cols, rows := w.terminalWidth(), 24
	if f := w.terminalIn(); f != nil {
		if c, r, err := term.GetSize(int(f.Fd())); err == nil {
			cols, rows = c, r
		}
	}
	io.WriteString(w.stdout, drawn(w.frame(cols, rows, now), cols, rows))
}

// drawn is a frame as it is told to a terminal of a size.
func drawn(lines []string, cols, rows int) string {
	for i, line := range lines {
		if width(unpainted(line)) < cols {
			lines[i] += clearRest
		}
	}
	frame := beginFrame + strings.Join(lines, "\r\n")
	if len(lines) < rows {
		frame += clearBelow
	}
	return frame + endFrame
}

// topColumns are those of ps and the rate.
var topColumns = []column{
	{"HANDLE", false}, {"PID", true}, {"STATE", false}, {"AGE", false}, {"OUT", true}, {"OUT/s", true}, {"CMD", false},
}

// frame is what fits on a screen: two lines about the agent, then the
// processes.
func (w *watch) frame(cols, rows int, now time.Time) []string {
	t := table{columns: topColumns, painted: stateColumn}
	for _, p := range w.procs {
		t.rows = append(t.rows, row{[]string{
			p.Handle, fmt.Sprint(p.PID), state(p), age(p, now), size(w.written[p.Handle]), rate(w.rates[p.Handle]), quoted(p.Cmd),
		}, paint(p)})
	}
	room := max(rows-4, 0) // below the summary and the head of the table
	w.first = max(0, min(w.first, len(t.rows)-room))
	all := t.lines(cols, w.colour())
	shown := all[1+w.first : min(len(all), 1+w.first+room)]
	lines := slices.Concat(w.summary(cols, len(shown)), all[:1], shown)
	return lines[:min(rows, len(lines))]
}

// summary is about the agent: two lines, and one of what is wrong, or which of
// the processes are shown if there is no room for all of them.
func (w *watch) summary(cols, shown int) []string {
	running, total := 0, int64(0)
	for _, p := range w.procs {
		if p.Running {
			running++
		}
		total += w.rates[p.Handle]
	}
	third := ""
	switch {
	case w.trouble != nil:
		third = "the agent does not answer: " + printable(w.trouble.Error())
	case shown > 0 && shown < len(w.procs):
		third = fmt.Sprintf("%d to %d of %d: arrows move, q ends", w.first+1, w.first+shown, len(w.procs))
	}
	return []string{
		fit(fmt.Sprintf("agent %s, up %v, %d running, %d ended, %s/s of output", printable(w.info.AgentVersion),
			time.Duration(w.info.UptimeSec)*time.Second, running, len(w.procs)-running, size(total)), cols),
		fit(fmt.Sprintf("journal %s, head %d %.12s, %s", printable(w.info.Journal), w.journal.HeadSeq,
			printable(w.journal.HeadHash), size(w.journal.Bytes)), cols),
		fit(third, cols),
	}
}

// rate is bytes a second; nothing for none.
func rate(n int64) string {
	if n == 0 {
		return ""
	}
	return size(n)
}
