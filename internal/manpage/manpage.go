// Package manpage writes what a cobra command line says of itself, from the same
// words: its help on a terminal, and its manual page.
package manpage

import (
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// Command is a hidden command, man, that prints the page of the command line
// that it is added to.
func Command(out io.Writer) *cobra.Command {
	return &cobra.Command{
		Use:    "man",
		Short:  "Print the manual page",
		Hidden: true,
		Args:   cobra.NoArgs,
		RunE:   func(cmd *cobra.Command, _ []string) error { return Write(out, cmd.Root()) },
	}
}

// Write writes the page of a command line, section 1 of the manual, as man(7)
// has it.
func Write(w io.Writer, root *cobra.Command) error {
	root.InitDefaultVersionFlag()
	root.InitDefaultHelpFlag()
	p := &page{}
	name := root.Name()
	p.macro("TH", strings.ToUpper(name), "1", "", name+" "+root.Version, "User Commands")
	p.section("NAME")
	p.text(name + " - " + lower(root.Short))
	p.section("SYNOPSIS")
	p.macro("B", name)
	p.text("[flags] COMMAND [argument ...]")
	p.section("DESCRIPTION")
	p.text(root.Long)
	p.section("OPTIONS")
	p.flags(root.PersistentFlags())
	p.section("COMMANDS")
	for _, cmd := range root.Commands() {
		if cmd.IsAvailableCommand() {
			p.command(cmd)
		}
	}
	if root.Example != "" {
		p.section("EXAMPLES")
		p.verbatim(root.Example)
	}
	_, err := io.WriteString(w, p.String())
	return err
}

// page is roff in the making.
type page struct{ strings.Builder }

func (p *page) section(title string) { p.macro("SH", title) }

func (p *page) command(cmd *cobra.Command) {
	p.macro("SS", cmd.Use)
	p.text(cmd.Short + ".")
	if cmd.Long != "" {
		p.macro("PP")
		p.text(cmd.Long)
	}
	p.flags(cmd.LocalNonPersistentFlags())
	if cmd.Example != "" {
		p.macro("PP")
		p.verbatim(cmd.Example)
	}
}

func (p *page) flags(flags *pflag.FlagSet) {
	flags.VisitAll(func(f *pflag.Flag) {
		if f.Hidden || f.Name == "help" {
			return
		}
		value, usage := pflag.UnquoteUsage(f)
		name := "--" + f.Name
		if f.Shorthand != "" {
			name = "-" + f.Shorthand + ", " + name
		}
		p.macro("TP")
		p.macro("B", strings.TrimSpace(name+" "+value))
		p.text(usage)
	})
}

// macro writes a request with its arguments, each as one word.
func (p *page) macro(name string, args ...string) {
	p.WriteString("." + name)
	for _, arg := range args {
		fmt.Fprintf(p, " \"%s\"", strings.ReplaceAll(escape(arg), `"`, `\(dq`))
	}
	p.WriteByte('\n')
}

// text writes paragraphs that are filled. Indented ones stay as they are.
func (p *page) text(s string) {
	for i, paragraph := range strings.Split(strings.TrimSpace(s), "\n\n") {
		if i > 0 {
			p.macro("PP")
		}
		if strings.HasPrefix(paragraph, "  ") {
			p.verbatim(paragraph)
			continue
		}
		for line := range strings.SplitSeq(paragraph, "\n") {
			p.line(line)
		}
	}
}

func (p *page) verbatim(s string) {
	p.WriteString(".nf\n.RS 4\n")
	for line := range strings.SplitSeq(s, "\n") {
		p.line(strings.TrimPrefix(line, "  "))
	}
	p.WriteString(".RE\n.fi\n")
}

// line writes a line of text, which no character of it turns into a request.
func (p *page) line(s string) {
	if strings.HasPrefix(s, ".") || strings.HasPrefix(s, "'") {
		p.WriteString(`\&`)
	}
	p.WriteString(escape(s) + "\n")
}

// escape keeps backslashes and hyphens what they are.
func escape(s string) string {
	return strings.NewReplacer(`\`, `\e`, "-", `\-`).Replace(s)
}

func lower(s string) string {
	if s == "" {
		return s
	}
	return strings.ToLower(s[:1]) + s[1:]
}
