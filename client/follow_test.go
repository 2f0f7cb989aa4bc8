package client

import (
	"bytes"
	"encoding/base64"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func decode(t testing.TB, data any) []byte {
	text, _ := data.(string)
	b, err := base64.StdEncoding.DecodeString(text)
	if err != nil {
		t.Error(err)
	}
	return b
}

// output is what a process wrote, and how much of it the ring holds.
type output struct {
	mu      sync.Mutex
	written [2][]byte
	ring    int64
	drained bool
}

// logs answers proc_logs as the protocol has it, without waiting.
func (o *output) logs(r object) object {
	o.mu.Lock()
	defer o.mu.Unlock()
	reply := object{"running": !o.drained, "drained": o.drained, "timed_out": false}
	for i, name := range []string{"stdout", "stderr"} {
		offset := r.offset([]string{"offset", "stderr_offset"}[i])
		end := int64(len(o.written[i]))
		from := min(max(offset, end-o.ring, 0), end)
		to := min(end, from+r.offset("limit"))
		reply[name] = base64.StdEncoding.EncodeToString(o.written[i][from:to])
		reply[name+"_offset"] = to
		reply[name+"_dropped"] = max(0, from-offset)
	}
	return reply
}

func (o *output) write(s Stream, data []byte) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.written[s] = append(o.written[s], data...)
}

func (o *output) end() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.drained = true
}

// What a client reads over disconnects is what was written, less the gaps
// that it was told.
func TestFollowLosesNothingUnsaid(t *testing.T) {
	var served atomic.Pointer[answer]
	f := newFakeAgent(t, true, func(p *fakePeer, r object) object { return (*served.Load())(p, r) })
	c := f.dial()
	rapid.Check(t, func(rt *rapid.T) {
		o := &output{ring: rapid.Int64Range(1, 64).Draw(rt, "ring")}
		pieces := rapid.SliceOfN(rapid.SliceOfN(rapid.Byte(), 0, 40), 1, 10).Draw(rt, "pieces")
		breaks := rapid.SliceOfN(rapid.Bool(), 10, 10).Draw(rt, "breaks")
		var turn atomic.Int64
		serve := answer(func(p *fakePeer, r object) object {
			// Each request finds more output, or the end; some are cut off.
			i := int(turn.Add(1) - 1)
			if i >= len(pieces) {
				o.end()
				return o.logs(r)
			}
			o.write(Stream(i%2), pieces[i])
			if breaks[i] {
				p.Close()
				return nil
			}
			return o.logs(r)
		})
		served.Store(&serve)
		var got [2][]byte
		var at Position
		for k, err := range c.Follow(within(t, 30*time.Second), "p_1", Position{}) {
			if err != nil {
				rt.Fatal(err)
			}
			if k.Dropped < 0 || k.Offset != at[k.Stream]+k.Dropped {
				rt.Fatalf("%v: a chunk at %d with %d dropped, was at %d", k.Stream, k.Offset, k.Dropped, at[k.Stream])
			}
			got[k.Stream] = append(got[k.Stream], o.written[k.Stream][at[k.Stream]:k.Offset]...)
			got[k.Stream] = append(got[k.Stream], k.Data...)
			at[k.Stream] = k.End()
		}
		for i := range got {
			if !bytes.Equal(got[i], o.written[i]) {
				rt.Errorf("%v: read %q, written %q", Stream(i), got[i], o.written[i])
			}
		}
	})
}

// A reader that pauses for longer than an agent waits for its peer, as a pager
// does, holds nothing up: replies are read while it pauses.
func TestFollowByAReaderThatPauses(t *testing.T) {
	const patience = 300 * time.Millisecond
	o := &output{ring: 1 << 30}
	o.write(Stdout, bytes.Repeat([]byte("0123456789abcdef"), 3*followLimit/16)) // each reply is larger than a socket's buffers
	o.end()
	f := newFakeAgent(t, true, func(p *fakePeer, r object) object {
		reply := o.logs(r)
		p.SetWriteDeadline(time.Now().Add(patience))
		return reply
	})
	var got []byte
	for k, err := range f.dial().Follow(within(t, 30*time.Second), "p_1", Position{}) {
		if err != nil || k.Dropped != 0 {
			t.Fatal(k.Dropped, err)
		}
		got = append(got, k.Data...)
		time.Sleep(2 * patience) // the pause is what is tested: no peer would wait so long for a reader
	}
	if !bytes.Equal(got, o.written[Stdout]) || f.conns.Load() != 1 {
		t.Errorf("%d bytes of %d over %d connections", len(got), len(o.written[Stdout]), f.conns.Load())
	}
}

// A client that was stopped (ctrl-z) is cut off in the middle of a reply: it
// goes on where it was.
func TestFollowAfterHalfAReply(t *testing.T) {
	o := &output{ring: 1 << 30}
	o.write(Stdout, []byte("0123456789"))
	o.end()
	f := newFakeAgent(t, true, func(p *fakePeer, r object) object {
		if p.number == 1 {
			fmt.Fprintf(p, `{"id":%q,"ok":true,"stdout":"MDEyM`, r["id"])
			p.Close()
			return nil
		}
		return o.logs(r)
	})
	got := collect(t, f.dial().Follow(within(t, 20*time.Second), "p_1", Position{}))
	if len(got) != 1 || string(got[0].Data) != "0123456789" || got[0].Dropped != 0 {
		t.Errorf("%+v", got)
	}
}

