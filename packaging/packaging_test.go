// Package packaging has only tests, of the files beside it.
package packaging

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// systemd takes the unit, and nothing in it reaches children or keeps the
// agent from replacing itself.
func TestUnit(t *testing.T) {
	unit, err := os.ReadFile("supervisor-agent.service")
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range []string{"Type=notify", "KillMode=process", "OOMPolicy=continue", "ExecStart=@BINDIR@/supervisor serve"} {
		if !strings.Contains(string(unit), "\n"+line+"\n") {
			t.Errorf("the unit lacks %s", line)
		}
	}
	for _, word := range []string{"Protect", "Private", "NoNewPrivileges", "ReadOnly", "SystemCallFilter", "Restrict", "CapabilityBoundingSet", "RuntimeDirectory=", "Limit"} {
		if strings.Contains(string(unit), "\n"+word) {
			t.Errorf("%s… would reach children, upgrades or output", word)
		}
	}
	analyze, err := exec.LookPath("systemd-analyze")
	if err != nil {
		t.Skip("there is no systemd-analyze")
	}
	dir := t.TempDir()
	installed := filepath.Join(dir, "supervisor-agent.service")
	text := strings.ReplaceAll(string(unit), "@BINDIR@", dir)
	if err := os.WriteFile(installed, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "supervisor"), []byte("#!/bin/sh\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command(analyze, "verify", "--man=no", installed).CombinedOutput(); err != nil || len(out) > 0 {
		t.Errorf("systemd-analyze verify: %v\n%s", err, out)
	}
}

func TestScripts(t *testing.T) {
	for _, name := range []string{"deb", "postinst", "prerm", "postrm"} {
		if out, err := exec.Command("sh", "-n", name).CombinedOutput(); err != nil {
			t.Errorf("%s: %v\n%s", name, err, out)
		}
	}
}
