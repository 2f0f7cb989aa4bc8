package statemachine

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/vmihailenco/msgpack/v5"
	"pgregory.net/rapid"

	"supervisor/internal/testproc"
)

// byContent takes an absent slice for an empty one: neither is stored as such.
var byContent = cmp.Options{cmp.Comparer(bytes.Equal), cmp.Comparer(slices.Equal[[]string])}

// TestRoundTrip: what is stored is what was recorded, for every kind; and what
// is read keeps nothing of the bytes that it was read from.
func TestRoundTrip(t *testing.T) {
	for _, k := range allKinds {
		t.Run(string(k), rapid.MakeCheck(func(t *rapid.T) {
			var enc Encoder
			var dec Decoder
			want := drawRecord(t, k)
			payload := enc.Encode(&want)
			scratch := bytes.Clone(payload)
			got, err := dec.Decode(want.Seq, scratch)
			if err != nil {
				t.Fatal(err)
			}
			for i := range scratch {
				scratch[i] = 0xff
			}
			if diff := cmp.Diff(want, got, byContent); diff != "" {
				t.Fatal(diff)
			}
			if !bytes.Equal(payload, enc.Encode(&got)) {
				t.Fatal("the same record is stored in two ways")
			}
		}))
	}
}

// TestUnknownIsKept: an event of an unknown kind, or of another version of a
// known one, is kept byte for byte, shown, and makes the registry partial.
func TestUnknownIsKept(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var enc Encoder
		var dec Decoder
		want := Record{Seq: 1, Stamp: Stamp{Gen: 7}, Handle: "p1", Event: drawUnknown(t)}
		payload := enc.Encode(&want)
		scratch := bytes.Clone(payload)
		got, err := dec.Decode(1, scratch)
		if err != nil {
			t.Fatal(err)
		}
		clear(scratch)
		if diff := cmp.Diff(want, got); diff != "" || !bytes.Equal(payload, enc.Encode(&got)) {
			t.Fatal(diff)
		}
		r := NewRegistry()
		if err := r.Apply(&got); err != nil || !r.Partial() || r.Len() != 0 {
			t.Fatal(err, r.Partial(), r.Len())
		}
		var shown struct {
			Data struct {
				N      int64
				Nested []any
			}
		}
		if err := json.Unmarshal(got.AppendJSON(nil, ""), &shown); err != nil || len(shown.Data.Nested) != 3 {
			t.Fatalf("%v in %s", err, got.AppendJSON(nil, ""))
		}
	})
}

// TestUnknownWithoutData: one that carries nothing can still be stored again.
func TestUnknownWithoutData(t *testing.T) {
	var enc Encoder
	var dec Decoder
	first, err := dec.Decode(1, joinMap([][2][]byte{{packed("k"), packed("later.kind")}}))
	if err != nil {
		t.Fatal(err)
	}
	again, err := dec.Decode(1, enc.Encode(&first))
	if err != nil || cmp.Diff(first, again) != "" {
		t.Fatal(err, cmp.Diff(first, again))
	}
}

// TestOrderAndExtras: fields may stand in any order, and there may be more of
// them than this version knows, in the record as in its data.
func TestOrderAndExtras(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var enc Encoder
		var dec Decoder
		want := drawRecord(t, rapid.SampledFrom(allKinds).Draw(t, "kind"))
		entries := splitMap(t, enc.Encode(&want))
		for i, e := range entries {
			if string(e[0]) == string(packed("d")) {
				entries[i][1] = stir(t, splitMap(t, e[1]))
			}
		}
		got, err := dec.Decode(want.Seq, stir(t, entries))
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, got, byContent); diff != "" {
			t.Fatal(diff)
		}
	})
}

// stir adds unknown entries to a map and mixes their order.
func stir(t *rapid.T, entries [][2][]byte) []byte {
	long := strings.Repeat("n", 200)
	for _, name := range []string{"", "zz", long} {
		if rapid.Bool().Draw(t, "extra") {
			entries = append(entries, [2][]byte{packed(name), packed(map[string]any{"k": []int{1, 2}, long: nil})})
		}
	}
	return joinMap(rapid.Permutation(entries).Draw(t, "order"))
}

// splitMap takes a stored map apart into its keys and values.
func splitMap(t *rapid.T, b []byte) [][2][]byte {
	h := headOf(b)
	b = b[h.size:]
	entries := make([][2][]byte, h.n)
	for i := range entries {
		for j := range entries[i] {
			n, err := extent(b)
			if err != nil {
				t.Fatal(err)
			}
			entries[i][j], b = b[:n], b[n:]
		}
	}
	return entries
}

func joinMap(entries [][2][]byte) []byte {
	b := []byte{0xde, byte(len(entries) >> 8), byte(len(entries))}
	for _, e := range entries {
		b = append(append(b, e[0]...), e[1]...)
	}
	return b
}

func packed(v any) []byte {
	b, err := msgpack.Marshal(v)
	if err != nil {
		panic(err)
	}
	return b
}

