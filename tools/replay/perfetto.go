package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"time"
)

// traceEvent is an event of the Trace Event Format of Chrome, which Perfetto
// reads: ph X is a span, i an instant, M names a track. Times are microseconds
// from the first place of the scene on.
type traceEvent struct {
	Name  string         `json:"name"`
	Phase string         `json:"ph"`
	TS    float64        `json:"ts"`
	Dur   *float64       `json:"dur,omitempty"`
	PID   int            `json:"pid"`
	TID   int            `json:"tid"`
	Scope string         `json:"s,omitempty"`
	Args  map[string]any `json:"args,omitempty"`
}

// trace writes events. Tracks are grouped as if they were threads: the agent,
// the processes of the guest front, and those of each session.
type trace struct {
	*scene
	w      *bufio.Writer
	groups map[string]int // by session
	first  bool
}

// The groups that are there in any trace.
const (
	agentGroup = 1
	guestGroup = 2
)

// writeTrace writes the scene for Perfetto.
func (s *scene) writeTrace(w *bufio.Writer, _ int) error {
	t := &trace{scene: s, w: w, groups: map[string]int{"": guestGroup}, first: true}
	fmt.Fprintf(w, `{"displayTimeUnit":"ms","otherData":{"version":%q,"start":%q},"traceEvents":[`,
		version, utc(s.from).Format(time.RFC3339Nano))
	t.name("process_name", agentGroup, 0, "agent")
	t.name("process_name", guestGroup, 0, "guest front")
	for i := range s.agents {
		t.agent(&s.agents[i])
	}
	for i, l := range s.lanes {
		t.lane(i+1, l)
	}
	_, err := w.WriteString("\n]}\n")
	return err
}

// put writes an event.
func (t *trace) put(e traceEvent) {
	if !t.first {
		t.w.WriteByte(',')
	}
	t.first = false
	t.w.WriteByte('\n')
	b, err := json.Marshal(e)
	if err != nil {
		panic(err) // the events are this program's own
	}
	t.w.Write(b)
}

func (t *trace) name(what string, group, track int, name string) {
	t.put(traceEvent{Name: what, Phase: "M", PID: group, TID: track, Args: map[string]any{"name": name}})
}

// at is a place in microseconds.
func (t *trace) at(place int64) float64 { return float64(place-t.from) / 1000 }

func (t *trace) span(e traceEvent, from, to int64) {
	dur := float64(max(to-from, 0)) / 1000
	e.Phase, e.TS, e.Dur = "X", t.at(from), &dur
	t.put(e)
}

func (t *trace) instant(e traceEvent, at int64) {
	e.Phase, e.TS, e.Scope = "i", t.at(at), "t"
	t.put(e)
}

// agent draws a life of the agent, and in it what each image did.
func (t *trace) agent(a *agentLife) {
	t.name("thread_name", agentGroup, agentGroup, "lives")
	name := "agent " + a.version
	args := map[string]any{"pid": a.pid, "end": a.end, "reason": a.reason, "first_seq": a.first, "last_seq": a.last}
	t.span(traceEvent{Name: name, PID: agentGroup, TID: agentGroup, Args: args}, a.from, a.to)
	for i, g := range a.generations {
		to := a.to
		if i+1 < len(a.generations) {
			to = a.generations[i+1].from
		}
		t.span(traceEvent{Name: fmt.Sprintf("generation %d", g.gen), PID: agentGroup, TID: agentGroup}, g.from, to)
	}
	if a.end != agentOpen {
		t.instant(traceEvent{Name: string(a.end), PID: agentGroup, TID: agentGroup}, a.to)
	}
}

// group is that of a session's processes.
func (t *trace) group(session string) int {
	group, known := t.groups[session]
	if !known {
		group = len(t.groups) + guestGroup
		t.groups[session] = group
		t.name("process_name", group, 0, "session "+session)
	}
	return group
}

// lane draws a process on a track of its own.
func (t *trace) lane(track int, l *life) {
	group := t.group(l.Spec.Session)
	t.name("thread_name", group, track, l.Handle)
	args := map[string]any{
		"handle": l.Handle, "cmd": command(l.Spec.Cmd), "cwd": l.Spec.Cwd, "pid": l.Started.PID,
		"summary": l.summary(), "asked_by": asker(l.asked),
	}
	name := l.Handle
	if len(l.Spec.Cmd) > 0 {
		name = command(l.Spec.Cmd)
	}
	t.span(traceEvent{Name: name, PID: group, TID: track, Args: args}, l.from, t.until(l))
	for i := range l.steps {
		if s := &l.steps[i]; markOf(s.event) != 0 || s.agent != "" {
			t.instant(traceEvent{Name: l.says(s), PID: group, TID: track, Args: map[string]any{"seq": s.seq, "by": asker(s.by)}}, s.at)
		}
	}
}
