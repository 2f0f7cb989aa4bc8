package statemachine

import (
	"github.com/vmihailenco/msgpack/v5"
	"pgregory.net/rapid"
)

// drawer fills a lister's fields at random: it is the reader of a journal that
// nobody wrote, and meets every field that there will ever be.
type drawer struct{ t *rapid.T }

func (d drawer) Bool(name string, p *bool, _ bool)      { *p = rapid.Bool().Draw(d.t, name) }
func (d drawer) Int(name string, p *int, _ bool)        { *p = rapid.Int().Draw(d.t, name) }
func (d drawer) Int64(name string, p *int64, _ bool)    { *p = rapid.Int64().Draw(d.t, name) }
func (d drawer) Uint64(name string, p *uint64, _ bool)  { *p = rapid.Uint64().Draw(d.t, name) }
func (d drawer) String(name string, p *string, _ bool)  { *p = drawString(d.t, name) }
func (d drawer) Bytes(name string, p *[]byte, _ bool)   { *p = drawBytes(d.t, name) }
func (d drawer) Time(name string, p *int64, _ bool)     { *p = rapid.Int64().Draw(d.t, name) }
func (d drawer) Boot(name string, p *Boot, _ bool)      { copy(p[:], drawBytes(d.t, name)) }
func (d drawer) Struct(_ string, l fieldLister, _ bool) { l.fields(d) }
func (d drawer) Strings(name string, p *[]string, _ bool) {
	*p = rapid.SliceOfN(rapid.String(), 0, 4).Draw(d.t, name)
}

func (d drawer) List(name string, l list) {
	for i := range rapid.IntRange(0, 3).Draw(d.t, name) {
		l.At(i).fields(d)
	}
}

// drawString gives any bytes: not all that a guest says is UTF-8.
func drawString(t *rapid.T, name string) string {
	if rapid.Bool().Draw(t, name+" is text") {
		return rapid.String().Draw(t, name)
	}
	return string(drawBytes(t, name))
}

// drawBytes gives lengths on both sides of where the stored form changes.
func drawBytes(t *rapid.T, name string) []byte {
	n := rapid.SampledFrom([]int{0, 1, 15, 16, 31, 32, 33, 255, 256, 65535, 65536}).Draw(t, name+" length")
	b := make([]byte, n)
	copy(b, rapid.SliceOfN(rapid.Byte(), 0, 40).Draw(t, name))
	return b
}

// drawRecord gives a record of a kind with anything in it.
func drawRecord(t *rapid.T, k Kind) Record {
	r := Record{Seq: rapid.Uint64().Draw(t, "seq"), Event: newEvent(k)}
	d := drawer{t}
	r.Stamp.Instant.fields(d)
	d.Int("gen", &r.Stamp.Gen, always)
	d.String("handle", &r.Handle, always)
	r.Event.fields(d)
	return r
}

// drawUnknown gives what a later version might store: a kind that this one
// does not know, or another version of one that it does.
func drawUnknown(t *rapid.T) *Unknown {
	data, err := msgpack.Marshal(map[string]any{
		"n":      rapid.Int64().Draw(t, "n"),
		"op":     rapid.Float64().Draw(t, "a known name of another type"),
		"nested": []any{rapid.String().Draw(t, "s"), nil, map[string]any{"b": drawBytes(t, "b")}},
	})
	if err != nil {
		t.Fatal(err)
	}
	if rapid.Bool().Draw(t, "a version") {
		return &Unknown{Name: rapid.SampledFrom(allKinds).Draw(t, "kind"), Version: rapid.IntRange(1, 300).Draw(t, "version"), Data: data}
	}
	return &Unknown{Name: Kind("later." + rapid.StringN(0, 40, -1).Draw(t, "kind")), Data: data}
}
