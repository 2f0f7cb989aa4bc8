package statemachine

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"errors"
	"testing"

	"supervisor/internal/testproc"
)

// FuzzDecode: no payload makes Decode panic or allocate much, and what is a
// record can be stored, read again, shown and offered to a registry.
func FuzzDecode(f *testing.F) {
	for _, s := range samples(f) {
		f.Add(s.payload)
	}
	for _, digits := range hostile {
		b, _ := hex.DecodeString(digits)
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, payload []byte) {
		var dec Decoder
		var rec Record
		var err error
		testproc.AllocatesLike(t, payload, 64, func() { rec, err = dec.Decode(1, payload) })
		if err != nil {
			if !errors.Is(err, ErrRecord) {
				t.Fatal(err)
			}
			return
		}
		checkStoredAgain(t, &rec)
		if !json.Valid(rec.AppendJSON(nil, "")) {
			t.Fatalf("no JSON: %s", rec.AppendJSON(nil, ""))
		}
		r := NewRegistry()
		if err := r.Apply(&rec); err != nil && r.Seq() != 0 {
			t.Fatal("a refused record was applied:", err)
		}
	})
}

// checkStoredAgain: from its second writing on, a record's stored form stays.
func checkStoredAgain(t *testing.T, rec *Record) {
	var enc Encoder
	var dec Decoder
	stored := enc.Encode(rec)
	again, err := dec.Decode(rec.Seq, stored)
	if err != nil || !bytes.Equal(stored, enc.Encode(&again)) {
		t.Fatalf("%v: %x is stored again as %x", err, stored, enc.Encode(&again))
	}
}

// FuzzSnapshot: no snapshot makes DecodeSnapshot panic or allocate much, and
// one that it takes is a registry that can be stored, asked and checked.
func FuzzSnapshot(f *testing.F) {
	for _, name := range []string{"room", "retention", "crash_recovery", "reasons", "idempotency"} {
		for _, b := range snapshotsOf(f, name) {
			f.Add(b)
		}
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		var r *Registry
		var err error
		testproc.AllocatesLike(t, b, 64, func() { r, err = DecodeSnapshot(b) })
		if err != nil {
			if !errors.Is(err, ErrSnapshot) {
				t.Fatal(err)
			}
			return
		}
		stored := r.EncodeSnapshot()
		again, err := DecodeSnapshot(stored)
		if err != nil || !bytes.Equal(stored, again.EncodeSnapshot()) {
			t.Fatalf("%v: not the same registry after it was stored", err)
		}
		r.Decide(Limits{MaxProcs: 1}, Instant{}, Tick{})
		r.Decide(Limits{MaxProcs: 1}, Instant{}, Start{Handle: "new"})
	})
}
