package main

import (
	"cmp"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"supervisor/engine"
	"supervisor/journal"
	"supervisor/wire"
)

// options is the command line of serve, checked.
type options struct {
	listen     []wire.Addr
	mayFail    map[wire.Addr]bool // default addresses that are not there everywhere
	access     wire.Access
	maxConns   int
	killOnExit bool // processes are stopped with the agent
	logLevel   slog.Level
	engine     engine.Config
	a2e        a2eOptions
	runtimeDir string
}

// serveFlags is the command line of serve, as it is written.
type serveFlags struct {
	listen, allowUID, allowCID []string
	stateDir, runtimeDir       string
	maxProcs, maxConns         int
	ringBytes, retainSec       int64
	tailBytes                  int
	journalMaxBytes            int64
	journalSync, onDamaged     string
	insecureTCP, killOnExit    bool
	logLevel                   string
	a2e                        a2eFlags
}

// parseServe reads flags and environment; a flag wins. All errors are usage
// errors or pflag.ErrHelp.
func parseServe(args, environ []string) (options, *pflag.FlagSet, error) {
	var f serveFlags
	flags := f.define()
	err := flags.Parse(args)
	switch {
	case err == pflag.ErrHelp:
		return options{}, flags, err
	case err != nil:
		return options{}, flags, usageError{err}
	case flags.NArg() > 0:
		return options{}, flags, usagef("serve takes no argument, but got %q", flags.Arg(0))
	}
	env := variables(environ)
	if err := f.fromEnvironment(flags, env); err != nil {
		return options{}, flags, err
	}
	f.defaultDirs(env)
	o, err := f.check()
	return o, flags, err
}

func (f *serveFlags) define() *pflag.FlagSet {
	flags := pflag.NewFlagSet("serve", pflag.ContinueOnError)
	flags.SortFlags = false
	flags.Usage = func() {}
	flags.StringArrayVar(&f.listen, "listen", nil, "address of the guest protocol: unix:PATH, vsock:PORT, tcp:HOST:PORT; repeatable (default vsock:18047 and unix:RUNTIME_DIR/agent.sock)")
	flags.StringVar(&f.stateDir, "state-dir", "", "holds journal.db (default /var/lib/supervisor as root)")
	flags.StringVar(&f.runtimeDir, "runtime-dir", "", "holds sockets and output (default /run/supervisor as root; STATE_DIR/run when --state-dir is given)")
	flags.IntVar(&f.maxProcs, "max-procs", 64, "records in the registry (PT_MAX_PROCS)")
	flags.Int64Var(&f.ringBytes, "proc-buf-bytes", 256<<10, "output kept of each stream (PT_PROC_BUF_BYTES)")
	flags.Int64Var(&f.retainSec, "proc-retain-sec", 600, "how long an ended process is kept (PT_PROC_RETAIN_SEC)")
	flags.IntVar(&f.tailBytes, "tail-bytes", 8192, "end of each stream kept in the journal")
	flags.Int64Var(&f.journalMaxBytes, "journal-max-bytes", 64<<20, "records kept in the journal")
	flags.StringVar(&f.journalSync, "journal-sync", "always", "always, batch or off")
	onDamaged := "refuse"
	if isInit() { // a machine without an agent helps nobody
		onDamaged = "set-aside"
	}
	flags.StringVar(&f.onDamaged, "on-damaged-journal", onDamaged, "refuse or set-aside; set-aside as PID 1")
	flags.BoolVar(&f.killOnExit, "kill-on-exit", false, "stop all processes with the agent, as PID 1 does")
	flags.StringArrayVar(&f.allowCID, "allow-cid", nil, "vsock peer that may speak; repeatable (default 2, the host)")
	flags.StringArrayVar(&f.allowUID, "allow-uid", nil, "unix peer that may speak; repeatable (default the agent's own uid and 0)")
	flags.BoolVar(&f.insecureTCP, "insecure-tcp", false, "allow tcp: addresses, whose peers have no identity")
	flags.IntVar(&f.maxConns, "max-conns", wire.DefaultMaxConns, "connections at once")
	f.a2e.define(flags)
	flags.StringVar(&f.logLevel, "log-level", "info", "debug, info, warn or error")
	return flags
}

func variables(environ []string) map[string]string {
	env := map[string]string{}
	for _, kv := range environ {
		name, value, _ := strings.Cut(kv, "=")
		env[name] = value
	}
	return env
}

// fromEnvironment takes the variables that stand for flags not given.
func (f *serveFlags) fromEnvironment(flags *pflag.FlagSet, env map[string]string) error {
	for name, flag := range map[string]string{
		"PT_MAX_PROCS":       "max-procs",
		"PT_PROC_BUF_BYTES":  "proc-buf-bytes",
		"PT_PROC_RETAIN_SEC": "proc-retain-sec",
	} {
		value := env[name]
		if value == "" || flags.Changed(flag) {
			continue
		}
		if err := flags.Set(flag, value); err != nil {
			return usagef("%s=%q is not a number", name, value)
		}
	}
	return nil
}

