package wire

import (
	"slices"
	"strings"
)

// Policy is what the clients of the agent front may start.
type Policy struct {
	Commands []string // allowed as cmd[0], exactly
	Env      []string // names allowed although they change what a command runs
}

// The rules that a refusal names in the journal.
const (
	ruleAllowlist   = "allowlist"
	ruleEnvironment = "environment"
	ruleSession     = "session"
)

// check refuses what the policy does not allow.
func (p Policy) check(r *A2ESpawn) error {
	if !slices.Contains(p.Commands, r.Cmd[0]) {
		return Errorf(CodeNotAllowed, "command %q is not on the allowlist", cut(r.Cmd[0], 64)).by(ruleAllowlist)
	}
	for _, pair := range r.Env {
		name, _, _ := strings.Cut(pair, "=")
		if decidesWhatRuns(name) && !slices.Contains(p.Env, name) {
			return Errorf(CodeNotAllowed, "environment variable %q must not be set", cut(name, 64)).by(ruleEnvironment)
		}
	}
	return nil
}

// decidesWhatRuns tells whether a variable can make an allowed command run
// something else: by its search path, by the loader (ld.so(8)), by a file that
// shells read first (bash(1), sh(1)).
func decidesWhatRuns(name string) bool {
	switch name {
	case "PATH", "BASH_ENV", "ENV":
		return true
	}
	return strings.HasPrefix(name, "LD_")
}