// C30: a reader that comes back after its bytes are gone is told how many.
func TestFollowTellsGaps(t *testing.T) {
	o := &output{ring: 10}
	o.write(Stdout, []byte("0123456789abcdef"))
	o.end()
	f := newFakeAgent(t, true, func(_ *fakePeer, r object) object { return o.logs(r) })
	c := f.dial()
	tests := map[string]struct {
		from int64
		want Chunk
	}{
		"from the start":   {0, Chunk{Offset: 6, Dropped: 6, Data: []byte("6789abcdef")}},
		"just behind":      {5, Chunk{Offset: 6, Dropped: 1, Data: []byte("6789abcdef")}},
		"at the oldest":    {6, Chunk{Offset: 6, Data: []byte("6789abcdef")}},
		"the ring is lost": {20, Chunk{Offset: 16, Dropped: -4}},
	}
	for name, test := range tests {
		for how, read := range map[string]func() []Chunk{
			"Follow": func() []Chunk { return collect(t, c.Follow(within(t, 10*time.Second), "p_1", Position{test.from})) },
			"Held":   func() []Chunk { return collect(t, c.Held(within(t, 10*time.Second), "p_1", Position{test.from})) },
		} {
			got := read()
			if len(got) != 1 || got[0].Offset != test.want.Offset || got[0].Dropped != test.want.Dropped || !bytes.Equal(got[0].Data, test.want.Data) {
				t.Errorf("%s, %s: %+v, want %+v", how, name, got, test.want)
			}
		}
	}
}

// collect copies all chunks.
func collect(t *testing.T, chunks func(func(Chunk, error) bool)) (all []Chunk) {
	t.Helper()
	for k, err := range chunks {
		if err != nil {
			t.Fatal(err)
		}
		k.Data = slices.Clone(k.Data)
		all = append(all, k)
	}
	return all
}

// Held ends although the process goes on writing.
func TestHeldEndsWhileMoreComes(t *testing.T) {
	o := &output{ring: 1 << 30}
	o.write(Stdout, make([]byte, 3*followLimit/2))
	f := newFakeAgent(t, true, func(_ *fakePeer, r object) object {
		defer o.write(Stdout, make([]byte, followLimit))
		return o.logs(r)
	})
	n := 0
	for _, k := range collect(t, f.dial().Held(within(t, 10*time.Second), "p_1", Position{})) {
		n += len(k.Data)
	}
	if n < 3*followLimit/2 || n > 4*followLimit {
		t.Errorf("read %d bytes", n)
	}
}

// Agents of before drained: the streams are over after a few quiet reads past
// the exit; one is not enough. Those of before running are asked for the list.
func TestFollowOlderAgents(t *testing.T) {
	tests := map[string]struct {
		running any // of proc_logs after the exit; nil is absent
		lists   bool
	}{
		"without drained":             {false, false},
		"without drained and running": {nil, true},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			var reads, lists int
			f := newFakeAgent(t, false, func(_ *fakePeer, r object) object {
				if r["op"] == "proc_list" {
					lists++
					return object{"procs": []object{{"handle": "p_1", "exited_at": 12}}}
				}
				reads++
				reply := object{"stdout": "", "stderr": "", "stdout_offset": 4, "stderr_offset": 0}
				if reads < 3 {
					reply["running"] = true
				} else if test.running != nil {
					reply["running"] = test.running
				}
				switch {
				case reads == 1:
					reply["stdout"] = base64.StdEncoding.EncodeToString([]byte("head"))
				case reads == 5: // the tail comes after a quiet read
					reply["stdout"] = base64.StdEncoding.EncodeToString([]byte("tail"))
				}
				if reads >= 5 {
					reply["stdout_offset"] = 8
				}
				return reply
			})
			var got []byte
			for _, k := range collect(t, f.dial().Follow(within(t, 10*time.Second), "p_1", Position{})) {
				if k.Dropped != 0 {
					t.Errorf("a gap: %+v", k)
				}
				got = append(got, k.Data...)
			}
			if string(got) != "headtail" || reads != 5+quietReads || (lists > 0) != test.lists {
				t.Errorf("%q after %d reads and %d lists", got, reads, lists)
			}
		})
	}
}

// A process may exit and leave its streams to a descendant (C05).
func TestFollowGoesOnPastTheExit(t *testing.T) {
	o := &output{ring: 100}
	reads := 0
	f := newFakeAgent(t, true, func(_ *fakePeer, r object) object {
		if reads++; reads == 3*quietReads {
			o.write(Stderr, []byte("late"))
			o.end()
		}
		reply := o.logs(r)
		reply["running"] = false
		return reply
	})
	got := collect(t, f.dial().Follow(within(t, 10*time.Second), "p_1", Position{}))
	if len(got) != 1 || string(got[0].Data) != "late" || got[0].Stream != Stderr {
		t.Errorf("%+v, want the late bytes", got)
	}
}

func TestFollowUnknownHandle(t *testing.T) {
	f := newFakeAgent(t, true, func(*fakePeer, object) object {
		return object{"error": "no process p_1", "code": "unknown_handle"}
	})
	c := f.dial()
	for _, read := range []func(func(Chunk, error) bool){
		c.Follow(within(t, 10*time.Second), "p_1", Position{}),
		c.Held(within(t, 10*time.Second), "p_1", Position{}),
	} {
		n := 0
		for _, err := range read {
			if n++; !errors.Is(err, ErrUnknownHandle) {
				t.Errorf("%v, want ErrUnknownHandle", err)
			}
		}
		if n != 1 {
			t.Errorf("%d chunks, want the error alone", n)
		}
	}
}

func TestFollowStopsWhenAsked(t *testing.T) {
	o := &output{ring: 100}
	o.write(Stdout, []byte("a"))
	o.write(Stderr, []byte("b"))
	f := newFakeAgent(t, true, func(_ *fakePeer, r object) object { return o.logs(r) })
	for range f.dial().Follow(within(t, 10*time.Second), "p_1", Position{}) {
		break // a second call of yield would panic
	}
}
