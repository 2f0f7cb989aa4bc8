package wire

import (
	"bytes"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/segmentio/asm/base64"
)

// Message is one of the request and reply structs of this package.
type Message interface {
	fields(v visitor)
}

// presence is when a field stands on the wire.
type presence int

const (
	nonzero  presence = iota // left out when it is zero
	always                   // written also when zero; a reader takes a missing one for zero
	required                 // written always, refused when missing
)

// visitor is told the fields of a message, each with its name on the wire. The
// encoder reads through the pointers, the decoder writes through them.
type visitor interface {
	text(name string, p *string, when presence)
	texts(name string, p *[]string, when presence)
	flag(name string, p *bool, when presence)
	number(name string, p *int, when presence)
	long(name string, p *int64, when presence)
	sequence(name string, p *uint64, when presence)
	base64(name string, p *[]byte, when presence)
	raw(name string, p *[][]byte)
	// seconds are nanoseconds in memory, a fraction on the wire.
	seconds(name string, p *int64)
	// maybe is a number, or null where there is none.
	maybe(name string, p **int)
	// pairs is an object of strings, NAME=VALUE each in memory.
	pairs(name string, p *[]string)
	// output is a text of any bytes, and content those of a file. Both are
	// always there, and as large as they like: see encoder.spill.
	output(name string, p *[]byte)
	content(name string, p *Content)
	// object is another message; present tells the encoder whether to write
	// it, the decoder calls m when it is there.
	object(name string, present bool, m func() Message)
	// list holds n messages; the decoder calls at with 0, 1, 2, … and thereby
	// makes them.
	list(name string, n int, at func(i int) Message)
}

// AppendRequest appends the line of a request, line end included. An empty id
// is none.
func AppendRequest(dst []byte, op, id string, m Message) []byte {
	e := encoder{dst: append(dst, `{"op":`...), comma: true}
	e.dst = appendText(e.dst, op)
	e.text("id", &id, nonzero)
	if m != nil {
		m.fields(&e)
	}
	return append(e.dst, '}', '\n')
}

// AppendReply appends the line of a reply, line end included: of a success
// with m, or of err. With an error m is what is said beside it, and nearly
// always nil. An id is the JSON text of the request's, quotes included, or
// empty where the request had none.
func AppendReply(dst []byte, id string, m Message, err error) []byte {
	e := encoder{dst: dst}
	e.reply(id, m, err, true)
	return e.dst
}

// DecodeReply reads the line of a reply into m, which is zero but for the
// capacity of its byte slices, or nil. An ok:false reply is an *Error, its code
// CodeUnknownOp from an agent that does not know the verb and CodeInternal
// from one that gives no code; what else it says is still read into m. The
// line is trusted to come from an agent: it is not checked for duplicate
// names. Raw records point into the line.
func DecodeReply(line []byte, m Message) (id string, err error) {
	return DecodeReplyTo(line, func(string) Message { return m })
}

// DecodeReplyTo is DecodeReply for a caller that knows only by the reply's id
// whom it is for. It is asked for the message once, unless the line is no JSON
// object.
func DecodeReplyTo(line []byte, to func(id string) Message) (id string, err error) {
	d := decoders.Get().(*decoder)
	defer d.release()
	if err := d.split(line, splitObject); err != nil {
		return "", err
	}
	var ok bool
	var failed Error
	d.text("id", &id, nonzero)
	m := to(id)
	d.flag("ok", &ok, required)
	if !ok {
		d.text("error", &failed.Message, nonzero)
		d.text("code", (*string)(&failed.Code), nonzero)
	}
	if m != nil {
		m.fields(d)
	}
	switch {
	case d.err != nil:
		return id, d.err
	case ok:
		return id, nil
	case failed.Code == "" && strings.HasPrefix(failed.Message, unknownOp):
		failed.Code = CodeUnknownOp
	case failed.Code == "":
		failed.Code = CodeInternal
	}
	return id, &failed
}

// unknownOp begins the answer to a verb that an agent does not know; the verb
// follows. Callers of every age match it.
const unknownOp = "unknown op: "

// encoder appends fields to a JSON object.
type encoder struct {
	dst   []byte
	comma bool        // a field stands before the next one
	to    *connection // takes what spill hands on; nil: all stays in dst
	begun bool        // it took some, and waits for the rest
	err   error       // the message cannot be completed
}

