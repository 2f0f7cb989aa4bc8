package procs

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"

	"golang.org/x/sys/unix"
	"pgregory.net/rapid"

	"supervisor/internal/testproc"
)

// ringModel is a Ring and what it must equal: all bytes that there ever were.
type ringModel struct {
	ring  *Ring
	all   []byte
	floor int64
	size  int64
	dir   string
	late  atomic.Int64
	holes bool // bytes were lost, so there is no digest
}

func (m *ringModel) open() {
	m.ring = newRing(m.dir, Stdout, m.size)
	m.ring.digest = newDigest(m.ring.prefix + "sha256")
	m.ring.allLate, m.ring.filled = &m.late, func() {}
}

func (m *ringModel) append(t *rapid.T) {
	data := rapid.SliceOfN(rapid.Byte(), 1, 40).Draw(t, "data")
	for rest := data; len(rest) > 0; {
		fd, pos, room, err := m.ring.room()
		if err != nil {
			t.Fatal(err)
		}
		n, err := unix.Pwrite(fd, rest[:min(int64(len(rest)), room)], pos)
		if err != nil {
			t.Fatal(err)
		}
		m.ring.wrote(int64(n))
		rest = rest[n:]
	}
	m.all = append(m.all, data...)
}

func (m *ringModel) skip(t *rapid.T) {
	n := rapid.IntRange(1, 30).Draw(t, "n")
	m.ring.skip(int64(n))
	m.all = append(m.all, make([]byte, n)...)
	m.floor = int64(len(m.all))
	m.holes = true
}

// hash is a turn of the digester.
func (m *ringModel) hash(t *rapid.T) {
	m.ring.hash(make([]byte, rapid.IntRange(1, 30).Draw(t, "turn")))
}

// digest hashes what is left, as after the end of the stream.
func (m *ringModel) digest(t *rapid.T) {
	m.ring.finish()
	for m.ring.hash(make([]byte, 7)) {
	}
	want := fmt.Sprintf("%x", sha256.Sum256(m.all))
	if m.holes {
		want = ""
	}
	if got := m.ring.sha256(); got != want || !m.ring.hashed() {
		t.Fatalf("digest %q, want %q", got, want)
	}
}

// restart continues with what is on disk, as a later agent does.
func (m *ringModel) restart(t *rapid.T) {
	if len(m.ring.segs) == 0 { // nothing on disk tells where the stream was
		t.Skip("no segment")
	}
	m.ring.closeSegment()
	m.late.Store(0)
	m.open()
	if err := m.ring.load(); err != nil {
		t.Fatal(err)
	}
	if err := m.ring.reopen(); err != nil {
		t.Fatal(err)
	}
}

func (m *ringModel) read(t *rapid.T) {
	off := rapid.Int64Range(0, int64(len(m.all))+5).Draw(t, "off")
	dst := make([]byte, rapid.IntRange(0, 200).Draw(t, "len"))
	n, first, err := m.ring.ReadAt(dst, off)
	if err != nil {
		t.Fatal(err)
	}
	end := int64(len(m.all))
	if want := max(0, m.floor, end-m.size); first != want {
		t.Fatalf("first %d, want %d", first, want)
	}
	from := min(max(off, first), end)
	want := m.all[from:min(end, from+int64(len(dst)))]
	if !bytes.Equal(dst[:n], want) {
		t.Fatalf("at %d: %x, want %x", off, dst[:n], want)
	}
}

func (m *ringModel) check(t *rapid.T) {
	if m.ring.End() != int64(len(m.all)) {
		t.Fatalf("end %d, want %d", m.ring.End(), len(m.all))
	}
	files, _ := filepath.Glob(filepath.Join(m.dir, "stdout.0*"))
	if late := m.late.Load(); int64(len(files)) > 5+(late+m.ring.segment-1)/m.ring.segment {
		t.Fatalf("%d segments on disk, %d bytes are late", len(files), late)
	}
}

