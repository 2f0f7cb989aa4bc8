package procs

import (
	"runtime"
	"testing"
)

// A panic beside the reactor is told as well to who can begin again: PID 1
// must.
func TestPanicIsTold(t *testing.T) {
	told := make(chan any, 1)
	w := newWorld(t, func(o *Options) {
		o.Crashed = func(reason any, _ []byte) {
			told <- reason
			runtime.Goexit() // it must not return
		}
	})
	w.digester.add(new(process)) // it has no rings
	<-told
}
