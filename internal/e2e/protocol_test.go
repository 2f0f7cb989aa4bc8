package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"supervisor/client"
)

// example is a request of PROTOCOL.md and its reply.
type example struct{ request, reply string }

// examples are those of the guest protocol and of the agent front, each in
// order.
func examples(t *testing.T) (guest, agents []example) {
	t.Helper()
	page, err := os.ReadFile("../../PROTOCOL.md")
	if err != nil {
		t.Fatal(err)
	}
	one, two, _ := strings.Cut(string(page), "\n# Part two")
	return examplesOf(one), examplesOf(two)
}

// left is what an example leaves out, and what stands for it.
var left = strings.NewReplacer("[…]", "[]", ", …]", "]", `"ts":…`, `"ts":1.5`, ",…,", `,"id":"…","version":"1.0","ts":1.5,`)

// examplesOf are those of a part of the page. An event has the request before
// it.
func examplesOf(part string) (all []example) {
	request := ""
	for line := range strings.Lines(part) {
		line = strings.TrimSpace(line)
		if r, ok := strings.CutPrefix(line, "-> "); ok {
			request = r
		}
		if r, ok := strings.CutPrefix(line, "<- "); ok {
			all = append(all, example{request, left.Replace(r)})
		}
	}
	return all
}

// shape is what of a value does not depend on the moment: names and types.
func shape(v any) any {
	switch v := v.(type) {
	case map[string]any:
		out := map[string]any{}
		for name, member := range v {
			out[name] = shape(member)
		}
		return out
	case []any: // of whatever length
		return "list"
	default:
		return fmt.Sprintf("%T", v)
	}
}

// subject starts the process that an example is about.
func (a *agent) subject(op string) string {
	a.t.Helper()
	switch op {
	case "proc_logs":
		h := a.sh("echo hi")
		eventually(a.t, "drained", func() bool { return a.row(h).Drained && !a.row(h).Running })
		return h
	case "proc_wait":
		h := a.sh("exec sleep 60")
		if err := a.Signal(a.t.Context(), h, 15, true); err != nil {
			a.t.Error(err)
		}
		return h
	case "proc_stdin":
		return a.start(client.StartRequest{Cmd: []string{"cat"}}).Handle
	case "proc_resize":
		return a.start(client.StartRequest{Cmd: []string{"sleep", "60"}, PTY: true}).Handle
	case "proc_signal", "proc_kill":
		return a.sh("exec sleep 60")
	}
	return ""
}

// fitted is the request of an example about this machine, on its way to an agent
// that may read and write file.
func (a *agent) fitted(x example, file string) map[string]any {
	a.t.Helper()
	request := fields(a.t, x.request)
	op := request["op"].(string)
	if _, ok := request["handle"]; ok {
		request["handle"] = a.subject(op)
	}
	if _, ok := request["path"]; ok {
		request["path"] = file
	}
	switch op {
	case "agent_upgrade":
		img := good(a.t, "2")
		request["path"], request["sha256"] = a.stage(img), img.sha256
	case "proc_start": // this machine may have neither
		request["cmd"], request["cwd"] = []string{"sleep", "60"}, "/"
	}
	return request
}

func fields(t testing.TB, line string) (m map[string]any) {
	t.Helper()
	if err := json.Unmarshal([]byte(line), &m); err != nil {
		t.Fatalf("%s: %v", line, err)
	}
	return m
}

// Every example of the protocol's page is answered as the page says.
func TestExamplesOfTheProtocol(t *testing.T) {
	a := upgradable(t)
	a.stop() // stores a snapshot
	a.serve()
	file := filepath.Join(t.TempDir(), "x")
	guest, _ := examples(t)
	for _, x := range guest {
		request, want := a.fitted(x, file), fields(t, x.reply)
		line, err := json.Marshal(request)
		if err != nil {
			t.Fatal(err)
		}
		got := a.raw().call(string(line))
		if !reflect.DeepEqual(shape(map[string]any(got)), shape(want)) {
			t.Errorf("%s\nanswered %v\nthe page says %s", line, got, x.reply)
		}
		switch request["op"] {
		case "proc_list":
			a.sameRow(got, want)
		case "agent_upgrade":
			a.answers("2")
		}
	}
}

// sameRow compares the first rows of two proc_list replies.
func (a *agent) sameRow(got, want map[string]any) {
	a.t.Helper()
	row, page := got["procs"].([]any)[0], want["procs"].([]any)[0]
	if !reflect.DeepEqual(shape(row), shape(page)) {
		a.t.Errorf("a row is %v\nthe page says %v", row, page)
	}
}
