package main

import (
	"errors"
	"fmt"
	"io"
	"iter"
	"os"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"golang.org/x/sys/unix"
	"golang.org/x/term"

	"supervisor/client"
)

// The rules of output: what a script reads goes to stdout and is stable; what
// a person reads beside it goes to stderr. Colour is for a terminal that wants
// it. Text from a process or a guest never reaches a terminal as control
// characters, except as a process's own output.

// outputError is a stdout or stderr that cannot be written.
type outputError struct{ error }

func (e outputError) Unwrap() error { return e.error }

// copyOut writes chunks to stdout and stderr and reports gaps on stderr. It
// returns the position behind the last one.
func (a *app) copyOut(chunks iter.Seq2[client.Chunk, error], at client.Position) (client.Position, error) {
	for k, err := range chunks {
		if err != nil {
			return at, err
		}
		if k.Dropped != 0 {
			a.complain(gap(k))
		}
		if _, err := a.stream(k.Stream).Write(k.Data); err != nil {
			return at, outputError{err}
		}
		at[k.Stream] = k.End()
	}
	return at, nil
}

// remark writes a line for a person. A terminal in raw mode has to be told to go
// back to its left side.
func (a *app) remark(line string) {
	if a.raw {
		line = "\r\n" + line + "\r"
	}
	fmt.Fprintln(a.stderr, line)
}

// stream is where a process's stream goes.
func (a *app) stream(s client.Stream) io.Writer {
	if s == client.Stderr {
		return a.stderr
	}
	return a.stdout
}

func gap(k client.Chunk) error {
	if k.Dropped < 0 {
		return fmt.Errorf("%v fell back by %d bytes to offset %d: the agent lost its ring", k.Stream, -k.Dropped, k.Offset)
	}
	return fmt.Errorf("%d bytes of %v are lost before offset %d", k.Dropped, k.Stream, k.Offset)
}

// printJSON writes one message as a line.
func (a *app) printJSON(m client.Message) error {
	_, err := a.stdout.Write(append(client.AppendJSON(nil, m), '\n'))
	return err
}

// exitStatus turns how a process ended into how supctl does.
func exitStatus(e client.Exit) error {
	switch {
	case e.ExitCode < 0:
		return errors.New("the process ended unseen: its exit code is unknown")
	case e.ExitCode == 0:
		return nil
	}
	return exitCode(e.ExitCode)
}

// terminalWidth is how many columns stdout has; 0 if it is no terminal.
func (a *app) terminalWidth() int {
	f, ok := a.stdout.(*os.File)
	if !ok {
		return 0
	}
	width, _, err := term.GetSize(int(f.Fd()))
	if err != nil {
		return 0
	}
	return width
}

// colour is for a terminal, unless the user wants none (no-color.org).
func (a *app) colour() bool {
	return a.terminalWidth() > 0 && a.getenv("NO_COLOR") == "" && a.getenv("TERM") != "dumb"
}

// Colours.
const (
	red       = "\x1b[31m"
	green     = "\x1b[32m"
	plainText = "\x1b[0m"
)

// unpainted is a line without colours.
func unpainted(line string) string {
	return strings.NewReplacer(red, "", green, "", plainText, "").Replace(line)
}

// signalName is TERM for 15, and the number of a signal without a name.
func signalName(n int) string {
	if name := unix.SignalName(unix.Signal(n)); name != "" {
		return strings.TrimPrefix(name, "SIG")
	}
	return strconv.Itoa(n)
}

// ago is a time since in its largest whole unit. The guest's clock may be
// ahead of ours.
func ago(since, now time.Time) string {
	d := max(0, now.Sub(since))
	switch {
	case d < time.Minute:
		return fmt.Sprintf("%ds", d/time.Second)
	case d < time.Hour:
		return fmt.Sprintf("%dm", d/time.Minute)
	case d < 48*time.Hour:
		return fmt.Sprintf("%dh", d/time.Hour)
	default:
		return fmt.Sprintf("%dd", d/(24*time.Hour))
	}
}

// size is a number of bytes in three digits or so.
func size(n int64) string {
	if n < 1024 {
		return strconv.FormatInt(n, 10)
	}
	f, unit := float64(n)/1024, 0
	for ; f >= 999.5 && unit < 4; unit++ {
		f /= 1024
	}
	if f < 9.95 {
		return fmt.Sprintf("%.1f%c", f, "KMGTP"[unit])
	}
	return fmt.Sprintf("%.0f%c", f, "KMGTP"[unit])
}

// plain are the characters that no shell reads in a special way.
const plain = "%+,-./:=@_"

// quoted is a command line as a shell would read it, in printable characters.
func quoted(argv []string) string {
	words := make([]string, len(argv))
	for i, arg := range argv {
		words[i] = quotedWord(arg)
	}
	return strings.Join(words, " ")
}

func quotedWord(arg string) string {
	special := func(r rune) bool {
		return !(unicode.IsLetter(r) || unicode.IsDigit(r) || strings.ContainsRune(plain, r))
	}
	switch {
	case strings.ContainsFunc(arg, unprintable):
		return "$'" + escaped(arg) + "'"
	case arg == "" || strings.ContainsFunc(arg, special):
		return "'" + strings.ReplaceAll(arg, "'", `'\''`) + "'"
	}
	return arg
}

// unprintable includes what bytes that are no UTF-8 are read as.
func unprintable(r rune) bool { return !unicode.IsPrint(r) || r == utf8.RuneError }

// escaped is the inside of a $'…', with every unprintable byte in octal.
func escaped(arg string) string {
	var b strings.Builder
	for len(arg) > 0 {
		r, n := utf8.DecodeRuneInString(arg)
		switch {
		case r == '\'' || r == '\\':
			b.WriteByte('\\')
			b.WriteRune(r)
		case unprintable(r):
			for _, c := range []byte(arg[:n]) {
				fmt.Fprintf(&b, `\%03o`, c)
			}
		default:
			b.WriteRune(r)
		}
		arg = arg[n:]
	}
	return b.String()
}

// runeWidth is how many columns a character takes: two in the scripts of East
// Asia and for pictographs, roughly.
func runeWidth(r rune) int {
	switch {
	case unicode.In(r, unicode.Mn, unicode.Me):
		return 0
	case r >= 0x1100 && (unicode.In(r, unicode.Han, unicode.Hangul, unicode.Hiragana, unicode.Katakana) || r >= 0x3000 && r <= 0x303e || r >= 0xff00 && r <= 0xff60 || r >= 0x1f300):
		return 2
	}
	return 1
}

// width is how many columns s takes.
func width(s string) (columns int) {
	for _, r := range s {
		columns += runeWidth(r)
	}
	return columns
}

// fit cuts s to a number of columns, and says so with an ellipsis.
func fit(s string, columns int) string {
	used, cut := 0, 0 // cut: where there is still room for the ellipsis
	for i, r := range s {
		if used < columns {
			cut = i
		}
		if used += runeWidth(r); used > columns {
			return s[:cut] + "…"
		}
	}
	return s
}
