package wire

import (
	"crypto/rand"
	"encoding/hex"
	"math"
	"strconv"
	"strings"
	"time"
)

// What the codec knows for the agent front alone.

func (e *encoder) seconds(name string, p *int64) {
	e.name(name)
	e.dst = appendSeconds(e.dst, *p)
}

// appendSeconds appends nanoseconds as seconds with six places.
func appendSeconds(dst []byte, ns int64) []byte {
	return strconv.AppendFloat(dst, float64(ns)/1e9, 'f', 6, 64)
}

func (e *encoder) maybe(name string, p **int) {
	e.name(name)
	if *p == nil {
		e.dst = append(e.dst, "null"...)
		return
	}
	e.dst = strconv.AppendInt(e.dst, int64(**p), 10)
}

func (e *encoder) pairs(name string, p *[]string) {
	e.name(name)
	e.dst = append(e.dst, '{')
	for i, pair := range *p {
		if i > 0 {
			e.dst = append(e.dst, ',')
		}
		name, value, _ := strings.Cut(pair, "=")
		e.dst = appendText(e.dst, name)
		e.dst = appendText(append(e.dst, ':'), value)
	}
	e.dst = append(e.dst, '}')
}

func (d *decoder) seconds(name string, p *int64) {
	raw := d.find(name, nonzero)
	if raw == nil {
		return
	}
	f, err := strconv.ParseFloat(string(raw), 64)
	if err != nil || math.Abs(f) > math.MaxInt64/1e9 {
		d.refuse(name, "must be a number of seconds")
		return
	}
	*p = int64(f * 1e9)
}

func (d *decoder) maybe(name string, p **int) {
	if raw := d.find(name, nonzero); raw != nil && string(raw) != "null" {
		*p = new(int)
		d.number(name, *p, nonzero)
	}
}

func (d *decoder) pairs(name string, p *[]string) {
	raw := d.find(name, nonzero)
	if raw == nil {
		return
	}
	members, err := splitObject(raw, nil)
	if err != nil {
		d.refuse(name, "must be an object of strings")
		return
	}
	for _, m := range members {
		switch key := string(m.name); {
		case !isString(m.value):
			d.refuse(name, "must be an object of strings")
			return
		case key == "" || strings.Contains(key, "="):
			d.refuse(name, "holds a name that is empty or has a =")
			return
		default:
			*p = append(*p, key+"="+string(unquoted(m.value)))
		}
	}
}

// envelope begins a message of the agent front. The encoder is empty.
func (e *encoder) envelope(kind string, now time.Time) {
	id, version := newUUID(), a2eVersion
	e.dst = append(e.dst, '{')
	e.comma = false
	e.text("type", &kind, always)
	e.text("id", &id, always)
	e.text("version", &version, always)
	ts := now.UnixNano()
	e.seconds("ts", &ts)
}

// newUUID makes a random UUID (RFC 9562, version 4).
func newUUID() string {
	var b [16]byte
	rand.Read(b[:]) // never fails, see crypto/rand
	b[6] = b[6]&0x0f | 0x40
	b[8] = b[8]&0x3f | 0x80
	h := hex.EncodeToString(b[:])
	return h[:8] + "-" + h[8:12] + "-" + h[12:16] + "-" + h[16:20] + "-" + h[20:]
}