// reply appends the line of a reply. Only a coded one tells the code of err.
func (e *encoder) reply(id string, m Message, err error, coded bool) {
	e.dst = strconv.AppendBool(append(e.dst, `{"ok":`...), err == nil)
	e.comma = true
	if id != "" {
		e.name("id")
		e.dst = append(e.dst, id...)
	}
	if err != nil {
		e.failure(err, coded)
	}
	if m != nil {
		m.fields(e)
	}
	e.dst = append(e.dst, '}', '\n')
}

func (e *encoder) failure(err error, coded bool) {
	message, code := err.Error(), string(CodeOf(err))
	e.text("error", &message, always)
	if coded && code != string(CodeUnknownOp) {
		e.text("code", &code, always)
	}
}

func (e *encoder) name(name string) {
	if e.comma {
		e.dst = append(e.dst, ',')
	}
	e.comma = true
	e.dst = append(e.dst, '"')
	e.dst = append(e.dst, name...)
	e.dst = append(e.dst, '"', ':')
}

// appendText writes bytes that are no UTF-8 as U+FFFD.
func appendText(dst []byte, s string) []byte {
	dst, _ = jsontext.AppendQuote(dst, s) // its one error is that replacement
	return dst
}

func (e *encoder) text(name string, p *string, when presence) {
	if *p != "" || when != nonzero {
		e.name(name)
		e.dst = appendText(e.dst, *p)
	}
}

func (e *encoder) texts(name string, p *[]string, when presence) {
	if len(*p) == 0 && when == nonzero {
		return
	}
	e.name(name)
	open := byte('[')
	for _, s := range *p {
		e.dst = appendText(append(e.dst, open), s)
		open = ','
		e.spill()
	}
	e.closeList(open)
}

// closeList ends a list whose next separator would be open.
func (e *encoder) closeList(open byte) {
	if open == '[' {
		e.dst = append(e.dst, '[')
	}
	e.dst = append(e.dst, ']')
}

func (e *encoder) flag(name string, p *bool, when presence) {
	if *p || when != nonzero {
		e.name(name)
		e.dst = strconv.AppendBool(e.dst, *p)
	}
}

func (e *encoder) number(name string, p *int, when presence) {
	n := int64(*p)
	e.long(name, &n, when)
}

func (e *encoder) long(name string, p *int64, when presence) {
	if *p != 0 || when != nonzero {
		e.name(name)
		e.dst = strconv.AppendInt(e.dst, *p, 10)
	}
}

func (e *encoder) sequence(name string, p *uint64, when presence) {
	if *p != 0 || when != nonzero {
		e.name(name)
		e.dst = strconv.AppendUint(e.dst, *p, 10)
	}
}

func (e *encoder) base64(name string, p *[]byte, when presence) {
	if len(*p) == 0 && when == nonzero {
		return
	}
	e.name(name)
	e.dst = append(e.dst, '"')
	e.bytes(*p)
	e.dst = append(e.dst, '"')
}

// bytes appends base64.
func (e *encoder) bytes(p []byte) {
	n := base64.StdEncoding.EncodedLen(len(p))
	e.dst = slices.Grow(e.dst, n+2)
	start := len(e.dst)
	e.dst = e.dst[:start+n]
	base64.StdEncoding.Encode(e.dst[start:], p)
}

func (e *encoder) raw(name string, p *[][]byte) {
	e.name(name)
	open := byte('[')
	for _, object := range *p {
		e.dst = append(append(e.dst, open), object...)
		open = ','
	}
	e.closeList(open)
}

func (e *encoder) object(name string, present bool, m func() Message) {
	if present {
		e.name(name)
		e.nested(m())
	}
}

func (e *encoder) nested(m Message) {
	e.dst = append(e.dst, '{')
	e.comma = false
	m.fields(e)
	e.dst = append(e.dst, '}')
	e.comma = true
}

func (e *encoder) list(name string, n int, at func(int) Message) {
	e.name(name)
	open := byte('[')
	for i := 0; i < n && e.err == nil; i++ {
		e.dst = append(e.dst, open)
		e.nested(at(i))
		open = ','
		e.spill()
	}
	e.closeList(open)
}

// decoder looks fields up among the members of one object. Its first error
// stays; a field that is wrong is left as it was.
type decoder struct {
	members []member
	err     error
}

var decoders = sync.Pool{New: func() any { return new(decoder) }}

