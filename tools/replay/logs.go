package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"supervisor/statemachine"
)

// logsCommand prints the end of a process's output.
type logsCommand struct {
	*program
	stream stream
}

// stream is a flag that names an output stream.
type stream string

// Set implements pflag.Value.
func (s *stream) Set(name string) error {
	if name != "stdout" && name != "stderr" {
		return fmt.Errorf("want stdout or stderr")
	}
	*s = stream(name)
	return nil
}

// String implements pflag.Value.
func (s *stream) String() string { return string(*s) }

// Type implements pflag.Value.
func (s *stream) Type() string { return "STREAM" }

func (p *program) logs() *cobra.Command {
	l := &logsCommand{program: p, stream: "stdout"}
	cmd := p.command("logs JOURNAL HANDLE", "Print the last output of a process", l.run)
	cmd.Long = `Print the last output of a process, byte by byte, as the journal keeps it from
the moment that the process has drained. What was written before that is named
on stderr. All output of a terminal is on stdout.`
	cmd.Flags().Var(&l.stream, "stream", "which `STREAM`, stdout or stderr")
	return cmd
}

func (l *logsCommand) run(src source, args []string) error {
	output, err := lastOutput(src, args[0])
	if err != nil {
		return err
	}
	total, tail := output.StdoutLen, output.StdoutTail
	if l.stream == "stderr" {
		total, tail = output.StderrLen, output.StderrTail
	}
	if before := total - int64(len(tail)); before > 0 {
		l.warn("%s of %s: the first %d of %s are not in the journal", l.stream, args[0], before, bytesOf(total))
	}
	_, err = l.out.Write(tail)
	return err
}

// lastOutput finds what a process left behind: in a record, or in the snapshot
// where that record was pruned.
func lastOutput(src source, handle string) (*statemachine.Drained, error) {
	first, head, err := src.extent()
	if err != nil {
		return nil, err
	}
	known, output, err := outputInSnapshot(src, handle)
	if err != nil {
		return nil, err
	}
	for e, err := range entries(src, first-1, head.Seq) {
		switch event := e.Event.(type) {
		case nil:
			return nil, err
		case *statemachine.Requested:
			known = known || e.Handle == handle
		case *statemachine.Drained:
			if e.Handle == handle {
				output = event
			}
		}
	}
	switch {
	case output != nil:
		return output, nil
	case known:
		return nil, fmt.Errorf("%s had not drained by record %d: no output of it is in the journal yet", handle, head.Seq)
	}
	return nil, fmt.Errorf("no process %s is in the journal", handle)
}

// outputInSnapshot looks a process up in the oldest snapshot, if there is one that
// this version can read: the records before it may have been pruned.
func outputInSnapshot(src source, handle string) (known bool, output *statemachine.Drained, err error) {
	s, found, err := oldestSnapshot(src)
	if err != nil || !found {
		return false, nil, err
	}
	r, err := restore(s)
	if err != nil {
		return false, nil, nil
	}
	p := r.Get(handle)
	if p != nil && drained(p) {
		output = &p.Output
	}
	return p != nil, output, nil
}
