// Package e2e tests the built agent from outside: real processes, real
// sockets, real SIGKILLs.
package e2e
