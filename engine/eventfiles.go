package engine

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// eventFiles are the newest events of one session, as the lines that are sent,
// in files that are named by the number of their first event. Lines are only
// ever added, behind those that a cursor counts: what a SIGKILL cut is written
// over. It is used by one caller at a time.
type eventFiles struct {
	prefix string
	firsts []uint64 // of the files, ascending
	next   uint64   // the number of the next event
	end    int64    // where that goes in the last file

	failing bool // to be stored
}

// As many events as a session keeps are in full files, and the last one is not
// full.
const (
	eventFileBytes = 128 << 10
	maxEventFiles  = 3
)

// append adds the events up to that of last. Those before a hole are of no use.
func (f *eventFiles) append(events [][]byte, last uint64) error {
	if len(events) == 0 {
		return nil
	}
	first := last + 1 - uint64(len(events))
	if len(f.firsts) > 0 && first != f.next {
		f.remove()
	}
	if len(f.firsts) == 0 || f.end >= eventFileBytes {
		f.firsts, f.end = append(f.firsts, first), 0
	}
	for len(f.firsts) > maxEventFiles {
		f.removeOldest()
	}
	lines := slices.Concat(events...)
	if err := writeAt(f.path(f.firsts[len(f.firsts)-1]), lines, f.end); err != nil {
		f.remove()
		return err
	}
	f.next, f.end = last+1, f.end+int64(len(lines))
	return nil
}

// load reads the events up to that of last, as far as they reach back without
// a hole. Later ones are written over.
func (f *eventFiles) load(last uint64) (events [][]byte) {
	f.find(last)
	for _, first := range f.firsts {
		if first != f.next {
			events = nil
		}
		f.next, f.end = first, 0
		for _, line := range linesFrom(f.path(first), first, last) {
			f.next, f.end, events = f.next+1, f.end+int64(len(line)), append(events, line)
		}
	}
	if f.next != last+1 {
		f.remove()
		return nil
	}
	return events
}

// find lists the files, but those that begin behind last.
func (f *eventFiles) find(last uint64) {
	dir, prefix := filepath.Split(f.prefix)
	entries, _ := os.ReadDir(dir) // sorted; without a folder there are none
	for _, e := range entries {
		number, ours := strings.CutPrefix(e.Name(), prefix)
		first, err := strconv.ParseUint(number, 16, 64)
		switch {
		case !ours:
		case err == nil && first <= last:
			f.firsts = append(f.firsts, first)
		default:
			_ = os.Remove(filepath.Join(dir, e.Name())) // if it cannot be, it is of no harm
		}
	}
}

// linesFrom reads the events of one file. The kernel may have died behind it:
// what is not the line of its number ends it.
func linesFrom(path string, first, last uint64) (lines [][]byte) {
	b, _ := os.ReadFile(path) // of one that cannot be read the events are lost
	for line := range bytes.Lines(b) {
		if first > last || !bytes.HasSuffix(line, fmt.Appendf(nil, `"seq":%d}`+"\n", first)) {
			break
		}
		lines = append(lines, line)
		first++
	}
	return lines
}

func (f *eventFiles) remove() {
	for len(f.firsts) > 0 {
		f.removeOldest()
	}
}

func (f *eventFiles) removeOldest() {
	_ = os.Remove(f.path(f.firsts[0])) // a loader passes over it, or removes it
	f.firsts = f.firsts[1:]
}

func (f *eventFiles) path(first uint64) string { return fmt.Sprintf("%s%016x", f.prefix, first) }
