package wire

import "sync/atomic"

// budget is the memory that large replies share. Nobody waits for it, since it
// may be held by a peer that does not read: whoever comes when it is short gets
// a smaller reply and asks again.
type budget struct {
	taken atomic.Int64
}

const (
	budgetBytes = 64 << 20
	// budgetFloor is granted always, so that all can go on. The memory of
	// replies is at most budgetBytes and a floor for each request in flight.
	budgetFloor = 32 << 10
)

// take grants up to want bytes: no more than half of what is left, but never
// less than the floor. What was granted goes to give.
func (b *budget) take(want int64) (granted int64) {
	for {
		taken := b.taken.Load()
		granted = min(want, max(budgetFloor, (budgetBytes-taken)/2))
		if b.taken.CompareAndSwap(taken, taken+granted) {
			return granted
		}
	}
}

// add grants so many bytes more, all or none; forced ones always.
func (b *budget) add(bytes int64, forced bool) bool {
	if b.taken.Add(bytes) <= budgetBytes || forced {
		return true
	}
	b.taken.Add(-bytes)
	return false
}

func (b *budget) give(granted int64) { b.taken.Add(-granted) }
