package engine

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"hash/crc32"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
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
// big-endian, then a line with a cursor as JSON, and a line for each event;
// behind that, what is left of older ones.
type cursors string

var cursorFiles = [2]string{".a", ".b"}

const cursorHead = 8

// save writes a cursor over the older one of the two that are kept. Cursors of
// one session must come one after the other.
func (dir cursors) save(c wire.SessionCursor) error {
	file := cursorBuffers.Get().(*bytes.Buffer)
	defer cursorBuffers.Put(file)
	if err := encodeCursor(file, c); err != nil {
		return err
	}
	f, err := os.OpenFile(dir.path(c.Name, int(c.Saves%2)), os.O_CREATE|os.O_WRONLY, 0o600)
	if errors.Is(err, fs.ErrNotExist) {
		if err = os.MkdirAll(string(dir), 0o700); err == nil {
			f, err = os.OpenFile(dir.path(c.Name, int(c.Saves%2)), os.O_CREATE|os.O_WRONLY, 0o600)
		}
	}
	if err != nil {
		return err
	}
	_, err = f.Write(file.Bytes())
	return errors.Join(err, f.Close())
}

var cursorBuffers = sync.Pool{New: func() any { return new(bytes.Buffer) }}

// encodeCursor makes the file of a cursor.
func encodeCursor(file *bytes.Buffer, c wire.SessionCursor) error {
	file.Reset()
	file.Write(make([]byte, cursorHead))
	if err := json.NewEncoder(file).Encode(c); err != nil {
		return err
	}
	for _, line := range c.Events {
		file.Write(line)
	}
	head, body := file.Bytes()[:cursorHead], file.Bytes()[cursorHead:]
	binary.BigEndian.PutUint32(head, uint32(len(body)))
	binary.BigEndian.PutUint32(head[4:], crc32.ChecksumIEEE(body))
	return nil
}

// load returns the newest cursor of a session; that of a new one, if there is
// none.
func (dir cursors) load(name string) wire.SessionCursor {
	newest := wire.SessionCursor{Name: name}
	for i := range cursorFiles {
		if c, ok := readCursor(dir.path(name, i)); ok && c.Name == name && c.Saves >= newest.Saves {
			newest = c
		}
	}
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
	head, events, _ := bytes.Cut(body[:size], []byte("\n"))
	c.Events = slices.Collect(bytes.Lines(events))
	return c, json.Unmarshal(head, &c) == nil
}

// remove deletes a session's cursor.
func (dir cursors) remove(name string) {
	for i := range cursorFiles {
		_ = os.Remove(dir.path(name, i)) // it may never have been written
	}
}

// keep deletes the cursors of all sessions but these.
func (dir cursors) keep(names map[string]bool) error {
	entries, err := os.ReadDir(string(dir))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	for _, e := range entries {
		name, _, _ := strings.Cut(e.Name(), ".")
		if !names[name] {
			err = errors.Join(err, os.Remove(filepath.Join(string(dir), e.Name())))
		}
	}
	return err
}

func (dir cursors) path(name string, i int) string {
	return filepath.Join(string(dir), name+cursorFiles[i])
}
