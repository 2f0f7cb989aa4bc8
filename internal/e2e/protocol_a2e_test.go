package e2e

import (
	"encoding/json"
	"net"
	"reflect"
	"testing"
)

// Every example of the protocol's second part is answered as the page says,
// and the event that it shows comes of the write that it shows.
func TestExamplesOfTheAgentFront(t *testing.T) {
	a := startFront(t)
	f := a.frontLines()
	_, agents := examples(t)
	tried := map[any]int{}
	var shown map[string]any // the event
	for _, x := range agents {
		request, want := fields(t, x.request), fields(t, x.reply)
		tried[want["type"]]++
		if want["type"] == "proc/read/event" {
			shown = want
			continue
		}
		if request["type"] == "proc/spawn/req" {
			f.spawn = request
		}
		if _, ok := request["proc_id"]; ok {
			request["proc_id"] = f.ask(f.spawn)["proc_id"] // one of its own
		}
		got := f.ask(request)
		if !reflect.DeepEqual(shape(map[string]any(got)), shape(want)) {
			t.Errorf("%v\nanswered %v\nthe page says %s", request, got, x.reply)
		}
		if request["type"] == "proc/write/req" {
			f.wants(shown, request["proc_id"])
		}
	}
	for _, kind := range []string{"handshake/resp", "proc/spawn/resp", "proc/read/event", "proc/write/resp", "proc/kill/resp", "proc/status/resp"} {
		if tried[kind] == 0 {
			t.Errorf("the page shows no %s", kind)
		}
	}
}

// frontLines is a connection of the agent front that speaks lines.
type frontLines struct {
	raw
	spawn map[string]any // the request
}

func (a *agent) frontLines() *frontLines {
	a.t.Helper()
	conn, err := net.Dial("unix", a.front())
	if err != nil {
		a.t.Fatal(err)
	}
	a.t.Cleanup(func() { conn.Close() })
	return &frontLines{raw: raw{t: a.t, conn: conn, dec: json.NewDecoder(conn)}}
}

// ask returns the reply to a request, and passes over events.
func (f *frontLines) ask(request map[string]any) reply {
	f.t.Helper()
	line, err := json.Marshal(request)
	if err != nil {
		f.t.Fatal(err)
	}
	f.send(string(line))
	for {
		if m := f.reply(); m["type"] != "proc/read/event" && m["req_id"] == request["id"] {
			return m
		}
	}
}

// wants reads on to the event of a process that says what the shown one does.
func (f *frontLines) wants(shown map[string]any, procID any) {
	f.t.Helper()
	for {
		m := f.reply()
		if m["proc_id"] != procID || m["stream_type"] != shown["stream_type"] {
			continue
		}
		if m["data"] != shown["data"] || m["req_id"] != shown["req_id"] || !reflect.DeepEqual(shape(map[string]any(m)), shape(shown)) {
			f.t.Errorf("the event is %v\nthe page says %v", m, shown)
		}
		return
	}
}
