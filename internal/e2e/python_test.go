package e2e

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// clientDir is where the Python client is.
const clientDir = "../../clients/python"

// python runs a script beside the Python client; addr is the agent's.
func python(t *testing.T, addr string, args ...string) string {
	t.Helper()
	if _, err := exec.LookPath("python3"); err != nil {
		t.Skip("no python3")
	}
	cmd := exec.Command("python3", args...)
	cmd.Env = append(os.Environ(), "PYTHONPATH="+clientDir, "PYTHONDONTWRITEBYTECODE=1", "PYTHONWARNINGS=error", "A2E_ADDR="+addr)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return string(out)
}

// The client's own tests.
func TestPythonClient(t *testing.T) {
	a := startFront(t)
	python(t, "unix:"+a.front(), "-m", "unittest", "test_a2e")
}

// The client is typed, strictly.
func TestPythonTypes(t *testing.T) {
	mypy, err := exec.LookPath("mypy")
	if err != nil {
		t.Skip("no mypy")
	}
	cmd := exec.Command(mypy, "--strict", "--cache-dir", t.TempDir(), "a2e.py", "example.py", "test_a2e.py")
	cmd.Dir = clientDir
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

// The example of the README: an interactive Python, driven over a connection
// that breaks on the way.
func TestPythonExample(t *testing.T) {
	a := startFront(t)
	if got := python(t, "", filepath.Join(clientDir, "example.py"), "unix:"+a.front()); got != "total 5050\nexit stderr 3\n" {
		t.Errorf("it printed %q", got)
	}
}

// The agent front on stdin and stdout, driven through pipes. When they close
// the agent stops; the next one has the session.
func TestPythonStdio(t *testing.T) {
	a := start(t)
	a.stop()
	got := python(t, "", "-c", `
import os, sys
from a2e import Session, launch
flag, argv = sys.argv[1], sys.argv[2:]
first = Session(lambda: launch(argv))
script = "echo ready; until [ -e %s ]; do sleep .05; done; echo $FOO; exit 6" % flag
p = first.spawn(["bash", "-c", script], env={"FOO": "bar"})
print(p.read_line(timeout=20), end="")
first.close()
second = Session(lambda: launch(argv), first.id)
p = second.attach(p.proc_id)
os.close(os.open(flag, os.O_CREAT))
print(p.read_line(timeout=20), end="")
print(p.wait(timeout=20).code in (6, -1))
try:
    second.spawn(["sh"])
except Exception as e:
    print(e.code)
second.close()
`, filepath.Join(a.dir, "flag"), binary, "serve", "--listen", a.addr(), "--state-dir", filepath.Join(a.dir, "state"), "--a2e", "stdio", "--log-level", "error")
	if got != "ready\nbar\nTrue\nnot_allowed\n" {
		t.Errorf("it printed %q", got)
	}
	a.serve()
}
