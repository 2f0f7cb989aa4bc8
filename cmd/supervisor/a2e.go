package main

import (
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"
	"golang.org/x/sys/unix"

	"supervisor/engine"
	"supervisor/wire"
)

// stdio is the --a2e address that means stdin and stdout.
const stdio = "stdio"

// a2eFlags are the flags of the agent front, as they are written.
type a2eFlags struct {
	listen   []string
	allow    []string
	allowEnv []string
	maxProcs int
	ttlSec   int64
}

// a2eOptions are those flags, checked.
type a2eOptions struct {
	listen []wire.Addr
	stdio  bool
	policy wire.Policy
}

func (f *a2eFlags) define(flags *pflag.FlagSet) {
	flags.StringArrayVar(&f.listen, "a2e", nil, "address of the agent front: unix:PATH, vsock:PORT, tcp:HOST:PORT or stdio; repeatable")
	flags.StringSliceVar(&f.allow, "a2e-allow", []string{"python3", "bash", "ls"}, "commands that the agent front may start")
	flags.StringSliceVar(&f.allowEnv, "a2e-allow-env", nil, "variables that the agent front may set although they change what runs: PATH, LD_*, BASH_ENV, ENV")
	flags.IntVar(&f.maxProcs, "a2e-max-procs", 16, "running processes of each session of the agent front")
	flags.Int64Var(&f.ttlSec, "a2e-session-ttl", 600, "seconds that a session without a connection is kept, and its processes")
}

// check fills in what is of the agent front.
func (f *a2eFlags) check(o *options, insecureTCP bool) error {
	for _, s := range f.listen {
		if s == stdio {
			o.a2e.stdio = true
			continue
		}
		a, err := parseListen("a2e", s, insecureTCP)
		if err != nil {
			return err
		}
		o.a2e.listen = append(o.a2e.listen, a)
	}
	if err := firstOutside([]bounded{
		{"a2e-max-procs", int64(f.maxProcs), 1, 100_000},
		{"a2e-session-ttl", f.ttlSec, 0, maxRetainSec},
	}); err != nil {
		return err
	}
	o.engine.SessionProcs, o.engine.SessionTTL = f.maxProcs, time.Duration(f.ttlSec)*time.Second
	o.a2e.policy = wire.Policy{Commands: words(f.allow), Env: words(f.allowEnv)}
	return nil
}

// words are the elements of a list that are not empty.
func words(list []string) []string {
	return slices.DeleteFunc(slices.Clone(list), func(s string) bool { return strings.TrimSpace(s) == "" })
}

// frontA2E names the agent front's sockets when they are handed over.
const frontA2E = "a2e"

// agentFront makes the server of the agent front.
func (a *agent) agentFront() (*wire.Server, error) {
	front := &wire.A2E{Backend: a.engine, Policy: a.opts.a2e.policy, Log: a.log}
	server := wire.NewServer(front, a.a2e, a.opts.maxConns, a.log)
	if !a.opts.a2e.stdio {
		return server, nil
	}
	var err error
	if a.stdio == nil {
		a.stdio, err = wire.NewStdio(unix.Stdin, os.Stdout)
	} else { // a handover has failed
		a.stdio, err = a.stdio.Again()
	}
	if err != nil {
		return nil, err
	}
	server.Add(a.stdio.Conn)
	return server, nil
}

// stdioEnded is closed when the agent front's talk on stdio is over; nil: it is not
// spoken there.
func (a *agent) stdioEnded() <-chan struct{} {
	if a.stdio == nil {
		return nil
	}
	return a.stdio.Ended
}

// byFront takes the sockets of one front out of those that were handed over.
func byFront(fds []engine.ListenerFD, front string) []engine.ListenerFD {
	return slices.DeleteFunc(slices.Clone(fds), func(l engine.ListenerFD) bool { return l.Front != front })
}
