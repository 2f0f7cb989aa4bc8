package manpage

import (
	"bytes"
	"os/exec"
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

func example() *cobra.Command {
	run := func(*cobra.Command, []string) {}
	root := &cobra.Command{
		Use: "tool", Short: "Do things", Long: "Tool does things.\n\n.hidden 'request' and a \\ backslash", Version: "1.2",
		Example: "  tool make -- it\n  'quoted' | tool make",
	}
	root.PersistentFlags().String("addr", "", "the `ADDRESS`")
	make := &cobra.Command{Use: "make [-q] THING", Short: "Make a thing", Long: "'Make' makes.\n\n    kept\n    apart", Run: run}
	make.Flags().BoolP("quiet", "q", false, "say nothing")
	root.AddCommand(make, &cobra.Command{Use: "secret", Hidden: true, Run: run})
	return root
}

// What a reader sees is what the help says, and groff has nothing to complain
// about.
func TestPage(t *testing.T) {
	var page bytes.Buffer
	if err := Write(&page, example()); err != nil {
		t.Fatal(err)
	}
	groff, err := exec.LookPath("groff")
	if err != nil {
		t.Skip("there is no groff")
	}
	cmd := exec.Command(groff, "-man", "-Tutf8", "-ww", "-P-cbou")
	cmd.Stdin = &page
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	seen, err := cmd.Output()
	if err != nil || stderr.Len() > 0 {
		t.Errorf("groff: %v\n%s", err, stderr.String())
	}
	for _, want := range []string{
		"tool - do things", ".hidden 'request' and a \\ backslash", "--addr ADDRESS", "make [-q] THING", "'Make' makes.",
		"-q, --quiet", "tool make -- it", "'quoted' | tool make", "kept\n", "tool 1.2",
	} {
		if !strings.Contains(string(seen), want) {
			t.Errorf("no %q in\n%s", want, seen)
		}
	}
	if strings.Contains(string(seen), "secret") {
		t.Errorf("a hidden command is shown:\n%s", seen)
	}
}
