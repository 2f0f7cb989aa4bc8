package main

import (
	"bytes"
	"context"
	"errors"
	"strconv"

	"github.com/spf13/cobra"

	"supervisor/client"
)

func (a *app) logsCommand() *cobra.Command {
	var follow bool
	tail := -1
	cmd := &cobra.Command{
		Use:   "logs [-f] [--tail N] HANDLE",
		Short: "Print a process's output",
		Long: `Logs prints what the agent still holds of a process's output, stdout to stdout
and stderr to stderr. Bytes that are no longer held are reported on stderr.

With -f it goes on until both streams have ended.`,
		Example: `  supctl logs p_0123456789abcdef
  supctl logs -f --tail 10 p_0123456789abcdef`,
		Args:              operands("HANDLE"),
		ValidArgsFunction: a.completeHandles(anyProcess),
		RunE: a.connected(func(ctx context.Context, c *client.Client, args []string) error {
			handle, at, err := args[0], client.Position{}, error(nil)
			switch {
			case tail >= 0:
				at, err = a.printTail(ctx, c, handle, tail)
			case !follow:
				_, err = a.copyOut(c.Held(ctx, handle, at), at)
			}
			if err == nil && follow {
				_, err = a.copyOut(c.Follow(ctx, handle, at), at)
			}
			return err
		}),
	}
	cmd.Flags().BoolVarP(&follow, "follow", "f", false, "go on until the output ends")
	cmd.Flags().Var((*lineCount)(&tail), "tail", "begin with the last `N` lines of each stream")
	return cmd
}

// printTail writes the last lines of what is held of each stream, and returns
// where the streams go on.
func (a *app) printTail(ctx context.Context, c *client.Client, handle string, lines int) (client.Position, error) {
	tails := [2]tail{{lines: lines}, {lines: lines}}
	var at client.Position
	for k, err := range c.Held(ctx, handle, at) {
		if err != nil {
			return at, err
		}
		tails[k.Stream].add(k)
		at[k.Stream] = k.End()
	}
	for s := range tails {
		kept := func(yield func(client.Chunk, error) bool) { yield(tails[s].chunk(client.Stream(s)), nil) }
		if _, err := a.copyOut(kept, at); err != nil {
			return at, err
		}
	}
	return at, nil
}

// tail keeps the last lines of a stream.
type tail struct {
	lines   int
	dropped int64 // a gap right before data
	data    []byte
	end     int64
}

// trimAt is how much a tail gathers before it looks for what it can forget.
const trimAt = 1 << 20

func (t *tail) add(k client.Chunk) {
	if k.Dropped != 0 { // lines on both sides of a gap are not neighbours
		t.dropped, t.data = k.Dropped, t.data[:0]
	}
	t.data, t.end = append(t.data, k.Data...), k.End()
	if len(t.data) >= trimAt {
		t.trim()
	}
}

// trim forgets all but the last lines, and with them the gap before.
func (t *tail) trim() {
	from := len(t.data)
	if from > 0 && t.lines > 0 && t.data[from-1] == '\n' {
		from-- // the end of the last line does not begin another
	}
	for n := t.lines; n > 0 && from >= 0; n-- {
		from = bytes.LastIndexByte(t.data[:from], '\n')
	}
	if t.lines == 0 || from >= 0 {
		t.dropped = 0
	}
	if t.lines > 0 {
		from++
	}
	t.data = append(t.data[:0], t.data[from:]...)
}

// chunk is what is left.
func (t *tail) chunk(s client.Stream) client.Chunk {
	t.trim()
	return client.Chunk{Stream: s, Offset: t.end - int64(len(t.data)), Dropped: t.dropped, Data: t.data}
}

// lineCount is a flag's whole number, not negative.
type lineCount int

func (n *lineCount) Type() string { return "int" }

func (n *lineCount) String() string { return "" }

func (n *lineCount) Set(s string) error {
	v, err := strconv.ParseUint(s, 10, 31)
	if err != nil {
		return errors.New("want a number of lines")
	}
	*n = lineCount(v)
	return nil
}