// release forgets the line and gives the decoder back.
func (d *decoder) release() {
	if cap(d.members) > 1<<10 {
		return
	}
	clear(d.members)
	d.members, d.err = d.members[:0], nil
	decoders.Put(d)
}

func (d *decoder) split(line []byte, how func([]byte, []member) ([]member, error)) (err error) {
	d.members, err = how(line, d.members[:0])
	return err
}

// find returns the raw value of a field, nil if it is not there.
func (d *decoder) find(name string, when presence) []byte {
	for i := range d.members {
		if string(d.members[i].name) == name {
			return d.members[i].value
		}
	}
	if when == required {
		d.refuse(name, "is missing")
	}
	return nil
}

func (d *decoder) refuse(name, why string) {
	if d.err == nil {
		d.err = Errorf(CodeBadRequest, "%s %s", name, why)
	}
}

func (d *decoder) text(name string, p *string, when presence) {
	raw := d.find(name, when)
	switch {
	case raw == nil:
	case isString(raw):
		*p = string(unquoted(raw))
	default:
		d.refuse(name, "must be a string")
	}
}

func (d *decoder) texts(name string, p *[]string, when presence) {
	raw := d.find(name, when)
	if raw == nil {
		return
	}
	var list []string
	if !eachElement(raw, func(element []byte) bool {
		if isString(element) {
			list = append(list, string(unquoted(element)))
		}
		return isString(element)
	}) {
		d.refuse(name, "must be a list of strings")
		return
	}
	*p = list
}

func (d *decoder) flag(name string, p *bool, when presence) {
	raw := d.find(name, when)
	switch {
	case raw == nil:
	case string(raw) == "true":
		*p = true
	case string(raw) == "false":
		*p = false
	default:
		d.refuse(name, "must be true or false")
	}
}

func (d *decoder) number(name string, p *int, when presence) {
	n := int64(*p)
	d.long(name, &n, when)
	*p = int(n)
}

func (d *decoder) long(name string, p *int64, when presence) {
	raw := d.find(name, when)
	if raw == nil {
		return
	}
	if n, ok := integer(raw); ok {
		*p = n
	} else {
		d.refuse(name, "must be a whole number of at most 64 bits, without fraction or exponent")
	}
}

func (d *decoder) sequence(name string, p *uint64, when presence) {
	n := int64(*p)
	d.long(name, &n, when)
	if n < 0 {
		d.refuse(name, "must not be negative")
		return
	}
	*p = uint64(n)
}

// strict base64 refuses stray bits behind the last byte.
var strict = base64.StdEncoding.Strict()

func (d *decoder) base64(name string, p *[]byte, when presence) {
	raw := d.find(name, when)
	if raw == nil {
		return
	}
	if !isString(raw) {
		d.refuse(name, "must be a string of base64")
		return
	}
	text := unquoted(raw)
	dst := slices.Grow((*p)[:0], strict.DecodedLen(len(text)))
	n, err := strict.Decode(dst[:cap(dst)], text)
	// The decoder passes over line breaks: then the length does not fit.
	pads := len(text) - len(bytes.TrimRight(text, "="))
	if err != nil || len(text)%4 != 0 || n != len(text)/4*3-pads {
		d.refuse(name, "is not valid base64")
		return
	}
	*p = dst[:n]
}

func (d *decoder) raw(name string, p *[][]byte) {
	raw := d.find(name, always)
	if raw == nil {
		return
	}
	*p = (*p)[:0]
	if !eachElement(raw, func(element []byte) bool {
		*p = append(*p, element)
		return true
	}) {
		d.refuse(name, "must be a list")
	}
}

func (d *decoder) object(name string, _ bool, m func() Message) {
	if raw := d.find(name, always); raw != nil && !d.nested(raw, m()) {
		d.refuse(name, "must be an object")
	}
}

func (d *decoder) nested(object []byte, m Message) bool {
	inner := decoders.Get().(*decoder)
	defer inner.release()
	if inner.split(object, splitObject) != nil {
		return false
	}
	m.fields(inner)
	if d.err == nil {
		d.err = inner.err
	}
	return true
}

func (d *decoder) list(name string, _ int, at func(int) Message) {
	raw := d.find(name, always)
	if raw == nil {
		return
	}
	i := 0
	if !eachElement(raw, func(element []byte) bool {
		i++
		return d.nested(element, at(i-1))
	}) {
		d.refuse(name, "must be a list of objects")
	}
}
