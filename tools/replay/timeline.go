package main

import (
	"bufio"
	"cmp"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"supervisor/statemachine"
)

// timelineCommand draws all processes on one line of time.
type timelineCommand struct {
	*program
	format format
	file   string
}

// format is a flag that names a form of the timeline.
type format string

var formats = map[format]func(s *scene, w *bufio.Writer, width int) error{
	"text":     (*scene).writeText,
	"html":     (*scene).writePage,
	"perfetto": (*scene).writeTrace,
}

// Set implements pflag.Value.
func (f *format) Set(name string) error {
	if formats[format(name)] == nil {
		return fmt.Errorf("want text, html or perfetto")
	}
	*f = format(name)
	return nil
}

// String implements pflag.Value.
func (f *format) String() string { return string(*f) }

// Type implements pflag.Value.
func (f *format) Type() string { return "FORMAT" }

func (p *program) timeline() *cobra.Command {
	t := &timelineCommand{program: p, format: "text"}
	cmd := p.command("timeline JOURNAL", "Draw when each process and the agent ran", t.run)
	cmd.Long = `Draw when each process and the agent ran, and what happened to them.

text draws a lane for each process. html writes one page that needs nothing
else: open it in a browser, zoom, search, click a process for its story.
perfetto writes a trace for ui.perfetto.dev or chrome://tracing.

Times follow the clock of the first record of each boot; a wall clock that was
set meanwhile moves nothing.`
	cmd.Flags().Var(&t.format, "format", "`FORMAT`: text, html or perfetto")
	cmd.Flags().StringVarP(&t.file, "output", "o", "", "write to `FILE`, which appears whole or not at all")
	return cmd
}

func (t *timelineCommand) run(src source, _ []string) error {
	s, err := readScene(src)
	if err != nil {
		return err
	}
	draw := func(w *bufio.Writer) error { return formats[t.format](s, w, t.width) }
	if t.file == "" {
		return draw(t.out)
	}
	return writeFile(t.file, draw)
}

// writeFile writes a file that appears whole or not at all. What is no regular
// file, such as a pipe, is written to.
func writeFile(name string, write func(w *bufio.Writer) error) (err error) {
	if info, err := os.Stat(name); err == nil && !info.Mode().IsRegular() {
		file, err := os.OpenFile(name, os.O_WRONLY, 0)
		if err != nil {
			return err
		}
		return writeAndClose(file, write)
	}
	partial := filepath.Join(filepath.Dir(name), "."+filepath.Base(name)+".partial")
	file, err := os.OpenFile(partial, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o666)
	if err != nil {
		return err
	}
	if err = writeAndClose(file, write); err == nil {
		err = os.Rename(partial, name)
	}
	if err != nil {
		os.Remove(partial)
	}
	return err
}

func writeAndClose(file io.WriteCloser, write func(w *bufio.Writer) error) error {
	w := bufio.NewWriterSize(file, 64<<10)
	err := cmp.Or(write(w), w.Flush())
	return cmp.Or(err, file.Close())
}

// scene is all that a timeline shows.
type scene struct {
	*chronicle
	lanes    []*life // in the order of their starts
	from, to int64   // the first and the last place on the axis
}

// What a scene keeps of each process.
const (
	laneSteps = 60
	laneTail  = 4096 // bytes of each stream
)

func readScene(src source) (*scene, error) {
	first, head, err := src.extent()
	if err != nil {
		return nil, err
	}
	s := &scene{}
	s.chronicle = &chronicle{keep: laneSteps, over: func(l *life) {
		l.Output.StdoutTail = lastBytes(l.Output.StdoutTail, laneTail)
		l.Output.StderrTail = lastBytes(l.Output.StderrTail, laneTail)
		s.lanes = append(s.lanes, l)
	}}
	if err := s.read(src, first, head.Seq); err != nil {
		return nil, err
	}
	slices.SortStableFunc(s.lanes, func(a, b *life) int { return cmp.Compare(a.from, b.from) })
	s.to = s.end
	s.from = s.to
	if len(s.agents) > 0 {
		s.from = s.agents[0].from
	}
	for _, l := range s.lanes {
		s.from = min(s.from, l.from)
	}
	return s, nil
}

// lastBytes is the end of b, in memory of its own where that is less.
func lastBytes(b []byte, most int) []byte {
	if len(b) <= most {
		return b
	}
	return slices.Clone(b[len(b)-most:])
}

// until is where a lane ends: at the process's end, or at the journal's.
func (s *scene) until(l *life) int64 {
	if l.to == 0 {
		return s.to
	}
	return max(l.to, l.from)
}

// end is a lane's end in a few words.
func (l *life) endWords() string {
	switch {
	case l.failed != nil:
		return "start failed"
	case l.State == statemachine.StateRequested:
		return "starting"
	case l.State.Alive():
		return "running"
	case l.State.Ended():
		return strings.TrimSuffix(ending(&l.Exit), " (exited)")
	}
	return "unknown"
}

// look is what a lane's end looks like: a class of the page's style sheet.
func (l *life) look() string {
	switch {
	case l.failed != nil:
		return "start-failed"
	case !l.State.Ended():
		return "running"
	case l.Exit.Reason != statemachine.ReasonExited:
		return string(l.Exit.Reason)
	case l.Exit.ExitCode != 0:
		return "failed"
	}
	return "ok"
}
