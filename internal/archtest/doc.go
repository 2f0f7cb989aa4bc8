// Package archtest holds the tests that keep ARCHITECTURE.md true: which
// package may import which, what the pure core may touch, and which goroutines
// there are.
package archtest
