// Package packaging has only tests, of the files beside it.
package packaging

import (
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
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

// source is a copy of the source, to make things in.
func source(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for _, name := range []string{"go.mod", "go.sum", "Makefile", "LICENSE", "CHANGELOG.md"} {
		run(t, "..", "cp", name, dir)
	}
	for _, name := range []string{"client", "cmd", "engine", "internal/manpage", "journal", "packaging", "procs", "statemachine", "tools", "upgrade", "wire"} {
		if err := os.CopyFS(filepath.Join(dir, name), os.DirFS(filepath.Join("..", name))); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func run(t *testing.T, dir, name string, args ...string) string {
	t.Helper()
	cmd := exec.Command(name, args...)
	cmd.Dir = dir
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s %v: %v\n%s", name, args, err, out)
	}
	return string(out)
}

// files lists what is in a folder.
func files(t *testing.T, root string) (names []string) {
	t.Helper()
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			names = append(names, strings.TrimPrefix(path, root))
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return names
}

// DESTDIR and PREFIX say where everything goes; the unit names the place
// without DESTDIR. A package has all of it, can be installed, and leaves
// nothing.
func TestInstallAndPackage(t *testing.T) {
	if _, err := exec.LookPath("dpkg"); err != nil {
		t.Skip(err)
	}
	dir, root := source(t), t.TempDir()
	run(t, dir, "make", "install", "VERSION=1.2.3", "DESTDIR="+root, "PREFIX=/opt/it")
	want := []string{
		"/opt/it/bin/replay", "/opt/it/bin/supctl", "/opt/it/bin/supervisor",
		"/opt/it/lib/systemd/system/supervisor-agent.service",
		"/opt/it/share/bash-completion/completions/supctl",
		"/opt/it/share/fish/vendor_completions.d/supctl.fish",
		"/opt/it/share/man/man1/replay.1", "/opt/it/share/man/man1/supctl.1", "/opt/it/share/man/man8/supervisor.8",
		"/opt/it/share/zsh/site-functions/_supctl",
	}
	if diff := cmp.Diff(want, files(t, root)); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	unit, err := os.ReadFile(filepath.Join(root, want[3]))
	if err != nil || !strings.Contains(string(unit), "\nExecStart=/opt/it/bin/supervisor serve\n") {
		t.Errorf("%v\n%s", err, unit)
	}

	run(t, dir, "make", "deb", "VERSION=1.2.3")
	root = t.TempDir()
	for _, name := range []string{"updates", "info"} {
		if err := os.MkdirAll(filepath.Join(root, "var/lib/dpkg", name), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(root, "var/lib/dpkg/status"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	dpkg := []string{"--root=" + root, "--force-not-root", "--force-script-chrootless", "--log=/dev/null"}
	debs, _ := filepath.Glob(filepath.Join(dir, "bin/*.deb"))
	run(t, dir, "dpkg", append(append(dpkg, "--install"), debs...)...)
	for _, name := range []string{"supervisor", "supctl", "replay"} {
		if out := run(t, dir, filepath.Join(root, "usr/bin", name), "--version"); !strings.Contains(out, "1.2.3") {
			t.Errorf("%s is version %q", name, out)
		}
	}
	run(t, dir, "dpkg", append(dpkg, "--purge", "supervisor-agent")...)
	for _, name := range files(t, root) {
		if !strings.HasPrefix(name, "/var/lib/dpkg/") {
			t.Errorf("%s stays", name)
		}
	}
}
