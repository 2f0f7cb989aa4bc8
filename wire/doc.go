// Package wire is what stands between a socket and the agent: addresses and
// listeners, frames, the messages of the guest protocol with their one codec,
// and the front that serves a Backend. Clients use its other half: Dial,
// AppendRequest, LineReader, DecodeReply.
//
// A line from a peer is untrusted. Its length, depth and number of elements
// are checked before anything is allocated for them; then it is parsed
// strictly, and only then are the fields of its verb looked at. A line that an
// agent wrote is trusted to be well formed, which makes reading it cheap.
//
// A connection has one goroutine, which reads and answers what needs no
// waiting, and one for each request that may take time. A silent connection
// holds no buffer. Large replies share a fixed budget of memory; nobody waits
// for a peer that does not read, because nothing that one holds is needed by
// another.
package wire
