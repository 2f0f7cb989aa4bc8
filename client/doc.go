// Package client speaks the guest protocol v1 to an agent.
//
// A Client keeps a connection and uses it for many calls at a time: each
// request carries an id, and replies come in any order. An agent that does not
// know ids answers in order and one after the other, so a call that finds the
// connection busy gets another one; nothing waits behind a long proc_wait.
//
// A call that meets a broken connection fails with ErrDisconnected, and
// whether the agent did what was asked is then unknown. The next call connects
// anew. Follow, Held and Wait only read, so they go on by themselves: over a
// broken connection, an upgrade, and a restart of the agent.
//
// All methods are safe for concurrent use, and end when their context does.
package client
