package statemachine

import (
	"cmp"
	"slices"
)

// queue is a binary heap of processes, least key first. Each process knows its
// place, so that taking it out costs as little as putting it in.
type queue struct {
	heap []entry
	slot func(*Process) *int // where a process keeps its place, counted from 1
}

type entry struct {
	key int64
	p   *Process
}

// first returns the process with the least key, or nil.
func (q *queue) first() (key int64, p *Process) {
	if len(q.heap) == 0 {
		return 0, nil
	}
	return q.heap[0].key, q.heap[0].p
}

// add puts in a process that is in no queue of this slot.
func (q *queue) add(key int64, p *Process) {
	q.heap = append(q.heap, entry{key, p})
	q.up(len(q.heap) - 1)
}

// remove takes out a process; one that is not in is left alone.
func (q *queue) remove(p *Process) {
	i := *q.slot(p) - 1
	if i < 0 {
		return
	}
	*q.slot(p) = 0
	last := len(q.heap) - 1
	moved := q.heap[last]
	q.heap[last] = entry{}
	q.heap = q.heap[:last]
	if i < last {
		q.heap[i] = moved
		q.up(q.down(i))
	}
}

// place notes where an entry now is.
func (q *queue) place(i int) { *q.slot(q.heap[i].p) = i + 1 }

func (q *queue) swap(i, j int) {
	q.heap[i], q.heap[j] = q.heap[j], q.heap[i]
	q.place(i)
	q.place(j)
}

func (q *queue) up(i int) {
	for i > 0 && q.heap[i].key < q.heap[(i-1)/2].key {
		q.swap(i, (i-1)/2)
		i = (i - 1) / 2
	}
	q.place(i)
}

func (q *queue) down(i int) int {
	for {
		least := i
		for child := 2*i + 1; child <= 2*i+2 && child < len(q.heap); child++ {
			if q.heap[child].key < q.heap[least].key {
				least = child
			}
		}
		if least == i {
			return i
		}
		q.swap(i, least)
		i = least
	}
}

// while returns the processes for which yes holds, least key first and then by
// their starts: the heap's own order depends on how it came about, and differs
// after a snapshot. Where yes is false for an entry, it must be for all greater
// keys.
func (q *queue) while(yes func(key int64, p *Process) bool) []*Process {
	var found []entry
	var visit func(i int)
	visit = func(i int) {
		if i < len(q.heap) && yes(q.heap[i].key, q.heap[i].p) {
			found = append(found, q.heap[i])
			visit(2*i + 1)
			visit(2*i + 2)
		}
	}
	visit(0)
	slices.SortFunc(found, func(a, b entry) int {
		return cmp.Or(cmp.Compare(a.key, b.key), cmp.Compare(a.p.RequestedSeq, b.p.RequestedSeq))
	})
	processes := make([]*Process, len(found))
	for i, e := range found {
		processes[i] = e.p
	}
	return processes
}

// upTo returns the processes whose key is not above limit.
func (q *queue) upTo(limit int64) []*Process {
	return q.while(func(key int64, _ *Process) bool { return key <= limit })
}
