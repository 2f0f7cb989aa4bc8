package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"supervisor/client"
)

// world is what a child tells of the world that it was born into.
const world = `umask; ulimit -Sn; ulimit -Hn; cat /proc/self/oom_score_adj
grep -E '^Sig(Blk|Ign)' /proc/self/status; ls -m /proc/$$/fd
cut -d' ' -f5,6,7 /proc/$$/stat; env | grep -cE '^(PT_AGENT_HANDOFF|NOTIFY_SOCKET|LISTEN_|WATCHDOG_)'`

// However the agent was launched, a child has default dispositions, an empty
// mask, three descriptors, a session of its own and oom_score_adj 0; limits and
// umask are what the agent was given.
func TestChildsWorld(t *testing.T) {
	for _, c := range []struct{ name, script, umask, soft, hard string }{
		{"background job", `%s & wait $!`, "0022", "1024", "4096"},
		{"nohup", `exec nohup %s`, "0022", "1024", "4096"},
		{"no hangup, no terminal", `trap '' HUP INT QUIT PIPE CHLD TSTP; exec setsid %s`, "0022", "1024", "4096"},
		{"blocked signals", `exec env --block-signal %s`, "0022", "1024", "4096"},
		{"ignored signals", `exec env --ignore-signal %s`, "0022", "1024", "4096"},
		{"few descriptors", `ulimit -Sn 64; exec %s`, "0022", "64", "4096"},
		{"odd umask", `umask 0177; exec %s`, "0177", "1024", "4096"},
		{"protected from the OOM killer", `echo 100 >/proc/self/oom_score_adj; exec %s`, "0022", "1024", "4096"},
		{"open descriptors", `exec 3</dev/null 7>/dev/null 99<&0 %s`, "0022", "1024", "4096"},
		{"variables of a service manager", `NOTIFY_SOCKET=/n LISTEN_FDS=1 LISTEN_PID=1 WATCHDOG_USEC=9 exec %s`, "0022", "1024", "4096"},
	} {
		t.Run(c.name, func(t *testing.T) {
			a := &agent{t: t, dir: t.TempDir()}
			serve := fmt.Sprintf("%s serve --listen %s --state-dir %s", binary, a.addr(), filepath.Join(a.dir, "state"))
			a.launch(exec.Command("/bin/bash", "-c", "ulimit -Sn 1024; ulimit -Hn 4096; umask 022; "+fmt.Sprintf(c.script, serve)))
			defer a.stopAgent()
			want := strings.Join([]string{c.umask, c.soft, c.hard, "0",
				"SigBlk:\t0000000000000000", "SigIgn:\t0000000000000000", "0, 1, 2", "PID PID 0", "0"}, "\n") + "\n"
			pipes := a.start(client.StartRequest{Cmd: []string{"/bin/sh", "-c", world}, Env: []string{"LC_ALL=C"}})
			got, _ := a.output(pipes.Handle)
			got = strings.ReplaceAll(got, fmt.Sprintf("%d ", pipes.PID), "PID ")
			if got != want {
				t.Errorf("child:\n%swant:\n%s", got, want)
			}
			reply := a.raw().call(fmt.Sprintf(`{"op":"exec","cmd":["/bin/sh","-c",%q]}`, world+"; echo $$"))
			lines := strings.Split(strings.TrimSpace(fmt.Sprint(reply["stdout"])), "\n")
			pid := lines[len(lines)-1]
			got = strings.ReplaceAll(strings.Join(lines[:len(lines)-1], "\n")+"\n", pid+" ", "PID ")
			if got != want {
				t.Errorf("exec:\n%swant:\n%s", got, want)
			}
		})
	}
}

// stopAgent stops an agent that a shell may have launched: it is who listens.
func (a *agent) stopAgent() {
	a.t.Helper()
	info, err := a.Info(a.context(20 * time.Second))
	if err != nil {
		a.t.Fatal(err)
	}
	p, err := os.FindProcess(info.PID)
	if err != nil {
		a.t.Fatal(err)
	}
	a.Client.Close()
	if err := p.Signal(os.Interrupt); err != nil {
		a.t.Error(err)
	}
	if err := a.cmd.Wait(); err != nil {
		a.t.Errorf("the launcher ended with %v\n%s", err, a.log())
	}
}
