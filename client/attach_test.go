package client

import (
	"encoding/base64"
	"errors"
	"io"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

var errLeft = errors.New("left")

// typist types pieces and then leaves.
func typist(pieces ...string) io.Reader {
	r, w := io.Pipe()
	go func() {
		for _, p := range pieces {
			w.Write([]byte(p))
		}
		w.CloseWithError(errLeft)
	}()
	return r
}

// typedInto gathers what proc_stdin brings.
type typedInto struct {
	mu   sync.Mutex
	keys strings.Builder
}

func (k *typedInto) take(t *testing.T, r object) object {
	k.mu.Lock()
	defer k.mu.Unlock()
	data := decode(t, r["data"])
	k.keys.Write(data)
	return object{"written": len(data)}
}

func (k *typedInto) String() string {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.keys.String()
}

// What left the ring before anybody came is no gap; keys and sizes go through;
// who leaves has typed all that was typed before.
func TestAttach(t *testing.T) {
	var keys typedInto
	sized := make(chan object, 1)
	o := &output{ring: 4}
	o.write(Stdout, []byte("long ago$ "))
	f := newFakeAgent(t, true, func(_ *fakePeer, r object) object {
		switch r["op"] {
		case "proc_stdin":
			return keys.take(t, r)
		case "proc_resize":
			sized <- r
			return object{}
		}
		return o.logs(r)
	})
	sizes := make(chan Size, 1)
	sizes <- Size{100, 30}
	hold, typed := io.Pipe()
	var seen []byte
	for k, err := range f.dial().Attach(within(t, 20*time.Second), "p_1", Terminal{Input: hold, Sizes: sizes}) {
		if err != nil {
			if !errors.Is(err, errLeft) {
				t.Errorf("%v, want the error of the input", err)
			}
			break
		}
		if k.Dropped != 0 {
			t.Errorf("a gap: %+v", k)
		}
		if seen = append(seen, k.Data...); string(seen) == "go$ " {
			if r := <-sized; r["cols"] != 100.0 || r["rows"] != 30.0 {
				t.Errorf("resized to %v", r)
			}
			go func() {
				typed.Write([]byte("ls\r"))
				typed.Write([]byte("exit\r"))
				typed.CloseWithError(errLeft)
			}()
		}
	}
	if string(seen) != "go$ " || keys.String() != "ls\rexit\r" {
		t.Errorf("saw %q, typed %q", seen, keys.String())
	}
}

// A process that takes no keys keeps nobody from leaving.
func TestAttachLeavesAStuckProcess(t *testing.T) {
	f := newFakeAgent(t, true, func(_ *fakePeer, r object) object {
		switch r["op"] {
		case "proc_stdin":
			return object{"error": "it does not read", "code": "write_deadline", "written": 0}
		}
		return nil
	})
	for _, err := range f.dial().Attach(within(t, 20*time.Second), "p_1", Terminal{Input: typist("x", "y")}) {
		if !errors.Is(err, errLeft) {
			t.Error(err)
		}
	}
}

// Keys go on over an upgrade, and none is typed twice.
func TestAttachTypesOverAnUpgrade(t *testing.T) {
	var keys typedInto
	var upgrades atomic.Int64
	f := newFakeAgent(t, true, func(p *fakePeer, r object) object {
		if r["op"] != "proc_stdin" {
			return nil
		}
		if upgrades.Add(1) < 3 {
			return object{"error": "upgrading", "code": "upgrading", "written": 0}
		}
		return keys.take(t, r)
	})
	for _, err := range f.dial().Attach(within(t, 20*time.Second), "p_1", Terminal{Input: typist("once")}) {
		if !errors.Is(err, errLeft) {
			t.Error(err)
		}
	}
	if keys.String() != "once" {
		t.Errorf("typed %q", keys.String())
	}
}

// A stdin pipe writes the rest of a piece that was taken in part.
func TestStdinPipeGoesOnAfterAnUpgrade(t *testing.T) {
	var keys typedInto
	var calls atomic.Int64
	f := newFakeAgent(t, true, func(_ *fakePeer, r object) object {
		if calls.Add(1) == 1 {
			half := decode(t, r["data"])[:3]
			keys.take(t, object{"data": base64.StdEncoding.EncodeToString(half)})
			return object{"error": "upgrading", "code": "upgrading", "written": len(half)}
		}
		return keys.take(t, r)
	})
	if n, err := f.dial().StdinPipe(within(t, 20*time.Second), "p_1").Write([]byte("abcdef")); n != 6 || err != nil || keys.String() != "abcdef" {
		t.Errorf("%d, %v, %q", n, err, keys.String())
	}
}
