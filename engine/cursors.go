package engine

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"hash/crc32"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"supervisor/wire"
)

// cursors is the folder, beside the rings, in which each session's cursor is
// kept for an agent that comes after a crash. A cursor is in one of two files,
// which are written in turns and in place: whatever instant a SIGKILL hits, one
// of them is whole. Like the rings they need not survive the kernel.
//
// A file is the length and the CRC-32 (IEEE) of what follows, 4 bytes each and
// big-endian, then a cursor as JSON; behind that, what is left of older ones.
// The events of sessions are in files of their own, written before the cursor
// that counts them.
type cursors struct {
	dir string

	mu     sync.Mutex
	events map[string]*eventFiles // by session; each used by one caller at a time
}

func newCursors(dir string) *cursors {
	return &cursors{dir: dir, events: map[string]*eventFiles{}}
}

var cursorFiles = [2]string{".a", ".b"}

const cursorHead = 8

// save stores the events of a cursor, and writes it over the older one of the
// two that are kept. Cursors of one session must come one after the other. Of
// failures in a row only the first is reported.
func (d *cursors) save(c wire.SessionCursor) error {
	events := d.eventsOf(c.Name)
	err := d.write(c, events)
	again := events.failing && err != nil
	events.failing = err != nil
	if again {
		return nil
	}
	return err
}

func (d *cursors) write(c wire.SessionCursor, events *eventFiles) error {
	if err := os.MkdirAll(d.dir, 0o700); err != nil {
		return err
	}
	if err := events.append(c.Events, c.LastSeq); err != nil {
		return err
	}
	body, err := json.Marshal(c)
	if err != nil {
		return err
	}
	head := binary.BigEndian.AppendUint32(nil, uint32(len(body)))
	head = binary.BigEndian.AppendUint32(head, crc32.ChecksumIEEE(body))
	return writeAt(d.path(c.Name, int(c.Saves%2)), append(head, body...), 0)
}

func (d *cursors) eventsOf(name string) *eventFiles {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.events[name] == nil {
		d.events[name] = &eventFiles{prefix: filepath.Join(d.dir, name) + ".e"}
	}
	return d.events[name]
}

// writeAt writes into a file, which is made if there is none.
func writeAt(path string, b []byte, off int64) error {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = f.WriteAt(b, off)
	return errors.Join(err, f.Close())
}

// load returns the newest cursor of a session, with all events that are kept;
// that of a new one, if there is none.
func (d *cursors) load(name string) wire.SessionCursor {
	newest := wire.SessionCursor{Name: name}
	for i := range cursorFiles {
		if c, ok := readCursor(d.path(name, i)); ok && c.Name == name && c.Saves >= newest.Saves {
			newest = c
		}
	}
	newest.Events = d.eventsOf(name).load(newest.LastSeq)
	return newest
}

func readCursor(path string) (c wire.SessionCursor, ok bool) {
	b, err := os.ReadFile(path)
	if err != nil || len(b) < cursorHead {
		return c, false
	}
	size, sum := binary.BigEndian.Uint32(b), binary.BigEndian.Uint32(b[4:])
	body := b[cursorHead:]
	if uint64(size) > uint64(len(body)) || crc32.ChecksumIEEE(body[:size]) != sum {
		return c, false
	}
	return c, json.Unmarshal(body[:size], &c) == nil
}

// remove deletes what is kept of a session.
func (d *cursors) remove(name string) {
	for i := range cursorFiles {
		_ = os.Remove(d.path(name, i)) // it may never have been written
	}
	d.eventsOf(name).remove()
	d.mu.Lock()
	delete(d.events, name)
	d.mu.Unlock()
}

// keep deletes what is kept of all sessions but these.
func (d *cursors) keep(names map[string]bool) error {
	entries, err := os.ReadDir(d.dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	for _, e := range entries {
		name, _, _ := strings.Cut(e.Name(), ".")
		if !names[name] {
			err = errors.Join(err, os.Remove(filepath.Join(d.dir, e.Name())))
		}
	}
	return err
}

func (d *cursors) path(name string, i int) string {
	return filepath.Join(d.dir, name+cursorFiles[i])
}
