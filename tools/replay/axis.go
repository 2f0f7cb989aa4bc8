package main

import "supervisor/statemachine"

// axis places moments on one line of time, in nanoseconds that are close to
// the unix ones. It does not go back where the wall clock was set back: within
// a boot it follows the monotonic clock, from the wall clock time of the first
// record of that boot on.
type axis struct {
	boot   statemachine.Boot
	offset int64 // of the boot's monotonic clock
	end    int64 // the latest place so far, 0 before the first
}

// place is that of a record made at a moment.
func (a *axis) place(at statemachine.Instant) int64 {
	if a.end == 0 || at.Boot != a.boot {
		a.boot, a.offset = at.Boot, max(at.Wall, a.end)-at.Mono
	}
	place := at.Mono + a.offset
	a.end = max(a.end, place)
	return place
}

// past is the place of a moment before the records that were placed.
func (a *axis) past(at statemachine.Instant) int64 {
	if a.end != 0 && at.Boot == a.boot {
		return at.Mono + a.offset
	}
	return at.Wall
}
