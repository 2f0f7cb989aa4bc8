package journal

import (
	"bytes"
	"errors"
	"fmt"
	"io"
)

// Sizes and flags of bbolt's pages.
const (
	pageHeader   = 16 // page number (8), flags (2), count (2), overflow (4: pages that follow and belong to it)
	branchElem   = 16 // position of the key from here (4), its size (4), page number (8)
	leafElem     = 16 // flags (4), position of the key (4), its size (4), the value's size (4)
	bucketHeader = 16 // page number of its root or 0, sequence; after a 0, the root page itself

	branchPage   = 0x01
	leafPage     = 0x02
	freelistPage = 0x10
	bucketFlag   = 0x01
	manyFlag     = 0xFFFF // a freelist's count that means: the first entry is the count

	maxDepth = 32 // of pages below pages
)

// walker visits all pages in use, without bbolt and without the mapping, and checks that every one is where and what the
// others say, that no page is used twice or used and free, that nothing reaches out of its page, and that keys ascend.
type walker struct {
	r       io.ReaderAt
	meta    meta
	used    []bool   // by page number
	buffers [][]byte // one for each depth
	depth   int
	names   [][]byte // of the buckets that the walk is in
	last    uint64   // the last record seen
}

// walkPages checks the structure of a file whose length and meta page are sound. In the records, damage is a BadRecord.
func walkPages(r io.ReaderAt, m meta) error {
	w := &walker{r: r, meta: m, used: make([]bool, m.pages)}
	if err := w.tree(m.root); err != nil {
		if len(w.names) > 0 && bytes.Equal(w.names[0], segmentsBucket) {
			return bad(w.last+1, "cannot be read: %v", err)
		}
		return fmt.Errorf("%w: %w", ErrDamaged, err)
	}
	if err := w.freelist(); err != nil {
		return fmt.Errorf("%w: list of free pages: %w", ErrDamaged, err)
	}
	return nil
}

// page reads a page with what overflows from it, into the buffer of this depth.
func (w *walker) page(id uint64) ([]byte, error) {
	if id < 2 || id >= w.meta.pages {
		return nil, fmt.Errorf("page %d does not exist", id)
	}
	size := w.meta.pageSize
	b := w.buffer(size)
	if _, err := w.r.ReadAt(b, int64(id*size)); err != nil {
		return nil, fmt.Errorf("page %d: %w", id, err)
	}
	overflow := uint64(order.Uint32(b[12:]))
	if order.Uint64(b) != id || overflow >= w.meta.pages-id {
		return nil, fmt.Errorf("page %d is overwritten", id)
	}
	for i := id; i <= id+overflow; i++ {
		if w.used[i] {
			return nil, fmt.Errorf("page %d is used twice", i)
		}
		w.used[i] = true
	}
	if overflow == 0 {
		return b, nil
	}
	b = w.buffer((overflow + 1) * size)
	_, err := w.r.ReadAt(b, int64(id*size))
	return b, err
}

// buffer is this depth's buffer, of the given size.
func (w *walker) buffer(size uint64) []byte {
	for len(w.buffers) <= w.depth {
		w.buffers = append(w.buffers, nil)
	}
	if uint64(cap(w.buffers[w.depth])) < size {
		w.buffers[w.depth] = make([]byte, size)
	}
	return w.buffers[w.depth][:size]
}

// keys checks that the keys of one bucket ascend.
type keys struct {
	low    []byte // the lowest key that may come
	beyond bool   // it must be higher than low
}

// pass takes the next key. The first key of a page may be the one that its parent gives for it.
func (k *keys) pass(key []byte, leaf bool) error {
	if c := bytes.Compare(key, k.low); c < 0 || c == 0 && k.beyond {
		return fmt.Errorf("key %x is out of order", key)
	}
	k.low, k.beyond = append(k.low[:0], key...), leaf
	return nil
}

// tree walks a bucket from its root page.
func (w *walker) tree(root uint64) error { return w.subtree(root, new(keys)) }

