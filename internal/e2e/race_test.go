//go:build race

package e2e

// buildFlags build the agent under test as the tests themselves are built.
var buildFlags = []string{"-race"}

// upgrades is how many of so many are made: an image with the race detector
// takes seconds to come up on a busy machine.
func upgrades(n int) int { return max(8, n/20) }
