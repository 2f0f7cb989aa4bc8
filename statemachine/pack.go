package statemachine

import (
	"bytes"

	"github.com/vmihailenco/msgpack/v5"
)

// packer writes fields as msgpack. A map needs its length first, so each
// lister is visited twice: counted, then written.
type packer struct {
	buf bytes.Buffer
	enc *msgpack.Encoder
}

func newPacker() *packer {
	p := &packer{}
	p.enc = msgpack.NewEncoder(&p.buf)
	p.enc.UseCompactInts(true)
	return p
}

// must drops the errors of writing to memory: there are none.
func must(error) {}

// Map writes one lister as a map.
func (p *packer) Map(l fieldLister) {
	var c counter
	l.fields(&c)
	must(p.enc.EncodeMapLen(c.n))
	l.fields(p)
}

func (p *packer) key(name string, skip bool) bool {
	if skip {
		return false
	}
	must(p.enc.EncodeString(name))
	return true
}

func (p *packer) Bool(name string, v *bool, opt bool) {
	if p.key(name, opt && !*v) {
		must(p.enc.EncodeBool(*v))
	}
}

func (p *packer) Int(name string, v *int, opt bool) {
	if p.key(name, opt && *v == 0) {
		must(p.enc.EncodeInt(int64(*v)))
	}
}

func (p *packer) Int64(name string, v *int64, opt bool) {
	if p.key(name, opt && *v == 0) {
		must(p.enc.EncodeInt(*v))
	}
}

func (p *packer) Uint64(name string, v *uint64, opt bool) {
	if p.key(name, opt && *v == 0) {
		must(p.enc.EncodeUint(*v))
	}
}

func (p *packer) String(name string, v *string, opt bool) {
	if p.key(name, opt && *v == "") {
		must(p.enc.EncodeString(*v))
	}
}

func (p *packer) Strings(name string, v *[]string, opt bool) {
	if !p.key(name, opt && len(*v) == 0) {
		return
	}
	must(p.enc.EncodeArrayLen(len(*v)))
	for _, s := range *v {
		must(p.enc.EncodeString(s))
	}
}

func (p *packer) Bytes(name string, v *[]byte, opt bool) {
	if !p.key(name, opt && len(*v) == 0) {
		return
	}
	must(p.enc.EncodeBytesLen(len(*v)))
	p.buf.Write(*v)
}

func (p *packer) Time(name string, v *int64, opt bool) { p.Int64(name, v, opt) }

func (p *packer) Boot(name string, v *Boot, opt bool) {
	if !p.key(name, opt && *v == Boot{}) {
		return
	}
	must(p.enc.EncodeBytesLen(len(v)))
	p.buf.Write(v[:])
}

func (p *packer) Struct(name string, l fieldLister, absent bool) {
	if !p.key(name, absent) {
		return
	}
	if raw, ok := l.(*Unknown); ok {
		p.buf.Write(raw.Data)
		return
	}
	p.Map(l)
}

func (p *packer) List(name string, l list) {
	p.key(name, false)
	must(p.enc.EncodeArrayLen(l.Len()))
	for i := range l.Len() {
		p.Map(l.At(i))
	}
}

// counter counts the fields that packer would write.
type counter struct{ n int }

func (c *counter) add(skip bool) {
	if !skip {
		c.n++
	}
}

func (c *counter) Bool(_ string, v *bool, opt bool)          { c.add(opt && !*v) }
func (c *counter) Int(_ string, v *int, opt bool)            { c.add(opt && *v == 0) }
func (c *counter) Int64(_ string, v *int64, opt bool)        { c.add(opt && *v == 0) }
func (c *counter) Uint64(_ string, v *uint64, opt bool)      { c.add(opt && *v == 0) }
func (c *counter) String(_ string, v *string, opt bool)      { c.add(opt && *v == "") }
func (c *counter) Strings(_ string, v *[]string, opt bool)   { c.add(opt && len(*v) == 0) }
func (c *counter) Bytes(_ string, v *[]byte, opt bool)       { c.add(opt && len(*v) == 0) }
func (c *counter) Time(_ string, v *int64, opt bool)         { c.add(opt && *v == 0) }
func (c *counter) Boot(_ string, v *Boot, opt bool)          { c.add(opt && *v == Boot{}) }
func (c *counter) Struct(_ string, _ fieldLister, skip bool) { c.add(skip) }
func (c *counter) List(string, list)                         { c.n++ }
