package statemachine

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"pgregory.net/rapid"
)

// shown is a record as a reader of the JSON takes it.
type shown struct {
	Seq    uint64          `json:"seq"`
	Time   time.Time       `json:"time"`
	Boot   string          `json:"boot"`
	Gen    int             `json:"gen"`
	Kind   string          `json:"kind"`
	Handle *string         `json:"handle"`
	Data   json.RawMessage `json:"data"`
	Hash   string          `json:"hash"`
}

// TestJSON: any record is one line of JSON in which everything is found again.
func TestJSON(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := drawRecord(t, rapid.SampledFrom(allKinds).Draw(t, "kind"))
		line := r.AppendJSON([]byte("kept"), sampleHash)[len("kept"):]
		var got shown
		strict := json.NewDecoder(bytes.NewReader(line))
		strict.DisallowUnknownFields()
		if err := strict.Decode(&got); err != nil || bytes.ContainsAny(line, "\r\n") || !utf8.Valid(line) {
			t.Fatalf("%v in %q", err, line)
		}
		if got.Seq != r.Seq || got.Time.UnixNano() != r.Stamp.Wall || got.Boot != r.Stamp.Boot.String() ||
			got.Gen != r.Stamp.Gen || got.Kind != string(r.Event.Kind()) || got.Hash != sampleHash {
			t.Fatalf("%+v in %s", got, line)
		}
		if (got.Handle == nil) != (r.Handle == "") {
			t.Fatalf("handle %q is shown as %s", r.Handle, line)
		}
		if got.Handle != nil && *got.Handle != string([]rune(r.Handle)) {
			t.Fatalf("handle %q is shown as %q", r.Handle, *got.Handle)
		}
	})
}

// TestJSONTails: the tails are all there, in base64.
func TestJSONTails(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		e := Drained{StdoutTail: drawBytes(t, "stdout"), StderrTail: drawBytes(t, "stderr")}
		r := Record{Event: &e}
		var got struct {
			Data struct {
				Stdout []byte `json:"stdout_tail"`
				Stderr []byte `json:"stderr_tail"`
			}
		}
		if err := json.Unmarshal(r.AppendJSON(nil, ""), &got); err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(got.Data.Stdout, e.StdoutTail) || !bytes.Equal(got.Data.Stderr, e.StderrTail) {
			t.Fatalf("%s", r.AppendJSON(nil, ""))
		}
	})
}

// TestJSONTime: UTC wherever the agent is, with as many digits as are needed.
func TestJSONTime(t *testing.T) {
	defer func(l *time.Location) { time.Local = l }(time.Local)
	time.Local = time.FixedZone("elsewhere", 5*3600)
	for wall, want := range map[int64]string{
		0:                         "1970-01-01T00:00:00Z",
		1_790_000_000_000_000_000: "2026-09-21T14:13:20Z",
		1_790_000_000_120_000_000: "2026-09-21T14:13:20.12Z",
		1_790_000_000_123_456_789: "2026-09-21T14:13:20.123456789Z",
		-1:                        "1969-12-31T23:59:59.999999999Z",
	} {
		r := Record{Stamp: Stamp{Instant: Instant{Wall: wall}}, Event: &Verb{First: wall}}
		line := string(r.AppendJSON(nil, ""))
		if !strings.Contains(line, `"time":"`+want+`"`) {
			t.Errorf("%d is not shown as %s: %s", wall, want, line)
		}
		if first := strings.Contains(line, `"first_time":"`+want+`"`); first != (wall != 0) {
			t.Errorf("first_time %d: %s", wall, line)
		}
	}
}

// TestJSONBadBytes: what is no UTF-8 harms neither the line nor its neighbours
// (C02).
func TestJSONBadBytes(t *testing.T) {
	r := Record{Handle: "p1", Event: &Requested{Spec{Cmd: []string{"a\xffb", "\xc3\x28", "\"\\\x00\u2028", "ok"}}}}
	var got struct{ Data struct{ Cmd []string } }
	if err := json.Unmarshal(r.AppendJSON(nil, ""), &got); err != nil {
		t.Fatal(err)
	}
	want := []string{"a\ufffdb", "\ufffd(", "\"\\\x00\u2028", "ok"}
	if !slices.Equal(got.Data.Cmd, want) {
		t.Errorf("%q, not %q", got.Data.Cmd, want)
	}
}
