package main

import (
	"fmt"

	"supervisor/statemachine"
)

// hostile is an argv that tries to leave the page that it is put in.
const hostile = "</script><img src=x onerror=\"throw 'escaped'\"><!--\u2028\u2029'`${1}\x1b[31m\xff"

// crowd is a journal of n processes that overlap, of all kinds of ends, some
// of them in sessions, and of an agent that crashed twice.
func crowd(n int) *story {
	s := newStory()
	s.agent(1)
	var alive []string
	for i := range n {
		if i == n/3 || i == n/2 {
			s.crash(&alive)
		}
		alive = append(alive, s.someStart(i)...)
		for len(alive) > 3 && (i*7919%10 < 6 || len(alive) > 40) {
			at := i * 31 % len(alive)
			s.someEnd(alive[at], i)
			alive = append(alive[:at], alive[at+1:]...)
		}
	}
	return s
}

func (s *story) agent(pid int) {
	s.add("", &statemachine.AgentStarted{Version: "1.4.2", PID: pid})
}

// crash lets the agent die, and the next one find half of what ran.
func (s *story) crash(alive *[]string) {
	s.now = s.now.Add(30e9)
	s.agent(2)
	var found []string
	for i, h := range *alive {
		if i%2 == 0 {
			s.add(h, &statemachine.Orphaned{Stdout: true, Stderr: true})
			found = append(found, h)
		} else {
			s.add(h, &statemachine.Lost{})
		}
	}
	*alive = found
}

// someStart starts the i-th process, and returns its handle if that succeeds.
func (s *story) someStart(i int) []string {
	handle := fmt.Sprintf("p_%016x", uint64(i+1)*0x9e3779b97f4a7c15)
	spec := statemachine.Spec{Cmd: []string{"python3", "-c", fmt.Sprintf("work(%d)", i)}, Cwd: "/srv"}
	switch {
	case i%50 == 1:
		spec.Cmd = []string{"echo", hostile}
	case i%7 == 3:
		spec.Session = fmt.Sprintf("s_%012x", i%21)
	case i%11 == 5:
		spec.TimeoutMS = 5000
	}
	s.add(handle, &statemachine.Requested{Spec: spec})
	if i%37 == 20 {
		s.add(handle, &statemachine.StartFailed{Error: "python3: not found"})
		s.verb(handle, "proc_start", "spawn_failed", 1)
		return nil
	}
	s.add(handle, &statemachine.Started{PID: 100 + i})
	s.verb(handle, "proc_start", "", 1)
	return []string{handle}
}

// someEnd ends a process in one of the ways.
func (s *story) someEnd(handle string, i int) {
	e := statemachine.Exited{Reason: statemachine.ReasonExited, Rusage: statemachine.Rusage{UserUS: int64(i * 100), MaxRSSKiB: 9000}}
	signal := func(n int, r statemachine.Reason) { e.Signal, e.ExitCode, e.Reason = n, 128+n, r }
	switch i * 13 % 9 {
	case 1:
		e.ExitCode = 1
	case 2:
		s.add(handle, &statemachine.Signalled{Signal: 15, Group: true})
		s.verb(handle, "proc_signal", "", 1)
		signal(15, statemachine.ReasonKilled)
	case 3:
		signal(11, statemachine.ReasonSignal)
		e.CoreDumped = true
	case 4:
		s.add(handle, &statemachine.Deadline{})
		signal(9, statemachine.ReasonTimeout)
		e.TimedOut = true
	case 5:
		signal(9, statemachine.ReasonOOM)
	}
	s.add(handle, &e)
	s.add(handle, &statemachine.Drained{StdoutLen: 5000, StdoutTail: []byte("\xff\x00" + hostile + "\nlast words\n")})
	if i%3 == 0 {
		s.add(handle, &statemachine.Collected{Why: statemachine.WhyRetention})
	}
}
