// Command supervisor is the agent that runs in the guest.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/spf13/pflag"

	"supervisor/engine"
)

// version is set when the binary is linked.
var version = "dev"

// Exit codes.
const (
	exitFailed = 1
	exitUsage  = 2
)

const usage = `supervisor runs processes for others, and remembers what happened to them.

Usage:
  supervisor serve [flags]   run the agent
  supervisor preflight STATE tell whether this image could take over
  supervisor --version       print the version
`

func main() {
	err := Run(context.Background(), os.Args[1:], os.Environ(), os.Stdout, os.Stderr)
	if err == nil {
		return
	}
	tell(os.Stderr, "supervisor: %s\n", err)
	if errors.As(err, new(usageError)) {
		os.Exit(exitUsage)
	}
	os.Exit(exitFailed)
}

// usageError is a command line that cannot be meant.
type usageError struct{ error }

func usagef(format string, args ...any) error {
	return usageError{fmt.Errorf(format, args...)}
}

// Run is the program, less the process around it.
func Run(ctx context.Context, args, environ []string, stdout, stderr io.Writer) error {
	if len(args) == 0 {
		return usagef("a command is missing: serve, or --help")
	}
	switch args[0] {
	case "--version":
		_, err := fmt.Fprintf(stdout, "supervisor %s\n", version)
		return err
	case "--help", "-h", "help":
		_, err := io.WriteString(stdout, usage)
		return err
	case "preflight":
		return runPreflight(args[1:], stdout)
	case "serve":
		return runServe(ctx, args[1:], environ, stdout, stderr)
	}
	return usagef("unknown command %q", args[0])
}

// runPreflight tells an older image, which runs this one, that it can go on
// from the state that it would be handed, and under its command line.
func runPreflight(args []string, stdout io.Writer) error {
	if len(args) != 1 {
		return usagef("preflight takes the path of a state")
	}
	served, err := engine.Preflight(args[0])
	if err != nil {
		return err
	}
	if len(served) == 0 || served[0] != "serve" {
		return usagef("the agent was not started with serve but with %q", served)
	}
	if _, _, err := parseServe(served[1:], nil); err != nil {
		return err
	}
	_, err = fmt.Fprintln(stdout, engine.PreflightLine)
	return err
}

// runServe reads the flags and serves. Help is no error.
func runServe(ctx context.Context, args, environ []string, stdout, stderr io.Writer) error {
	inherited, err := engine.Inherit() // before anything else opens descriptors
	if err != nil {
		return goBack(inherited, err)
	}
	o, flags, err := parseServe(args, environ)
	if errors.Is(err, pflag.ErrHelp) {
		_, err = fmt.Fprintf(stdout, "Usage:\n  supervisor serve [flags]\n\nFlags:\n%s", flags.FlagUsages())
		return err
	}
	if err != nil {
		return goBack(inherited, err)
	}
	if isInit() {
		return serveAsInit(ctx, o, inherited, stderr)
	}
	_, err = serve(ctx, o, inherited, stderr)
	return err
}

// goBack gives up an inheritance before anything was taken over, if there is
// one.
func goBack(inherited *engine.Inheritance, cause error) error {
	image, err := installedImage()
	return inherited.RollBack(image, errors.Join(cause, err))
}
