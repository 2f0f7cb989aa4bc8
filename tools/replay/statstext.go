package main

import (
	"fmt"
	"text/tabwriter"
)

// print prints the figures for people.
func (s *statsCommand) print(sum *statsJSON) error {
	if sum.Records == 0 {
		_, err := fmt.Fprintln(s.out, "no records")
		return err
	}
	fmt.Fprintf(s.out, "records %d to %d, %s, from %s to %s\n", sum.First, sum.Head, size(sum.Bytes),
		sum.From.Local().Format(timeLayout), sum.To.Local().Format(timeLayout))
	fmt.Fprintf(s.out, "%.3g records a second, %d in the busiest one\n", sum.PerSecond, sum.Peak)
	s.table(sum.printKinds)
	s.table(sum.printVerbs)
	s.table(sum.printAgents)
	s.table(sum.printProcesses)
	s.table(func(t *tabwriter.Writer) { printGreedy(t, "MOST OUTPUT", sum.Output, size) })
	s.table(func(t *tabwriter.Writer) { printGreedy(t, "MOST CPU", sum.CPU, span) })
	s.table(func(t *tabwriter.Writer) {
		printGreedy(t, "MOST MEMORY", sum.RSS, func(kib int64) string { return size(kib << 10) })
	})
	return nil
}

// table prints lines in columns.
func (s *statsCommand) table(print func(t *tabwriter.Writer)) {
	t := tabwriter.NewWriter(s.out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t)
	print(t)
	t.Flush()
}

func (s *statsJSON) printKinds(t *tabwriter.Writer) {
	fmt.Fprintln(t, "KIND\tRECORDS\tBYTES")
	for _, kind := range byCount(s.Kinds, func(n tallied) int64 { return n.Records }) {
		fmt.Fprintf(t, "%s\t%d\t%s\n", printable(kind), s.Kinds[kind].Records, size(s.Kinds[kind].Bytes))
	}
}

func (s *statsJSON) printVerbs(t *tabwriter.Writer) {
	fmt.Fprintln(t, "VERB\tREQUESTS\tLONGEST\tREFUSED")
	for _, op := range byCount(s.Verbs, func(v *verbSum) int64 { return v.Count }) {
		v, refused := s.Verbs[op], "-"
		for i, code := range byCount(v.Refused, func(n int64) int64 { return n }) {
			if i == 0 {
				refused = ""
			} else {
				refused += ", "
			}
			refused += fmt.Sprintf("%d %s", v.Refused[code], code)
		}
		fmt.Fprintf(t, "%s\t%d\t%s\t%s\n", printable(op), v.Count, span(v.LongestUS), printable(refused))
	}
}

func (s *statsJSON) printAgents(t *tabwriter.Writer) {
	fmt.Fprintln(t, "AGENT\tPID\tFROM\tTO\tRECORDS\tIMAGES\tEND")
	for _, a := range s.Agent {
		version, pid, end := a.Version, fmt.Sprint(a.PID), string(a.End)
		if version == "" {
			version, pid = "(pruned)", "-"
		}
		if a.Reason != "" {
			end += ": " + a.Reason
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%d..%d\t%d\t%s\n", printable(version), pid,
			a.From.Local().Format(timeLayout), a.To.Local().Format(timeLayout), a.First, a.Last, a.Generations, printable(end))
	}
	fmt.Fprintf(t, "%s\n", plural(s.Crashes, "crash of the agent", "crashes of the agent"))
}

func plural(n int, one, more string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, more)
}

func (s *statsJSON) printProcesses(t *tabwriter.Writer) {
	fmt.Fprintln(t, "PROCESSES\tNUMBER")
	for _, name := range byCount(s.Processes, func(n int) int64 { return int64(n) }) {
		fmt.Fprintf(t, "%s\t%d\n", outcomeName(name), s.Processes[name])
	}
}

// outcomeName tells apart a failed start from an end.
func outcomeName(name string) string {
	if name == string(outcomeFailed) {
		return "start failed"
	}
	return name
}

func printGreedy(t *tabwriter.Writer, title string, most []greedy, amount func(int64) string) {
	fmt.Fprintf(t, "%s\n", title)
	for _, g := range most {
		fmt.Fprintf(t, "%s\t%s\t%s\n", printable(g.Handle), amount(g.Amount), printable(command(g.Cmd)))
	}
}
