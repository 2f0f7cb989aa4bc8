package engine

import (
	"cmp"
	"errors"
	"slices"
	"strings"

	"supervisor/procs"
	"supervisor/statemachine"
	"supervisor/wire"
)

// notForChildren are variables that speak to the agent itself.
func notForChildren(name string) bool {
	switch name {
	case "PT_AGENT_HANDOFF", "NOTIFY_SOCKET":
		return true
	}
	return strings.HasPrefix(name, "LISTEN_") || strings.HasPrefix(name, "WATCHDOG_")
}

// childEnviron is the part of the agent's environment that children inherit.
func childEnviron(environ []string) []string {
	var out []string
	for _, kv := range environ {
		if name, _, ok := strings.Cut(kv, "="); ok && !notForChildren(name) {
			out = append(out, kv)
		}
	}
	return out
}

// mergeEnv appends the request's variables to the inherited ones; of several
// with one name the last wins, once. getenv(3) would take the first.
func mergeEnv(inherited, own []string) []string {
	last := map[string]int{}
	all := append(append([]string{}, inherited...), own...)
	for i, kv := range all {
		name, _, _ := strings.Cut(kv, "=")
		last[name] = i
	}
	out := all[:0]
	for i, kv := range all {
		if name, _, _ := strings.Cut(kv, "="); last[name] == i && !notForChildren(name) {
			out = append(out, kv)
		}
	}
	return out
}

// envNames are the names of the request's variables: values are never stored.
func envNames(own []string) []string {
	names := make([]string, 0, len(own))
	for _, kv := range own {
		name, _, _ := strings.Cut(kv, "=")
		names = append(names, name)
	}
	return names
}

// stdinNull is the value of proc_start's stdin that makes it empty.
const stdinNull = "null"

// processSpec is a request as the processes' table runs it.
func (e *Engine) processSpec(r wire.StartRequest) procs.Spec {
	return procs.Spec{
		Argv: r.Cmd, Cwd: cwd(r), Env: mergeEnv(e.environ, r.Env),
		PTY: r.PTY, Cols: uint16(cols(r)), Rows: uint16(rows(r)), StdinNull: r.Stdin == stdinNull,
	}
}

// journalSpec is a request as the journal keeps it.
func (e *Engine) journalSpec(r wire.StartRequest) statemachine.Spec {
	idem, args := e.keyed.start(r)
	return statemachine.Spec{
		Cmd: r.Cmd, Cwd: cwd(r), EnvNames: envNames(r.Env),
		PTY: r.PTY, Cols: cols(r), Rows: rows(r), TimeoutMS: r.TimeoutMS, StdinNull: r.Stdin == stdinNull,
		Idem: idem, IdemArgs: args,
	}
}

// maxCommand is the most that execve(2) takes whatever the limits are: three
// quarters of 8 MiB. More need not be recorded to fail.
const maxCommand = 6 << 20

// checkSize refuses a command that execve would not take in any case.
func checkSize(s statemachine.Spec) error {
	size := len(s.Cwd)
	for _, word := range slices.Concat(s.Cmd, s.EnvNames) {
		size += len(word) + 1
	}
	if size > maxCommand {
		return wire.Errorf(wire.CodeSpawnFailed, "argument list too long: %d bytes, more than %d", size, maxCommand)
	}
	return nil
}

func cwd(r wire.StartRequest) string { return cmp.Or(r.Cwd, "/") }
func cols(r wire.StartRequest) int   { return cmp.Or(r.Cols, wire.DefaultCols) }
func rows(r wire.StartRequest) int   { return cmp.Or(r.Rows, wire.DefaultRows) }

// spawnError is what a failed start answers.
func spawnError(err error) error {
	var failed *procs.StartError
	if errors.As(err, &failed) {
		return processError(err)
	}
	return wire.Errorf(wire.CodeSpawnFailed, "starting the process: %s", err)
}
