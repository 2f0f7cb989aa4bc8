package upgrade

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"supervisor/internal/testproc"
)

// A candidate is a copy of the test binary with the name of what it does
// behind its end, where execve does not look.
const trailer = "\ncandidate="

func TestMain(m *testing.M) {
	if name := trailerOf("/proc/self/exe"); name != "" {
		os.Exit(candidates[name](os.Args[1:]))
	}
	strays, _ := openOnExec() // of whoever runs the tests
	_ = closeOnExec(strays, true)
	os.Exit(m.Run())
}

func trailerOf(path string) string {
	b, err := os.ReadFile(path)
	if err != nil {
		return ""
	}
	end := b[max(0, len(b)-64):]
	_, name, _ := bytes.Cut(end, []byte(trailer))
	return string(name)
}

// candidates are what images can do, when asked for their version or anything
// else; they return the exit code.
var candidates = map[string]func(args []string) int{
	"good": func(args []string) int {
		if args[0] == "--version" {
			fmt.Println("agent 9.1.0")
			return 0
		}
		state, err := os.ReadFile(args[1])
		fmt.Printf("%s read %s, open %v, %v\n", args[0], state, openNow(), err)
		return 0
	},
	"hangs":     func([]string) int { time.Sleep(time.Minute); return 0 },
	"silent":    func([]string) int { return 0 },
	"two lines": func([]string) int { fmt.Print("agent 9.1.0\nand more\n"); return 0 },
	"floods": func([]string) int {
		for {
			fmt.Println(strings.Repeat("x", 1000))
		}
	},
	"fails": func([]string) int { fmt.Fprintln(os.Stderr, "cannot read that\nat all"); return 3 },
	"dies":  func([]string) int { _ = syscall.Kill(os.Getpid(), syscall.SIGKILL); select {} },
	"escapes": func([]string) int { // a descendant holds the output
		_, err := os.StartProcess("/bin/sleep", []string{"sleep", "60"}, &os.ProcAttr{Files: []*os.File{nil, os.Stdout}})
		fmt.Println("agent 9.1.0", err)
		return 0
	},
	"first":  first,
	"second": second,
	"third":  third,
}

// openNow lists the numbers of the descriptors above stderr that are open.
func openNow() (open []string) {
	for _, d := range testproc.Descriptors() {
		number, what, _ := strings.Cut(d, "=")
		if len(number) > 1 || number > "2" {
			if !strings.HasPrefix(what, "anon_inode:") && !strings.HasPrefix(what, "/sys/fs/cgroup/") { // the Go runtime's
				open = append(open, number)
			}
		}
	}
	return open
}

// candidate writes the image that does so to a new file.
func candidate(t testing.TB, name string) (path, digest string) {
	t.Helper()
	self, err := os.ReadFile("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	return staged(t, append(self, trailer+name...))
}

// staged writes an executable file.
func staged(t testing.TB, content []byte) (path, digest string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "agent.new")
	if err := os.WriteFile(path, content, 0o755); err != nil {
		t.Fatal(err)
	}
	return path, digestOf(content)
}

func digestOf(b []byte) string {
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}

// take takes a candidate that must pass.
func take(t testing.TB, name string) *Image {
	t.Helper()
	path, digest := candidate(t, name)
	img, err := Take(path, digest, "/no/such/agent")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { img.Close() })
	return img
}

func mustRead(t testing.TB, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func readAll(r io.Reader) string {
	b, _ := io.ReadAll(r)
	return string(b)
}
