package main

import (
	"strconv"
	"strings"
	"unicode/utf8"
)

// printable escapes what a terminal could obey, or what could break a line:
// journals hold what strangers wrote.
func printable(s string) string {
	if strings.IndexFunc(s, func(r rune) bool { return r == utf8.RuneError || !strconv.IsPrint(r) }) < 0 {
		return s
	}
	quoted := strconv.Quote(s)
	return quoted[1 : len(quoted)-1]
}

// fit cuts a line to the width of the terminal, if there is one, but keeps the
// given number of its first characters whole.
func fit(line string, keep, width int) string {
	keep = max(keep, width-1) // one is for the ellipsis
	if width == 0 || utf8.RuneCountInString(line) <= keep+1 {
		return line
	}
	return string([]rune(line)[:keep]) + "…"
}