// Law: a ring is the naive slice, or an exact gap; also after a restart, and
// with bytes that could not be stored. Its digest is that of all bytes, or
// there is none.
func TestRingIsSliceOrExactGap(t *testing.T) {
	base := t.TempDir()
	rapid.Check(t, func(t *rapid.T) {
		dir, err := os.MkdirTemp(base, "")
		if err != nil {
			t.Fatal(err)
		}
		size := rapid.Int64Range(1, 64).Draw(t, "size")
		m := &ringModel{size: size, dir: dir}
		m.open()
		defer func() { m.ring.closeSegment() }()
		t.Repeat(map[string]func(*rapid.T){
			"append": m.append, "more": m.append, "skip": m.skip, "restart": m.restart, "read": m.read,
			"hash": m.hash, "": m.check,
		})
		m.digest(t)
	})
}

// C07: the edges of the offsets, with exact numbers.
func TestC07OffsetEdges(t *testing.T) {
	w := newWorld(t)
	h := w.begin(sh(`i=0; while [ $i -lt 62500 ]; do printf '%015d\n' $i; i=$((i+1)); done`))
	await[Closed](w, h)
	r := w.Output(h, Stdout)
	for _, c := range []struct{ off, dropped, n int64 }{
		{0, 737856, 262144},
		{737855, 1, 262144},
		{737856, 0, 262144},
		{999999, 0, 1},
		{1000000, 0, 0},
		{1<<63 - 1, 0, 0},
	} {
		dst := make([]byte, 300_000)
		n, first, err := r.ReadAt(dst, c.off)
		dropped := max(0, first-c.off)
		if err != nil || int64(n) != c.n || dropped != c.dropped {
			t.Errorf("at %d: %d bytes, dropped %d, %v; want %d and %d", c.off, n, dropped, err, c.n, c.dropped)
		}
		if n > 0 && c.off < r.End() && string(dst[n-1:n]) != "\n" {
			t.Errorf("at %d: ends with %q", c.off, dst[n-1:n])
		}
	}
	if r.End() != 1000000 || r.First() != 737856 {
		t.Errorf("end %d, first %d", r.End(), r.First())
	}
}

// A stream without output has no file, and Forget leaves none.
func TestFilesOfRings(t *testing.T) {
	w := newWorld(t)
	dir := func(h string) []string {
		files, _ := filepath.Glob(filepath.Join(w.opt.Dir, h, "*"))
		return files
	}
	silent := w.begin(sh("exit 0"))
	loud := w.begin(sh("echo x"))
	w.finish(silent)
	w.finish(loud)
	if files := dir(silent); files != nil {
		t.Errorf("a silent process has %v", files)
	}
	if files := dir(loud); len(files) != 1 || filepath.Base(files[0]) != "stdout.0000000000000000" {
		t.Errorf("one line made %v", files)
	}
	w.Forget(loud)
	if _, err := os.Stat(filepath.Join(w.opt.Dir, loud)); err == nil {
		t.Error("Forget left the folder")
	}
	if w.Output(loud, Stdout) != nil {
		t.Error("Forget left the handle")
	}
}

// What somebody removes from under a ring is a gap, and the stream goes on
// behind it, while it is written and afterwards.
func TestRemovedSegments(t *testing.T) {
	w := newWorld(t)
	h := w.begin(sh("head -c 200000 /dev/zero; read x; echo behind"))
	r := w.Output(h, Stdout)
	if !testproc.Eventually(patience, func() bool { return r.End() == 200_000 }) {
		t.Fatalf("%d bytes", r.End())
	}
	segment := r.segment
	if err := os.Remove(r.path(0)); err != nil {
		t.Fatal(err)
	}
	buf := make([]byte, 1000)
	if n, first, err := r.ReadAt(buf, 0); n != len(buf) || first != segment || err != nil {
		t.Errorf("%d bytes, from %d, %v", n, first, err)
	}
	if err := os.RemoveAll(filepath.Join(w.opt.Dir, h)); err != nil {
		t.Fatal(err)
	}
	if n, first, err := r.ReadAt(buf, segment); n != 0 || first != r.End() || err != nil {
		t.Errorf("%d bytes, from %d, %v", n, first, err)
	}
	w.Stdin(h, nil, true, func(int, error) {})
	w.finish(h)
	if n, first, err := r.ReadAt(buf, 0); n != 0 || first != r.End() || err != nil {
		t.Errorf("at the end %d bytes, from %d, %v", n, first, err)
	}
}
