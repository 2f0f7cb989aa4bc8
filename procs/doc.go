// Package procs owns the live processes of the operating system: it spawns
// them, pumps their output into rings, writes their stdin, signals and reaps
// them, and finds them again after a crash of the agent. It knows no policy,
// no journal and no wire format: what happens comes out as observations.
//
//	Start --> spawner --> Spawned | SpawnFailed
//	                         |
//	     pipe or pty --> reactor --> ring (segment files) --> readers
//	           pidfd --> reactor --> Exited (reaped, in one place)
//	     both at EOF --> reactor --> digester --> Closed
//
// # Threads
//
// One goroutine, the reactor, waits on one epoll over every pipe, terminal and
// pidfd; New starts it, Close ends it and waits for it. So does another, the
// digester, which hashes segments that are complete. At most Options.Spawns
// further goroutines, the spawners, exist while starts are queued; Start makes
// them, they end with the queue, and Close waits for them. There is no goroutine per process, per stream or per
// stdin. Every method of Table and Ring is safe for concurrent use, and none
// waits for a process.
//
// Locks are taken in this order: Table.mu, process.mu, then Ring.mu and after
// it digest.mu, or reactor.mu, or digester.mu.
// Observations and the done functions of stdin writes are called with
// process.mu held, so they must not block and must not call the Table.
//
// # What a child gets
//
// A session of its own, default signal dispositions (see CatchIgnored), an
// empty signal mask, the RLIMIT_NOFILE that the agent was launched with,
// oom_score_adj 0, blocking descriptors 0, 1 and 2 and no other. Its stdout
// and stderr are open for reading and writing on their pipes: a writer is then
// never hit by SIGPIPE while no agent runs, it fills the pipe and waits for
// the next one (see Table.Adopt).
package procs
