package statemachine

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"strconv"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/vmihailenco/msgpack/v5"
)

// AppendJSON appends the record as the one-line JSON object that journal_read
// and replay show. hash is the record's place in the chain, 64 hex digits.
func (r *Record) AppendJSON(dst []byte, hash string) []byte {
	j := printer{dst: append(dst, '{')}
	j.Uint64("seq", &r.Seq, always)
	j.Time("time", &r.Stamp.Wall, always)
	j.Boot("boot", &r.Stamp.Boot, always)
	j.Int("gen", &r.Stamp.Gen, always)
	kind := string(r.Event.Kind())
	j.String("kind", &kind, always)
	j.String("handle", &r.Handle, optional)
	j.Struct("data", r.Event, always)
	j.String("hash", &hash, always)
	return append(j.dst, '}')
}

// json prints what an unknown event carries, names sorted.
func (u *Unknown) json() []byte {
	v, err := msgpack.NewDecoder(bytes.NewReader(u.Data)).DecodeInterface()
	if err == nil {
		if out, err := json.Marshal(v); err == nil {
			return out
		}
	}
	return []byte("{}")
}

// printer writes fields as the members of a JSON object.
type printer struct{ dst []byte }

func (j *printer) key(name string, skip bool) bool {
	if skip {
		return false
	}
	if c := j.dst[len(j.dst)-1]; c != '{' {
		j.dst = append(j.dst, ',')
	}
	j.dst = append(j.dst, '"')
	j.dst = append(j.dst, name...)
	j.dst = append(j.dst, '"', ':')
	return true
}

// quote appends a string; bytes that are not UTF-8 become U+FFFD.
func (j *printer) quote(s string) {
	j.dst, _ = jsontext.AppendQuote(j.dst, s)
}

func (j *printer) Bool(name string, p *bool, opt bool) {
	if j.key(name, opt && !*p) {
		j.dst = strconv.AppendBool(j.dst, *p)
	}
}

func (j *printer) Int(name string, p *int, opt bool) {
	if j.key(name, opt && *p == 0) {
		j.dst = strconv.AppendInt(j.dst, int64(*p), 10)
	}
}

func (j *printer) Int64(name string, p *int64, opt bool) {
	if j.key(name, opt && *p == 0) {
		j.dst = strconv.AppendInt(j.dst, *p, 10)
	}
}

func (j *printer) Uint64(name string, p *uint64, opt bool) {
	if j.key(name, opt && *p == 0) {
		j.dst = strconv.AppendUint(j.dst, *p, 10)
	}
}

func (j *printer) String(name string, p *string, opt bool) {
	if j.key(name, opt && *p == "") {
		j.quote(*p)
	}
}

func (j *printer) Strings(name string, p *[]string, opt bool) {
	if !j.key(name, opt && len(*p) == 0) {
		return
	}
	j.dst = append(j.dst, '[')
	for i, s := range *p {
		if i > 0 {
			j.dst = append(j.dst, ',')
		}
		j.quote(s)
	}
	j.dst = append(j.dst, ']')
}

func (j *printer) Bytes(name string, p *[]byte, opt bool) {
	if j.key(name, opt && len(*p) == 0) {
		j.dst = append(j.dst, '"')
		j.dst = base64.StdEncoding.AppendEncode(j.dst, *p)
		j.dst = append(j.dst, '"')
	}
}

func (j *printer) Time(name string, p *int64, opt bool) {
	if j.key(name, opt && *p == 0) {
		j.dst = append(j.dst, '"')
		j.dst = time.Unix(0, *p).UTC().AppendFormat(j.dst, time.RFC3339Nano)
		j.dst = append(j.dst, '"')
	}
}

func (j *printer) Boot(name string, p *Boot, opt bool) {
	if j.key(name, opt && *p == Boot{}) {
		j.quote(p.String())
	}
}

func (j *printer) Struct(name string, l fieldLister, absent bool) {
	if !j.key(name, absent) {
		return
	}
	if raw, ok := l.(*Unknown); ok {
		j.dst = append(j.dst, raw.json()...)
		return
	}
	j.dst = append(j.dst, '{')
	l.fields(j)
	j.dst = append(j.dst, '}')
}

func (j *printer) List(name string, l list) {
	j.key(name, false)
	j.dst = append(j.dst, '[')
	for i := range l.Len() {
		if i > 0 {
			j.dst = append(j.dst, ',')
		}
		j.dst = append(j.dst, '{')
		l.At(i).fields(j)
		j.dst = append(j.dst, '}')
	}
	j.dst = append(j.dst, ']')
}
