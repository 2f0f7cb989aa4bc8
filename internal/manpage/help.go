package manpage

import (
	"fmt"
	"io"
	"os"
	"strings"
	"unicode/utf8"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"golang.org/x/term"
)

// Lines of help are as long as the terminal is wide, but no longer than one
// reads with ease.
const (
	defaultWidth = 80
	widestHelp   = 100
)

// Help gives a command line and all its commands their --help.
func Help(root *cobra.Command) {
	root.SetHelpFunc(func(cmd *cobra.Command, _ []string) {
		cmd.InitDefaultHelpFlag()
		out := cmd.OutOrStdout()
		h := &help{width: helpWidth(out)}
		h.command(cmd)
		io.WriteString(out, h.String())
	})
}

func helpWidth(out io.Writer) int {
	if f, ok := out.(*os.File); ok {
		if width, _, err := term.GetSize(int(f.Fd())); err == nil && width > 0 {
			return min(width, widestHelp)
		}
	}
	return defaultWidth
}

// help is a text for a terminal in the making.
type help struct {
	strings.Builder
	width int
}

func (h *help) command(cmd *cobra.Command) {
	fmt.Fprintf(h, "Usage: %s\n\n", usageLine(cmd))
	h.text(longest(cmd))
	h.commands(cmd)
	h.flags("Flags", cmd.LocalFlags())
	h.flags("Global flags", cmd.InheritedFlags())
	if cmd.Example != "" {
		fmt.Fprintf(h, "\nExamples:\n%s\n", cmd.Example)
	}
}

func usageLine(cmd *cobra.Command) string {
	if !cmd.HasParent() {
		return cmd.Use + " [flags] COMMAND"
	}
	usage := cmd.Parent().CommandPath() + " " + cmd.Use
	if cmd.HasAvailableLocalFlags() && !strings.Contains(usage, "[") {
		usage += " [flags]"
	}
	return usage
}

// longest is the most that a command says of itself.
func longest(cmd *cobra.Command) string {
	if cmd.Long != "" {
		return cmd.Long
	}
	return cmd.Short + "."
}

// commands lists what there is to choose from, in groups where there are any.
func (h *help) commands(cmd *cobra.Command) {
	rows := map[string][][2]string{}
	for _, sub := range cmd.Commands() {
		if sub.IsAvailableCommand() {
			rows[sub.GroupID] = append(rows[sub.GroupID], [2]string{"  " + sub.Name(), sub.Short})
		}
	}
	for _, group := range append(cmd.Groups(), &cobra.Group{Title: "Commands"}) {
		title := group.Title
		if group.ID == "" && len(cmd.Groups()) > 0 {
			title = "Others"
		}
		h.table(title, rows[group.ID])
	}
}

func (h *help) flags(title string, flags *pflag.FlagSet) {
	var rows [][2]string
	flags.VisitAll(func(f *pflag.Flag) {
		if !f.Hidden {
			rows = append(rows, flagRow(f))
		}
	})
	h.table(title, rows)
}

// flagRow is a flag with its value's name, and what it does.
func flagRow(f *pflag.Flag) [2]string {
	value, usage := pflag.UnquoteUsage(f)
	name := "      --" + f.Name
	if f.Shorthand != "" {
		name = "  -" + f.Shorthand + ", --" + f.Name
	}
	switch f.Name {
	case "help", "version":
		usage = "print the " + f.Name
	}
	switch f.DefValue {
	case "", "false", "[]", "0", "0s":
	default:
		usage += " (default " + f.DefValue + ")"
	}
	return [2]string{strings.TrimRight(name+" "+strings.ToUpper(value), " "), usage}
}

// table writes two columns, the second of them filled.
func (h *help) table(title string, rows [][2]string) {
	if len(rows) == 0 {
		return
	}
	left := 0
	for _, row := range rows {
		left = max(left, utf8.RuneCountInString(row[0]))
	}
	fmt.Fprintf(h, "\n%s:\n", title)
	for _, row := range rows {
		lines := fill(row[1], max(h.width-left-2, 20))
		fmt.Fprintf(h, "%-*s  %s\n", left, row[0], strings.Join(lines, "\n"+strings.Repeat(" ", left+2)))
	}
}

// text writes paragraphs that are filled. Indented ones stay as they are.
func (h *help) text(s string) {
	for i, paragraph := range strings.Split(strings.TrimSpace(s), "\n\n") {
		if i > 0 {
			h.WriteByte('\n')
		}
		if !strings.HasPrefix(paragraph, "  ") {
			paragraph = strings.Join(fill(paragraph, h.width), "\n")
		}
		h.WriteString(paragraph + "\n")
	}
}

// fill breaks a paragraph into lines that are no longer than width, where its
// words allow.
func fill(s string, width int) (lines []string) {
	line := ""
	for _, word := range strings.Fields(s) {
		if line != "" && utf8.RuneCountInString(line+" "+word) > width {
			lines = append(lines, line)
			line = ""
		}
		line = strings.TrimLeft(line+" "+word, " ")
	}
	return append(lines, line)
}
