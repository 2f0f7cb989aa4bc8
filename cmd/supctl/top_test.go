package main

import (
	"strings"
	"testing"
)

// What is cleared is never what stands in the last column, and a full screen
// is not scrolled.
func TestDrawnClearsOnlyWhatIsLeft(t *testing.T) {
	full, short := red+"漢字ab"+plainText, "abc"
	tests := map[string]struct {
		lines []string
		rows  int
		want  string
	}{
		"less than the screen": {[]string{full, short}, 3, full + "\r\n" + short + clearRest + clearBelow},
		"the whole screen":     {[]string{short, full}, 2, short + clearRest + "\r\n" + full},
	}
	for name, test := range tests {
		if got := drawn(test.lines, 6, test.rows); got != beginFrame+test.want+endFrame {
			t.Errorf("%s: %q", name, strings.TrimSuffix(strings.TrimPrefix(got, beginFrame), endFrame))
		}
	}
}
