package main

import (
	"fmt"

	"supervisor/statemachine"
)

// agentLife is one life of the agent: from agent.started to agent.stopped, or,
// after a crash, to its last record.
type agentLife struct {
	version     string // "" where its first records were pruned
	pid         int
	from, to    int64 // on the axis
	first, last uint64
	generations []generation
	end         agentEnd
	reason      string // of a stop
}

// generation is what one image of the agent did.
type generation struct {
	gen  int
	from int64
}

// agentEnd is how a life of the agent ended.
type agentEnd string

// The ends. A crash is known by the next agent.started.
const (
	agentOpen    agentEnd = "open" // the journal ends before
	agentStopped agentEnd = "stopped"
	agentCrashed agentEnd = "crashed"
)

// noteAgent takes the next record of the journal for the agent's lives.
func (c *chronicle) noteAgent(rec *statemachine.Record, at int64) {
	started, starts := rec.Event.(*statemachine.AgentStarted)
	if n := len(c.agents); starts && n > 0 && c.agents[n-1].end == agentOpen {
		c.agents[n-1].end = agentCrashed
	}
	if starts || len(c.agents) == 0 {
		c.agents = append(c.agents, agentLife{from: at, first: rec.Seq, end: agentOpen})
	}
	a := &c.agents[len(c.agents)-1]
	if starts {
		a.version, a.pid = started.Version, started.PID
	}
	if n := len(a.generations); n == 0 || a.generations[n-1].gen != rec.Stamp.Gen {
		a.generations = append(a.generations, generation{rec.Stamp.Gen, at})
	}
	a.to, a.last = max(a.to, at), rec.Seq
	if e, ok := rec.Event.(*statemachine.AgentStopped); ok {
		a.end, a.reason = agentStopped, e.Reason
	}
}

// agentWords is what an agent's start or stop means to a process that is
// there, "" for other records.
func (c *chronicle) agentWords(rec *statemachine.Record) string {
	switch e := rec.Event.(type) {
	case *statemachine.AgentStopped:
		return fmt.Sprintf("the agent stopped (%s), and left it alone", e.Reason)
	case *statemachine.AgentStarted:
		n := len(c.agents)
		if n < 2 {
			return fmt.Sprintf("an agent started (version %s)", e.Version)
		}
		before := &c.agents[n-2]
		if before.end == agentStopped {
			return fmt.Sprintf("the next agent started (version %s)", e.Version)
		}
		return fmt.Sprintf("the next agent started (version %s): the one before had crashed, its last record is %d", e.Version, before.last)
	}
	return ""
}
