package e2e

import (
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"supervisor/client"
)

// C32: output without end costs a ring on the disk, and what all streams may
// keep until it is hashed, and nothing in memory and in the journal, however
// much there is of it.
func TestC32OutputWithoutEnd(t *testing.T) {
	const ring, unhashed = 1 << 20, 16 << 20
	a := start(t, "--proc-buf-bytes", "1048576")
	h := a.start(client.StartRequest{Cmd: []string{"yes"}}).Handle
	const warm, enough = 1 << 30, 2 << 30
	// The ring is full long before; the garbage of asking for rows is at its most by then.
	eventually(t, "a GiB is written", func() bool { return a.row(h).StdoutLen > warm })
	rss, journal := a.status("RssAnon"), a.diskUse("state/journal.db")
	eventually(t, "another GiB is written", func() bool {
		// Of a ring's segments, a quarter of it each, one is being written and
		// one is going.
		if use := a.diskUse("state/run"); use > ring+ring/2+unhashed {
			t.Fatalf("%d bytes on the disk", use)
		}
		return a.row(h).StdoutLen > enough
	})
	if now := a.status("RssAnon"); now > rss+8<<10 {
		t.Errorf("RssAnon is %d KiB, %d before", now, rss)
	}
	if now := a.diskUse("state/journal.db"); now > journal+1<<20 {
		t.Errorf("the journal has %d bytes, %d before", now, journal)
	}
}

// diskUse is the size of all files below a folder of the agent, or of a file.
// What vanishes meanwhile is not counted.
func (a *agent) diskUse(path string) (bytes int64) {
	a.t.Helper()
	_ = filepath.WalkDir(filepath.Join(a.dir, path), func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.Type().IsRegular() {
			if info, err := os.Lstat(path); err == nil {
				bytes += info.Size()
			}
		}
		return nil
	})
	return bytes
}
