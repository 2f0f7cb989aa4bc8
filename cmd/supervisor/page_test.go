package main

import (
	"os"
	"strings"
	"testing"

	"github.com/spf13/pflag"
)

// The manual page tells every flag that the help does, and no other.
func TestManualPage(t *testing.T) {
	page, err := os.ReadFile("../../packaging/supervisor.8")
	if err != nil {
		t.Fatal(err)
	}
	told := map[string]bool{}
	for line := range strings.Lines(string(page)) {
		if words := strings.Fields(line); len(words) > 1 && strings.HasPrefix(words[0], ".B") && strings.HasPrefix(words[1], `\-\-`) {
			told[strings.TrimPrefix(words[1], `\-\-`)] = true
		}
	}
	new(serveFlags).define().VisitAll(func(f *pflag.Flag) {
		if !told[f.Name] {
			t.Errorf("the page lacks --%s", f.Name)
		}
		delete(told, f.Name)
	})
	for name := range told {
		t.Errorf("there is no --%s", name)
	}
}
