// Package statemachine is the pure core of the supervisor: which processes
// there are, what may be asked of them, and what every journal record means.
//
// The life of a process:
//
//	            proc.requested        proc.started            proc.exited, proc.lost
//	(absent) ------------------> requested -------> running ------------------------> exited
//	    ^                           |                  |                                |
//	    |      proc.start_failed    |     proc.drained |                   proc.drained |
//	    +---------------------------+                  v      proc.exited, proc.lost    v
//	    ^                                           closed ------------------------> drained
//	    |                                                                               |
//	    +--------------------------- proc.collected (also from exited) -----------------+
//
// Closed is a process that runs on after both of its streams ended; exited is
// one that was reaped while a descendant still holds a stream.
//
// The promise: same inputs, same outputs. Decide turns a command and a stamp
// into events and effects, Apply folds one record into a registry, and neither
// looks at a clock, the machine or a random source: time, handles and what the
// kernel said come in as data. So the registry that an agent serves and the one
// that a replay derives from its journal are equal, record by record.
//
// A session of the agent front is opened, left and resumed by connections, and
// closed when it was left for long enough: what runs in it is killed then. A
// process counts against the quota of its session until proc.delivered, which
// says that the client was sent the exit.
package statemachine
