//go:build race

package e2e

// buildFlags build the agent under test as the tests themselves are built.
var buildFlags = []string{"-race"}
