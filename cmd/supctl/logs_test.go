package main

import (
	"strings"
	"testing"

	"pgregory.net/rapid"

	"supervisor/client"
)

// The last lines are those of the whole text, however it came in pieces.
func TestTail(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		pieces := rapid.SliceOfN(rapid.StringMatching(`[ab\n]{0,6}`), 0, 10).Draw(t, "pieces")
		lines := rapid.IntRange(0, 5).Draw(t, "lines")
		kept := tail{lines: lines}
		var at int64
		for _, piece := range pieces {
			kept.add(client.Chunk{Offset: at, Data: []byte(piece)})
			if rapid.Bool().Draw(t, "trim") {
				kept.trim()
			}
			at += int64(len(piece))
		}
		all := strings.SplitAfter(strings.Join(pieces, ""), "\n")
		if all[len(all)-1] == "" {
			all = all[:len(all)-1]
		}
		want := strings.Join(all[max(0, len(all)-lines):], "")
		k := kept.chunk(client.Stdout)
		if string(k.Data) != want || k.End() != at || k.Dropped != 0 {
			t.Fatalf("%q to %d, want %q to %d", k.Data, k.End(), want, at)
		}
	})
}

// A gap is told if it touches the last lines, of which the first may then be
// half a line; not if it lies before them.
func TestTailGap(t *testing.T) {
	for lines, want := range map[int]int64{1: 0, 2: 7, 3: 7} {
		kept := tail{lines: lines}
		kept.add(client.Chunk{Offset: 0, Data: []byte("before\n")})
		kept.add(client.Chunk{Offset: 14, Dropped: 7, Data: []byte("a\nb\n")})
		if k := kept.chunk(client.Stdout); k.Dropped != want || k.End() != 18 {
			t.Errorf("%d lines: %+v, want %d dropped", lines, k, want)
		}
	}
}
