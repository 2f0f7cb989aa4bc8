package testproc

import (
	"runtime"
	"testing"
)

// Allocated is how many bytes the process allocates while f runs.
func Allocated(f func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}

// AllocatesLike fails a fuzz target whose f allocates more than so many bytes
// for each byte of its input: then a number in it decided, not its size.
func AllocatesLike(t *testing.T, input []byte, each uint64, f func()) {
	t.Helper()
	const slack = 4 << 20 // what the fuzzing engine itself may allocate meanwhile
	if cost := Allocated(f); cost > slack+each*uint64(len(input)) {
		t.Fatalf("%d bytes allocated for %d", cost, len(input))
	}
}