func (w *walker) subtree(id uint64, k *keys) error {
	if w.depth++; w.depth > maxDepth {
		return errors.New("pages nest too deeply")
	}
	p, err := w.page(id)
	if err != nil {
		return err
	}
	switch flags := order.Uint16(p[8:]); flags {
	case branchPage:
		err = w.branch(p, k)
	case leafPage:
		err = w.leaf(p, k)
	default:
		err = fmt.Errorf("page %d has the unknown type %#x", id, flags)
	}
	w.depth--
	return err
}

func (w *walker) branch(p []byte, k *keys) error {
	elems, err := elements(p, branchElem)
	if err == nil && elems == 0 {
		err = errors.New("a branch page is empty")
	}
	for i := 0; err == nil && i < elems; i++ {
		at := pageHeader + i*branchElem
		e := p[at:]
		var key []byte
		if key, err = part(p, at, order.Uint32(e), order.Uint32(e[4:])); err != nil {
			return err
		}
		if err = k.pass(key, false); err != nil {
			return err
		}
		err = w.subtree(order.Uint64(e[8:]), k)
	}
	return err
}

func (w *walker) leaf(p []byte, k *keys) error {
	elems, err := elements(p, leafElem)
	for i := 0; err == nil && i < elems; i++ {
		at := pageHeader + i*leafElem
		e := p[at:]
		keySize, valueSize := order.Uint32(e[8:]), order.Uint32(e[12:])
		var key, value []byte
		if key, err = part(p, at, order.Uint32(e[4:]), keySize); err != nil {
			return err
		}
		if value, err = part(p, at, order.Uint32(e[4:])+keySize, valueSize); err != nil {
			return err
		}
		if err = k.pass(key, true); err != nil {
			return err
		}
		err = w.entry(key, value, order.Uint32(e)&bucketFlag != 0)
	}
	return err
}

// entry looks at a key and its value. A bucket is walked in turn.
func (w *walker) entry(key, value []byte, isBucket bool) error {
	if !isBucket {
		if len(w.names) == 2 {
			w.last = seqOf(key)
		}
		return nil
	}
	if len(value) < bucketHeader {
		return fmt.Errorf("bucket %x is cut short", key)
	}
	w.names = append(w.names, key)
	err := w.bucket(value)
	if err == nil {
		w.names = w.names[:len(w.names)-1] // after an error they tell where it was
	}
	return err
}

func (w *walker) bucket(value []byte) error {
	root, inline := order.Uint64(value), value[bucketHeader:]
	if root != 0 {
		return w.tree(root)
	}
	if len(inline) < pageHeader || order.Uint16(inline[8:]) != leafPage {
		return errors.New("a bucket is cut short")
	}
	return w.leaf(inline, new(keys))
}

// elements is how many elements of the given size page p says it has.
func elements(p []byte, size int) (int, error) {
	n := int(order.Uint16(p[10:]))
	if pageHeader+n*size > len(p) {
		return 0, errors.New("a page holds more than fits into it")
	}
	return n, nil
}

// part is a piece of page p, whose position counts from the element at the given place.
func part(p []byte, at int, pos, size uint32) ([]byte, error) {
	start := uint64(at) + uint64(pos)
	end := start + uint64(size)
	if end > uint64(len(p)) {
		return nil, errors.New("an entry reaches out of its page")
	}
	return p[start:end], nil
}

// freelist checks that what is free is not in use.
func (w *walker) freelist() error {
	p, err := w.page(w.meta.freelist)
	if err != nil {
		return err
	}
	if flags := order.Uint16(p[8:]); flags != freelistPage {
		return fmt.Errorf("page %d has the type %#x", w.meta.freelist, flags)
	}
	n, ids := uint64(order.Uint16(p[10:])), p[pageHeader:]
	if n == manyFlag {
		n, ids = order.Uint64(ids), ids[8:]
	}
	if n > uint64(len(ids)/8) {
		return errors.New("it is cut short")
	}
	for i := range n {
		id := order.Uint64(ids[8*i:])
		if id < 2 || id >= w.meta.pages || w.used[id] {
			return fmt.Errorf("page %d is in use", id)
		}
		w.used[id] = true
	}
	return nil
}
