package wire

import (
	"bytes"
	"errors"
	"io"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"
)

// maxElements bounds the commas of a request, and so its names and list
// elements: the parser remembers each name to find duplicates.
const maxElements = 1 << 17

// member is one name and its value. The name is unquoted, the value raw JSON;
// both point into the line.
type member struct {
	name, value []byte
}

// parseObject checks a line from a stranger and appends its members to dst. It
// allocates little, and nothing before the limits of the line are checked.
func parseObject(line []byte, dst []member) ([]member, error) {
	if err := checkShape(line); err != nil {
		return dst, err
	}
	if !jsontext.Value(line).IsValid() {
		return dst, syntaxError(line)
	}
	return splitObject(line, dst)
}

// checkShape counts depth and elements without recursion. It finds nothing
// else wrong: that is the parser's part.
func checkShape(line []byte) error {
	depth, commas := 0, 0
	for i := 0; i < len(line); i++ {
		switch line[i] {
		case '"':
			i = stringEnd(line, i)
		case '{', '[':
			depth++
		case '}', ']':
			depth--
		case ',':
			commas++
		}
		if depth > MaxDepth {
			return Errorf(CodeBadRequest, "nested deeper than %d", MaxDepth)
		}
		if commas > maxElements {
			return Errorf(CodeBadRequest, "more than %d names and list elements", maxElements)
		}
	}
	return nil
}

// syntaxError says what is wrong with a line that is not valid.
func syntaxError(line []byte) error {
	if bytes.HasPrefix(line, []byte("\uFEFF")) {
		return Errorf(CodeBadRequest, "bad JSON: the line begins with a byte order mark")
	}
	d := jsontext.NewDecoder(bytes.NewBuffer(line))
	_, err := d.ReadValue()
	if err == nil {
		return Errorf(CodeBadRequest, "bad JSON: more than one value on the line, the first ends at byte %d", d.InputOffset())
	}
	if errors.Is(err, io.ErrUnexpectedEOF) {
		return Errorf(CodeBadRequest, "bad JSON: the line ends in the middle of a value")
	}
	what := cut(strings.TrimPrefix(err.Error(), "jsontext: "), 200)
	return Errorf(CodeBadRequest, "bad JSON: %s", what)
}

// cut shortens s to at most n bytes of whole characters.
func cut(s string, n int) string {
	if len(s) <= n {
		return s
	}
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n]
}

// cursor walks JSON that was checked before, or that an agent wrote. On
// anything else it ends in an error or in wrong pieces, never in a panic.
type cursor struct {
	b []byte
	i int
}

var errNotObject = Errorf(CodeBadRequest, "not a JSON object")

// splitObject appends the members of an object to dst.
func splitObject(object []byte, dst []member) ([]member, error) {
	c := cursor{b: object}
	if !c.take('{') {
		return dst, errNotObject
	}
	if c.take('}') {
		return dst, c.ended()
	}
	for {
		name := c.value()
		if !isString(name) || !c.take(':') {
			return dst, errNotObject
		}
		value := c.value()
		if value == nil {
			return dst, errNotObject
		}
		dst = append(dst, member{unquoted(name), value})
		if c.take('}') {
			return dst, c.ended()
		}
		if !c.take(',') {
			return dst, errNotObject
		}
	}
}

// eachElement calls f with each element of a list; it reports whether list was
// one and f always returned true.
func eachElement(list []byte, f func(element []byte) bool) bool {
	c := cursor{b: list}
	if !c.take('[') {
		return false
	}
	if c.take(']') {
		return c.ended() == nil
	}
	for {
		element := c.value()
		if element == nil || !f(element) {
			return false
		}
		if c.take(']') {
			return c.ended() == nil
		}
		if !c.take(',') {
			return false
		}
	}
}

func (c *cursor) space() {
	for c.i < len(c.b) {
		switch c.b[c.i] {
		case ' ', '\t', '\r', '\n':
			c.i++
		default:
			return
		}
	}
}

// take steps over one character and the space around it, if it comes next.
func (c *cursor) take(char byte) bool {
	c.space()
	if c.i == len(c.b) || c.b[c.i] != char {
		return false
	}
	c.i++
	return true
}

func (c *cursor) ended() error {
	if c.space(); c.i < len(c.b) {
		return errNotObject
	}
	return nil
}

// value steps over one value and returns it, or nil where there is none.
func (c *cursor) value() []byte {
	c.space()
	start := c.i
	if start == len(c.b) {
		return nil
	}
	switch c.b[start] {
	case '"':
		c.i = stringEnd(c.b, start) + 1
	case '{', '[':
		c.i = nestedEnd(c.b, start)
	default:
		c.i = literalEnd(c.b, start)
	}
	if c.i > len(c.b) || c.i == start {
		c.i = len(c.b)
		return nil
	}
	return c.b[start:c.i]
}

// stringEnd returns the index of the quote that closes the string that begins
// at b[i], len(b) if none does.
func stringEnd(b []byte, i int) int {
	for i++; i < len(b); i++ {
		n := bytes.IndexByte(b[i:], '"')
		if n < 0 {
			break
		}
		i += n
		slashes := 0
		for b[i-1-slashes] == '\\' { // the opening quote ends this
			slashes++
		}
		if slashes%2 == 0 {
			return i
		}
	}
	return len(b)
}

// nestedEnd returns the index behind the object or list that begins at b[i],
// len(b)+1 if it does not end.
func nestedEnd(b []byte, i int) int {
	depth := 0
	for ; i < len(b); i++ {
		switch b[i] {
		case '"':
			i = stringEnd(b, i)
		case '{', '[':
			depth++
		case '}', ']':
			depth--
			if depth == 0 {
				return i + 1
			}
		}
	}
	return len(b) + 1
}

func literalEnd(b []byte, i int) int {
	if n := bytes.IndexAny(b[i:], ",:]} \t\r\n"); n >= 0 {
		return i + n
	}
	return len(b)
}

func isString(raw []byte) bool {
	return len(raw) >= 2 && raw[0] == '"' && raw[len(raw)-1] == '"'
}

// unquoted returns the bytes of a JSON string: a part of raw where nothing is
// escaped, else a copy.
func unquoted(raw []byte) []byte {
	if bytes.IndexByte(raw, '\\') < 0 {
		return raw[1 : len(raw)-1]
	}
	text, _ := jsontext.AppendUnquote(nil, raw) // raw was checked, or is the agent's own
	return text
}

// integer reads a JSON number that is written as a whole one. 5.0 and 1e3 are
// refused like 5.5: whoever means a whole number can write one.
func integer(raw []byte) (int64, bool) {
	if len(raw) == 0 || raw[0] == '+' {
		return 0, false
	}
	n, err := strconv.ParseInt(string(raw), 10, 64)
	return n, err == nil
}
