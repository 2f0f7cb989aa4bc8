package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// bashCompletion is what the script for bash is loaded by.
const bashCompletion = "/usr/share/bash-completion/bash_completion"

// In each shell a tab completes a handle, and more of them tell what the
// processes are.
func TestCompletionInShells(t *testing.T) {
	shells := map[string]struct {
		needs, config, start string
		args                 []string
	}{
		"bash": {bashCompletion, "bashrc", ". " + bashCompletion + "; PS1='ready> '; . ./script\n", []string{"--rcfile", "bashrc"}},
		"zsh":  {"", ".zshrc", "PS1='ready> '; autoload -U compinit; compinit -u -D; . ./script; compdef _supctl supctl\n", nil},
		"fish": {"", "config.fish", "function fish_prompt; echo 'ready> '; end; source ./script\n", []string{"--no-config", "-C", "source config.fish"}},
	}
	a := newAgent(t)
	one, other := a.output(t, "start", "--", "sleep", "1001"), a.output(t, "start", "--", "sleep", "1002")
	for shell, test := range shells {
		t.Run(shell, func(t *testing.T) {
			if _, err := exec.LookPath(shell); err != nil {
				t.Skip(err) // without make deps not every machine has every shell
			}
			if _, err := os.Stat(test.needs); test.needs != "" && err != nil {
				t.Skip(err) // bash completes commands by this package only; make deps installs it
			}
			dir := t.TempDir()
			for name, text := range map[string]string{test.config: test.start, "script": a.output(t, "completion", shell) + "\n"} {
				if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			cmd := exec.Command(shell, test.args...)
			cmd.Dir, cmd.Env = dir, append(a.supctl().Env, "HOME="+dir, "ZDOTDIR="+dir, "XDG_CONFIG_HOME="+dir, "XDG_DATA_HOME="+dir)
			s := onScreen(t, cmd, 100, 24)
			s.shows("ready> ")
			s.keys("supctl kill \t")
			s.shows("p_")
			s.keys("\t\t")
			s.shows(one)
			s.shows(other)
			s.shows("sleep 1002")
		})
	}
}