func (f *serveFlags) defaultDirs(env map[string]string) {
	root := os.Geteuid() == 0
	switch {
	case f.runtimeDir != "":
	case f.stateDir != "":
		f.runtimeDir = filepath.Join(f.stateDir, "run")
	case root:
		f.runtimeDir = "/run/supervisor"
	default:
		f.runtimeDir = filepath.Join(cmp.Or(env["XDG_RUNTIME_DIR"], fmt.Sprintf("/tmp/supervisor-%d", os.Getuid())), "supervisor")
	}
	switch {
	case f.stateDir != "":
	case root:
		f.stateDir = "/var/lib/supervisor"
	default:
		f.stateDir = filepath.Join(cmp.Or(env["XDG_STATE_HOME"], filepath.Join(env["HOME"], ".local/state")), "supervisor")
	}
}

// check turns flags into options, or says which one is wrong.
func (f *serveFlags) check() (options, error) {
	o := options{maxConns: f.maxConns, runtimeDir: f.runtimeDir, killOnExit: f.killOnExit}
	if err := f.checkNumbers(); err != nil {
		return o, err
	}
	if err := f.checkAddresses(&o); err != nil {
		return o, err
	}
	if err := o.logLevel.UnmarshalText([]byte(f.logLevel)); err != nil {
		return o, usagef("--log-level %q: want debug, info, warn or error", f.logLevel)
	}
	sync, err := journal.ParseSyncMode(f.journalSync)
	if err != nil {
		return o, usagef("--journal-sync %q: want always, batch or off", f.journalSync)
	}
	if f.onDamaged != "refuse" && f.onDamaged != "set-aside" {
		return o, usagef("--on-damaged-journal %q: want refuse or set-aside", f.onDamaged)
	}
	o.engine = engine.Config{
		StateDir: f.stateDir, RuntimeDir: f.runtimeDir,
		MaxProcs: f.maxProcs, Retain: time.Duration(f.retainSec) * time.Second,
		RingBytes: f.ringBytes, TailBytes: f.tailBytes,
		JournalMaxBytes: f.journalMaxBytes, JournalSync: sync, SetAsideDamaged: f.onDamaged == "set-aside",
		Version: version,
	}
	return o, f.a2e.check(&o, f.insecureTCP)
}

const maxRetainSec = 10 * 365 * 24 * 3600 // ten years: fits every clock

// bounded is a flag whose value has limits.
type bounded struct {
	flag             string
	value, low, high int64
}

func (f *serveFlags) checkNumbers() error {
	return firstOutside([]bounded{
		{"max-procs", int64(f.maxProcs), 1, 100_000},
		{"proc-buf-bytes", f.ringBytes, 4096, 1 << 40},
		{"proc-retain-sec", f.retainSec, 0, maxRetainSec},
		{"tail-bytes", int64(f.tailBytes), 0, 256 << 10},
		{"journal-max-bytes", f.journalMaxBytes, 1 << 16, 1 << 40},
		{"max-conns", int64(f.maxConns), 1, 1 << 20},
	})
}

func firstOutside(flags []bounded) error {
	for _, n := range flags {
		if n.value < n.low || n.value > n.high {
			return usagef("--%s %d: want %d to %d", n.flag, n.value, n.low, n.high)
		}
	}
	return nil
}

func (f *serveFlags) checkAddresses(o *options) error {
	listen := f.listen
	vsock := fmt.Sprintf("vsock:%d", wire.GuestPort)
	if listen == nil {
		listen = []string{vsock, "unix:" + filepath.Join(f.runtimeDir, "agent.sock")}
	}
	o.mayFail = map[wire.Addr]bool{}
	for _, s := range listen {
		a, err := parseListen("listen", s, f.insecureTCP)
		if err != nil {
			return err
		}
		o.listen = append(o.listen, a)
		o.mayFail[a] = f.listen == nil && s == vsock
	}
	var err error
	if o.access.CIDs, err = numbers("allow-cid", f.allowCID); err != nil {
		return err
	}
	o.access.UIDs, err = numbers("allow-uid", f.allowUID)
	return err
}

// parseListen reads an address to listen on.
func parseListen(flag, s string, insecureTCP bool) (wire.Addr, error) {
	a, err := wire.ParseAddr(s)
	switch {
	case err != nil:
		return a, usageError{err}
	case a.Network == wire.TCP && !insecureTCP:
		return a, usagef("--%s %s: a tcp peer has no identity; --insecure-tcp allows it", flag, s)
	case a.Network == wire.Hybrid:
		return a, usagef("--%s %s: a hybrid address is for clients", flag, s)
	}
	return a, nil
}

func numbers(flag string, values []string) ([]uint32, error) {
	var out []uint32
	for _, s := range values {
		n, err := strconv.ParseUint(s, 10, 32)
		if err != nil {
			return nil, usagef("--%s %q is not a number of 32 bits", flag, s)
		}
		out = append(out, uint32(n))
	}
	return out, nil
}
