package client

import (
	"context"
	"sync/atomic"
	"testing"
	"time"
)

// Records are followed over disconnects, each once, from where pruning begins.
func TestFollowRecords(t *testing.T) {
	var reads atomic.Int64
	f := newFakeAgent(t, true, func(p *fakePeer, r object) object {
		if reads.Add(1)%3 == 2 {
			p.Close()
			return nil
		}
		seq := max(r.offset("after_seq"), 4) + 1
		return object{"records": []object{{"seq": seq, "kind": "verb", "time": "2026-01-02T03:04:05.000000006Z", "data": object{"ok": true}}}, "head_seq": 99, "first_seq": 5}
	})
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	want := uint64(5)
	for r, err := range f.dial().FollowRecords(ctx, 0) {
		if err != nil || r.Seq != want || r.Kind != "verb" || r.Time.Nanosecond() != 6 || string(r.Data) != `{"ok":true}` {
			t.Fatalf("%+v, %v, want record %d", r, err, want)
		}
		if want++; want == 12 {
			break
		}
	}
}

// A journal that is only read ends with its newest record.
func TestRecordsEnd(t *testing.T) {
	f := newFakeAgent(t, true, func(_ *fakePeer, r object) object {
		records := []object{}
		for seq := r.offset("after_seq") + 1; seq <= 5 && len(records) < 2; seq++ {
			records = append(records, object{"seq": seq})
		}
		return object{"records": records, "head_seq": 5, "first_seq": 1}
	})
	c := f.dial()
	for after, want := range map[uint64]int{0: 5, 4: 1, 5: 0, 9: 0} {
		n := 0
		for _, err := range c.Records(within(t, 10*time.Second), after) {
			if n++; err != nil {
				t.Fatal(err)
			}
		}
		if n != want {
			t.Errorf("%d records after %d, want %d", n, after, want)
		}
	}
}
