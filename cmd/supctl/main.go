// Command supctl talks to an agent, on either side of the vsock.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
)

// version is set when the binary is linked.
var version = "dev"

// Exit codes of supctl's own; run and wait also exit with a process's.
const (
	exitFailed = 1
	exitUsage  = 2
)

func main() {
	os.Exit(Run(context.Background(), os.Args[1:], os.Environ(), os.Stdin, os.Stdout, os.Stderr))
}

// Run is the program, less the process around it. It returns the exit code.
func Run(ctx context.Context, args, environ []string, stdin io.Reader, stdout, stderr io.Writer) int {
	a := &app{environ: environ, stdin: stdin, stdout: stdout, stderr: stderr}
	root := a.root()
	root.SetArgs(args)
	root.SetIn(stdin)
	root.SetOut(stdout)
	root.SetErr(stderr)
	err := root.ExecuteContext(ctx)
	var code exitCode
	switch {
	case err == nil:
		return 0
	case errors.As(err, &code):
		return int(code)
	}
	a.complain(err)
	if errors.As(err, new(usageError)) {
		return exitUsage
	}
	return exitFailed
}

// exitCode is an end with a code and without a message.
type exitCode int

func (c exitCode) Error() string { return fmt.Sprintf("exit code %d", int(c)) }

// usageError is a command line that cannot be meant.
type usageError struct{ error }

func usagef(format string, args ...any) error {
	return usageError{fmt.Errorf(format, args...)}
}

// complain writes an error as one line.
func (a *app) complain(err error) {
	a.remark("supctl: " + strings.ReplaceAll(err.Error(), "\n", "; "))
}
