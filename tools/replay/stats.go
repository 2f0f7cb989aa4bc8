package main

import (
	"maps"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"supervisor/statemachine"
)

// statsCommand prints figures.
type statsCommand struct {
	*program
	json bool
}

func (p *program) stats() *cobra.Command {
	s := &statsCommand{program: p}
	cmd := p.command("stats JOURNAL", "Print figures: records, requests, ends, lives of the agent, the greediest processes", s.run)
	cmd.Flags().BoolVar(&s.json, "json", false, "one JSON object")
	return cmd
}

// statsJSON is what stats --json prints.
type statsJSON struct {
	First     uint64              `json:"first_seq"`
	Head      uint64              `json:"head_seq"`
	Records   int64               `json:"records"`
	Bytes     int64               `json:"bytes"` // of their stored forms
	From      *time.Time          `json:"from"`  // null without records
	To        *time.Time          `json:"to"`
	PerSecond float64             `json:"records_per_second"`
	Peak      int64               `json:"busiest_second"` // records in it
	Kinds     map[string]tallied  `json:"kinds"`
	Verbs     map[string]*verbSum `json:"verbs"`
	Agent     []agentJSON         `json:"agent"` // its lives, oldest first
	Crashes   int                 `json:"agent_crashes"`
	Processes map[string]int      `json:"processes"` // by outcome; of those that ended by reason
	Output    []greedy            `json:"most_output"`
	CPU       []greedy            `json:"most_cpu"`
	RSS       []greedy            `json:"most_memory"`
}

// tallied counts records and the bytes of their stored forms.
type tallied struct {
	Records int64 `json:"records"`
	Bytes   int64 `json:"bytes"`
}

// verbSum sums up the requests of one verb.
type verbSum struct {
	Count     int64            `json:"count"`
	Refused   map[string]int64 `json:"refused,omitempty"` // by code
	LongestUS int64            `json:"longest_us"`
}

// agentJSON is a life of the agent.
type agentJSON struct {
	Version     string    `json:"version,omitempty"` // absent where its start was pruned
	PID         int       `json:"pid,omitempty"`
	From        time.Time `json:"from"`
	To          time.Time `json:"to"`
	First       uint64    `json:"first_seq"`
	Last        uint64    `json:"last_seq"`
	Generations int       `json:"generations"`
	End         agentEnd  `json:"end"`
	Reason      string    `json:"reason,omitempty"`
}

// greedy is a process with what it took.
type greedy struct {
	Handle string   `json:"handle"`
	Cmd    []string `json:"cmd"`
	Amount int64    `json:"amount"` // bytes, microseconds or KiB
}

func (s *statsCommand) run(src source, _ []string) error {
	first, head, err := src.extent()
	if err != nil {
		return err
	}
	sum := &statsJSON{First: first, Head: head.Seq, Kinds: map[string]tallied{}, Verbs: map[string]*verbSum{}, Processes: map[string]int{}}
	c := &chronicle{over: sum.life}
	var second rate
	c.also = func(e *entry, at int64) {
		sum.record(e)
		second.count(at)
	}
	if err := c.read(src, first, head.Seq); err != nil {
		return err
	}
	sum.finish(c, second.most)
	if s.json {
		return s.printJSON(sum)
	}
	return s.print(sum)
}

// rate finds the busiest second of a line of time.
type rate struct{ second, n, most int64 }

func (r *rate) count(at int64) {
	if second := at / int64(time.Second); second != r.second {
		r.second, r.n = second, 0
	}
	r.n++
	r.most = max(r.most, r.n)
}

// record counts a record.
func (s *statsJSON) record(e *entry) {
	s.Records++
	s.Bytes += int64(e.size)
	kind := s.Kinds[string(e.Event.Kind())]
	kind.Records++
	kind.Bytes += int64(e.size)
	s.Kinds[string(e.Event.Kind())] = kind
	if v, ok := e.Event.(*statemachine.Verb); ok {
		s.verb(v)
	}
}

func (s *statsJSON) verb(v *statemachine.Verb) {
	sum := s.Verbs[v.Op]
	if sum == nil {
		sum = &verbSum{Refused: map[string]int64{}}
		s.Verbs[v.Op] = sum
	}
	n := int64(max(v.Count, 1))
	sum.Count += n
	sum.LongestUS = max(sum.LongestUS, v.TookUS)
	if !v.OK {
		sum.Refused[v.Code] += n
	}
}

// life counts a process, and lets it compete.
func (s *statsJSON) life(l *life) {
	outcome := string(l.outcome())
	if l.State.Ended() {
		outcome = string(l.Exit.Reason)
	}
	s.Processes[outcome]++
	s.Output = l.compete(s.Output, l.Output.StdoutLen+l.Output.StderrLen)
	s.CPU = l.compete(s.CPU, l.Exit.Rusage.UserUS+l.Exit.Rusage.SysUS)
	s.RSS = l.compete(s.RSS, l.Exit.Rusage.MaxRSSKiB)
}

// compete puts a process among the greediest, most first, if it is one.
func (l *life) compete(best []greedy, amount int64) []greedy {
	const most = 5
	if amount == 0 {
		return best
	}
	at := len(best)
	for at > 0 && best[at-1].Amount < amount {
		at--
	}
	if at == most {
		return best
	}
	best = slices.Insert(best, at, greedy{l.Handle, l.Spec.Cmd, amount})
	return best[:min(len(best), most)]
}

func (s *statsJSON) finish(c *chronicle, busiest int64) {
	s.Peak = busiest
	for i := range c.agents {
		a := &c.agents[i]
		s.Agent = append(s.Agent, a.json())
		if a.end == agentCrashed {
			s.Crashes++
		}
	}
	if n := len(s.Agent); n > 0 {
		s.From, s.To = &s.Agent[0].From, &s.Agent[n-1].To
		s.PerSecond = float64(s.Records) / max(s.To.Sub(*s.From).Seconds(), 1)
	}
}

func (a *agentLife) json() agentJSON {
	return agentJSON{
		Version: a.version, PID: a.pid, From: *utc(a.from), To: *utc(a.to), First: a.first, Last: a.last,
		Generations: len(a.generations), End: a.end, Reason: a.reason,
	}
}

// byCount are names by what they count, the most first.
func byCount[T any](of map[string]T, count func(T) int64) []string {
	names := slices.Sorted(maps.Keys(of))
	slices.SortStableFunc(names, func(a, b string) int { return int(max(-1, min(1, count(of[b])-count(of[a])))) })
	return names
}
