// Replay reads a journal, from its file or from a live agent: what happened,
// what there was at any moment, and whether the record is sound.
//
// It derives everything with the packages that the agent itself uses, so what
// it shows is what the agent knew. It never changes a journal: a file is read
// as a copy. Memory does not grow with the journal: records are read in pages,
// and only the registry is kept.
package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime/debug"
	"strings"
	"syscall"

	"golang.org/x/term"
)

// version is set when the program is linked.
var version = "dev"

func main() {
	// What is kept is small and what is passed through is large: with the
	// usual setting a third of a fold's time goes to the collector.
	debug.SetGCPercent(400)
	os.Exit(run(os.Args[1:], os.Stdout, os.Stderr))
}

// Exit codes.
const (
	exitOK     = 0
	exitFailed = 1
	exitUsage  = 2
)

// program is one call of the command line.
type program struct {
	out   *bufio.Writer // stdout; flushed by run, and by whoever waits for more
	err   io.Writer     // stderr
	width int           // of the terminal on stdout in columns; 0 where there is none
	began bool          // the command line was understood
}

// run executes the command line and returns the exit code. An error is one
// line on stderr, after all that was printed before it.
func run(args []string, stdout, stderr io.Writer) int {
	p := &program{out: bufio.NewWriterSize(stdout, 64<<10), err: stderr, width: terminalWidth(stdout)}
	root := p.root()
	root.SetArgs(args)
	root.SetOut(p.out)
	root.SetErr(stderr)
	err := root.Execute()
	if flushed := p.out.Flush(); flushed != nil {
		err = flushed
	}
	switch {
	case err == nil, errors.Is(err, syscall.EPIPE): // the reader, such as head, has seen enough
		return exitOK
	case p.began:
		p.warn("%s", oneLine(err))
		return exitFailed
	}
	p.warn("%s", oneLine(err))
	return exitUsage
}

// printJSON prints a value as one line.
func (p *program) printJSON(v any) error {
	enc := json.NewEncoder(p.out)
	enc.SetEscapeHTML(false)
	return enc.Encode(v)
}

// warn prints a line on stderr.
func (p *program) warn(format string, args ...any) {
	fmt.Fprintf(p.err, "replay: "+format+"\n", args...)
}

// oneLine is an error's text without what could break the line.
func oneLine(err error) string {
	return printable(strings.ReplaceAll(err.Error(), "\n", "; "))
}

// terminalWidth is the width of the terminal that w is, 0 if it is none.
func terminalWidth(w io.Writer) int {
	file, ok := w.(*os.File)
	if !ok {
		return 0
	}
	width, _, err := term.GetSize(int(file.Fd()))
	if err != nil {
		return 0
	}
	return width
}
