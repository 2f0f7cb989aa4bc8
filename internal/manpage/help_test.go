package manpage

import (
	"bytes"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/cobra"
	"pgregory.net/rapid"
)

const wantRootHelp = `Usage: tool [flags] COMMAND

Tool does things.

.hidden 'request' and a \ backslash

Agents:
  make  Make a thing

Others:
  other  Do something that takes so many words that they do not fit into a
         single line

Flags:
      --addr ADDRESS  the ADDRESS
  -h, --help          print the help
  -v, --version       print the version

Examples:
  tool make -- it
  'quoted' | tool make
`

const wantMakeHelp = `Usage: tool make [-q] THING

'Make' makes.

    kept
    apart

Flags:
  -h, --help           print the help
  -q, --quiet          say nothing
      --wait DURATION  how long to wait (default 1s)

Global flags:
      --addr ADDRESS  the ADDRESS
`

func TestHelp(t *testing.T) {
	root := example()
	root.AddGroup(&cobra.Group{ID: "agents", Title: "Agents"})
	make, _, _ := root.Find([]string{"make"})
	make.GroupID = "agents"
	make.Flags().Duration("wait", 1e9, "how long to wait")
	root.AddCommand(&cobra.Command{Use: "other", Run: func(*cobra.Command, []string) {},
		Short: "Do something that takes so many words that they do not fit into a single line"})
	root.CompletionOptions.DisableDefaultCmd = true
	Help(root)
	for args, want := range map[string]string{"--help": wantRootHelp, "make --help": wantMakeHelp, "help make": wantMakeHelp} {
		var out bytes.Buffer
		root.SetOut(&out)
		root.SetArgs(strings.Fields(args))
		if err := root.Execute(); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, out.String()); diff != "" {
			t.Errorf("%s: (-want +got)\n%s", args, diff)
		}
	}
}

// Lines are as long as the words allow, and the words are the same.
func TestFill(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text, width := rapid.StringMatching(`[aé \n]{0,60}`).Draw(t, "text"), rapid.IntRange(1, 20).Draw(t, "width")
		lines := fill(text, width)
		for i, line := range lines {
			if strings.Contains(line, " ") && utf8.RuneCountInString(line) > width {
				t.Errorf("%q has more than %d characters", line, width)
			}
			if i > 0 {
				word, _, _ := strings.Cut(line, " ")
				if utf8.RuneCountInString(lines[i-1]+" "+word) <= width {
					t.Errorf("%q has room for %q", lines[i-1], word)
				}
			}
		}
		if got := strings.Join(lines, " "); got != strings.Join(strings.Fields(text), " ") {
			t.Errorf("%q became %q", text, got)
		}
	})
}
