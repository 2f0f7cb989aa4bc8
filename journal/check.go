package journal

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"os"
	"slices"
)

// What follows reads bbolt's file format, version 2, because bbolt itself trusts its files: it panics on some that were
// cut, and follows any page number that it finds. Numbers are in the byte order of the machine.
const (
	boltMagic    = 0xED0CDAED
	boltVersion  = 2
	noFreelist   = ^uint64(0)
	metaSize     = pageHeader + 64
	minPageShift = 10 // pages have from 1 KiB
	maxPageShift = 16 // to 64 KiB
)

var order = binary.NativeEndian

// meta is a meta page's content. The valid one with the higher transaction id counts.
type meta struct {
	pageSize uint64
	root     uint64 // page of the root bucket
	freelist uint64 // page of the list of free pages
	pages    uint64 // high-water mark: all pages in use have lower numbers
	txid     uint64
}

// parseMeta reads the meta page at the start of b. The magic number, if nothing else, tells whether it is one.
func parseMeta(b []byte) (m meta, magic bool, err error) {
	if len(b) < metaSize || order.Uint32(b[16:]) != boltMagic {
		return m, false, errors.New("no magic number")
	}
	if v := order.Uint32(b[20:]); v != boltVersion {
		return m, true, fmt.Errorf("%w: bbolt version %d", ErrNewer, v)
	}
	sum := fnv.New64a()
	sum.Write(b[16:72])
	if sum.Sum64() != order.Uint64(b[72:]) {
		return m, true, errors.New("wrong checksum")
	}
	return meta{
		pageSize: uint64(order.Uint32(b[24:])),
		root:     order.Uint64(b[32:]),
		freelist: order.Uint64(b[48:]),
		pages:    order.Uint64(b[56:]),
		txid:     order.Uint64(b[64:]),
	}, true, nil
}

// readMeta finds the meta page that counts. The second one is at the page size, which only they tell.
func readMeta(r io.ReaderAt) (newest meta, err error) {
	var known, found bool
	var newer error
	for _, offset := range metaOffsets() {
		b := make([]byte, metaSize)
		n, err := r.ReadAt(b, offset)
		if err != nil && err != io.EOF {
			return newest, err
		}
		m, magic, err := parseMeta(b[:n])
		known = known || magic
		if errors.Is(err, ErrNewer) {
			newer = err
		}
		if err == nil && (offset == 0 || uint64(offset) == m.pageSize) && (!found || m.txid > newest.txid) {
			newest, found = m, true
		}
	}
	switch {
	case found:
		return newest, nil
	case newer != nil:
		return newest, newer
	case known:
		return newest, fmt.Errorf("%w: both meta pages are", ErrDamaged)
	}
	return newest, fmt.Errorf("%w: no meta page", ErrForeign)
}

// metaOffsets are the places where a meta page can be.
func metaOffsets() []int64 {
	offsets := []int64{0}
	for shift := minPageShift; shift <= maxPageShift; shift++ {
		offsets = append(offsets, 1<<shift)
	}
	return offsets
}

// checkFile finds out whether bbolt can open a file without harm to it or to us: meta pages, length and, if walk is set, the
// structure of all pages in use. It writes nothing. Its errors are ErrForeign, ErrNewer and ErrDamaged.
func checkFile(file *os.File, walk bool) error {
	info, err := file.Stat()
	if err != nil {
		return err
	}
	m, err := readMeta(file)
	if err != nil {
		return err
	}
	size := uint64(info.Size())
	switch {
	case !slices.Contains(metaOffsets()[1:], int64(m.pageSize)):
		return fmt.Errorf("%w: page size %d", ErrDamaged, m.pageSize)
	case m.freelist == noFreelist:
		return fmt.Errorf("%w: a database of another program", ErrForeign)
	case m.pages > size/m.pageSize:
		return fmt.Errorf("%w: cut short: %d pages of %d bytes do not fit into %d bytes", ErrDamaged, m.pages, m.pageSize, size)
	case m.root >= m.pages || m.freelist >= m.pages:
		return fmt.Errorf("%w: a meta page points outside", ErrDamaged)
	}
	if !walk {
		return nil
	}
	return walkPages(file, m)
}
