package main

import (
	"bytes"
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/creack/pty"
	"pgregory.net/rapid"

	"supervisor/client"
)

func TestState(t *testing.T) {
	tests := []struct {
		proc client.Proc
		want string
	}{
		{client.Proc{Running: true}, "running"},
		{client.Proc{Reason: "exited", ExitCode: 3}, "exited 3"},
		{client.Proc{Reason: "signal", ExitCode: 139, Signal: 11}, "signal SEGV"},
		{client.Proc{Reason: "killed", ExitCode: 143, Signal: 15}, "killed TERM"},
		{client.Proc{Reason: "timeout", ExitCode: 137, Signal: 9, TimedOut: true}, "timeout KILL"},
		{client.Proc{Reason: "oom", ExitCode: 137, Signal: 9}, "oom KILL"},
		{client.Proc{Reason: "lost", ExitCode: -1}, "lost"},
		{client.Proc{ExitCode: 162, Signal: 34}, "signal 34"},
		// Older agents give no reason.
		{client.Proc{ExitCode: 3}, "exited 3"},
		{client.Proc{ExitCode: 143, Signal: 15}, "signal TERM"},
		{client.Proc{ExitCode: 137, Signal: 9, TimedOut: true}, "timeout KILL"},
		{client.Proc{ExitCode: -1}, "lost"},
	}
	for _, test := range tests {
		if got := state(test.proc); got != test.want {
			t.Errorf("%+v: %q, want %q", test.proc, got, test.want)
		}
	}
}

func TestAgo(t *testing.T) {
	now := time.Unix(1_800_000_000, 0)
	for want, d := range map[string]time.Duration{
		"0s": -time.Hour, "59s": 59 * time.Second, "1m": 119 * time.Second,
		"47h": 48*time.Hour - 1, "2d": 48 * time.Hour,
	} {
		if got := ago(now.Add(-d), now); got != want {
			t.Errorf("%v: %s, want %s", d, got, want)
		}
	}
}

func TestSize(t *testing.T) {
	for want, n := range map[string]int64{
		"0": 0, "1023": 1023, "1.0K": 1024, "9.9K": 10137, "10K": 10240, "1.0M": 1<<20 - 1, "8192P": 1<<63 - 1,
	} {
		if got := size(n); got != want {
			t.Errorf("%d: %s, want %s", n, got, want)
		}
	}
}

// What is printed of a command line is what a shell reads back, and nothing in
// it speaks to the terminal.
func TestQuotedReadsBack(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		arg := rapid.OneOf(
			rapid.String(),
			rapid.Map(rapid.SliceOfN(rapid.Byte(), 0, 20), func(b []byte) string { return string(b) }),
			rapid.StringMatching(`[a\\'"$ \n\x1b]{0,8}`),
		).Filter(func(s string) bool { return !strings.Contains(s, "\x00") }).Draw(t, "arg")
		text := quoted([]string{"printf", "%s", arg})
		if strings.ContainsAny(text, "\x1b\r\n\x07\u009b") {
			t.Errorf("%q has control characters", text)
		}
		out, err := exec.Command("bash", "-c", text).Output()
		if err != nil || string(out) != arg {
			t.Errorf("%q was printed as %s and read as %q, %v", arg, text, out, err)
		}
	})
}

// No line is wider than the terminal, and no handle is cut.
func TestTableFits(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		ps := table{columns: psColumns, painted: stateColumn}
		for range rapid.IntRange(0, 5).Draw(t, "rows") {
			ps.rows = append(ps.rows, row{cells: []string{
				"p_0123456789abcdef", rapid.StringMatching(`[0-9]{1,7}`).Draw(t, "pid"), rapid.StringMatching(`running|exited 1{1,3}`).Draw(t, "state"),
				"3m", "17K", rapid.StringMatching(`[a-z 漢字]{1,80}`).Draw(t, "cmd"),
			}})
		}
		terminal := rapid.IntRange(18, 120).Draw(t, "terminal")
		cut, whole := ps.lines(terminal, false), ps.lines(0, false)
		for i, r := range ps.rows {
			line := cut[i+1]
			if used := width(line); used > terminal || !strings.HasPrefix(line, r.cells[0]) {
				t.Errorf("%d columns of %d: %q", used, terminal, line)
			}
			if !strings.HasSuffix(whole[i+1], strings.TrimRight(r.cells[5], " ")) {
				t.Errorf("cut off a terminal: %q", whole[i+1])
			}
		}
	})
}

// On a terminal the table is coloured, unless NO_COLOR is set, and fits.
func TestPsOnATerminal(t *testing.T) {
	a := newAgent(t)
	if out, err := a.supctl("start", "--", "sleep", "1000").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	for _, noColor := range []string{"", "1"} {
		cmd := a.supctl("ps")
		cmd.Env = append(cmd.Env, "TERM=xterm", "NO_COLOR="+noColor)
		out := onTerminal(t, cmd, 50)
		if got := bytes.Contains(out, []byte("\x1b[32mrunning")); got != (noColor == "") {
			t.Errorf("NO_COLOR=%q: coloured %v: %q", noColor, got, out)
		}
		for line := range strings.Lines(strings.NewReplacer("\x1b[32m", "", "\x1b[0m", "").Replace(string(out))) {
			if line = strings.TrimRight(line, "\r\n"); utf8.RuneCountInString(line) > 50 {
				t.Errorf("more than 50 columns: %q", line)
			}
		}
	}
}

// onTerminal returns what a command writes on a terminal of a width.
func onTerminal(t *testing.T, cmd *exec.Cmd, cols uint16) []byte {
	master, slave, err := pty.Open()
	if err != nil {
		t.Fatal(err)
	}
	defer master.Close()
	if err := pty.Setsize(master, &pty.Winsize{Cols: cols, Rows: 24}); err != nil {
		t.Fatal(err)
	}
	cmd.Stdin, cmd.Stdout, cmd.Stderr = slave, slave, os.Stderr
	err = cmd.Start()
	slave.Close()
	if err != nil {
		t.Fatal(err)
	}
	out, _ := io.ReadAll(master) // ends with EIO
	if err := cmd.Wait(); err != nil {
		t.Errorf("%v: %s", err, out)
	}
	return out
}