// hostile are payloads that no agent wrote, in hex.
var hostile = map[string]string{
	"nothing":                  "",
	"no map":                   "01",
	"nil":                      "c0",
	"an empty map":             "80",
	"no kind":                  "81a168a27031",
	"an empty kind":            "81a16ba0",
	"a kind that is no string": "81a16b05",
	"a key that is no string":  "8105a16b",
	"bytes after the value":    "81a16ba47665726200",
	"cut in a key":             "81a5",
	"cut in a head":            "81a16bdb0000",
	"a map of four billion":    "dfffffffff",
	"a huge map in the data":   "82a16ba476657262a164dfffffffff",
	"a huge string":            "81a16bdbffffffff",
	"a huge array":             "82a16bae70726f632e726571756573746564a16481a3636d64ddffffffff",
	"a huge unknown field":     "82a16ba476657262a17addffffffff",
	"a huge unknown event":     "82a16ba16ba164ddffffffff",
	"an extension":             "82a16ba476657262a17ad40101",
	"a reserved byte":          "82a16ba476657262a17ac1",
	"data that is no map":      "82a16ba476657262a16405",
	"a boot id of one byte":    "82a16ba476657262a162c401ff",
	"a boolean that is 1":      "82a16ba476657262a16481a26f6b01",
	"a number that is a text":  "82a16ba476657262a167a139",
	"past the largest integer": "82a16ba476657262a167cfffffffffffffffff",
	"a negative inode":         "82a16bac70726f632e73746172746564a16481aa7374646f75745f696e6fff",
	"two kinds":                "84a16ba476657262a16480a16ba16ba16480",
}

// TestHostileRecords: what is no record is an error, at no cost.
func TestHostileRecords(t *testing.T) {
	payloads := map[string][]byte{"deep": deep(maxDepth), "very deep": deep(1 << 20)}
	for name, digits := range hostile {
		b, err := hex.DecodeString(digits)
		if err != nil {
			t.Fatal(name, err)
		}
		payloads[name] = b
	}
	for name, payload := range payloads {
		var dec Decoder
		var err error
		cost := testproc.Allocated(func() { _, err = dec.Decode(1, payload) })
		if !errors.Is(err, ErrRecord) || cost > 1<<20 {
			t.Errorf("%s: %v, %d bytes allocated", name, err, cost)
		}
	}
	var dec Decoder
	if _, err := dec.Decode(1, deep(maxDepth-1)); err != nil {
		t.Error("just deep enough:", err)
	}
}

// deep is a record with an unknown field that holds arrays of arrays.
func deep(arrays int) []byte {
	value := append(bytes.Repeat([]byte{0x91}, arrays), 0x91, 0x01)
	return joinMap([][2][]byte{{packed("k"), packed("verb")}, {packed("z"), value}})
}

// TestExtentAgrees: a value is as long as the library that writes them says.
func TestExtentAgrees(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b := rapid.SliceOf(rapid.Byte()).Draw(t, "bytes")
		n, err := extent(b)
		if err != nil {
			return
		}
		src := bytes.NewReader(b)
		if err := msgpack.NewDecoder(src).Skip(); err != nil || len(b)-src.Len() != n {
			t.Fatalf("%d bytes, not %d: %v", n, len(b)-src.Len(), err)
		}
	})
}

// TestCutRecords: a record cut anywhere is an error, and so is one too long.
func TestCutRecords(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var enc Encoder
		var dec Decoder
		r := drawRecord(t, rapid.SampledFrom(allKinds).Draw(t, "kind"))
		payload := enc.Encode(&r)
		cut := rapid.IntRange(0, len(payload)-1).Draw(t, "cut")
		for _, bad := range [][]byte{payload[:cut], append(payload, 0xc0)} {
			if _, err := dec.Decode(1, bad); !errors.Is(err, ErrRecord) {
				t.Fatal(err)
			}
		}
	})
}

// TestSnapshotRefused: what is no snapshot of this version is an error, at no
// cost: a snapshot is a cache, and the records are there.
func TestSnapshotRefused(t *testing.T) {
	newer := packed(map[string]any{"version": SnapshotVersion + 1, "seq": 1, "processes": []any{}})
	empties := append([]byte{0x83, 0xa7}, "version\x01\xa3seq\x00\xa9processes\xdd\x00\x40\x00\x00"...)
	empties = append(empties, bytes.Repeat([]byte{0x80}, 1<<22)...)
	stateless := packed(map[string]any{
		"version": SnapshotVersion, "seq": 1,
		"processes": []any{map[string]any{"handle": "p1", "requested_seq": 1, strings.Repeat("x", 128): 1}},
	})
	for name, b := range map[string][]byte{
		"nothing": nil, "a newer one": newer, "4 million empty processes": empties, "no state": stateless,
		"bytes after it": append(NewRegistry().EncodeSnapshot(), 0),
	} {
		var err error
		cost := testproc.Allocated(func() { _, err = DecodeSnapshot(b) })
		if !errors.Is(err, ErrSnapshot) || cost > 1<<20 {
			t.Errorf("%s: %v, %d bytes allocated", name, err, cost)
		}
	}
}

// TestBoot: a boot id is read in the kernel's form alone.
func TestBoot(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var want Boot
		copy(want[:], rapid.SliceOfN(rapid.Byte(), 16, 16).Draw(t, "boot"))
		if got, err := ParseBoot(want.String()); err != nil || got != want {
			t.Fatal(got, err)
		}
	})
	good := testBoot.String()
	for _, bad := range []string{"", good[1:], good + "\n", strings.ReplaceAll(good, "-", ""), strings.Replace(good, "-", "0", 1), "g" + good[1:]} {
		if _, err := ParseBoot(bad); err == nil {
			t.Errorf("%q is taken for a boot id", bad)
		}
	}
}
