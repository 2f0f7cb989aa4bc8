//go:build !race

package e2e

// buildFlags build the agent under test as the tests themselves are built.
var buildFlags []string

// upgrades is how many of so many are made.
func upgrades(n int) int { return n }
