package e2e

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"supervisor/statemachine"
)

// onStdio starts the agent again, with the agent front on its stdin and stdout,
// which are the two ends of one socket. The other end is returned.
func (a *agent) onStdio() net.Conn {
	a.t.Helper()
	a.stop()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		a.t.Fatal(err)
	}
	theirs, ours := os.NewFile(uintptr(fds[0]), "stdio"), os.NewFile(uintptr(fds[1]), "stdio")
	defer theirs.Close()
	defer ours.Close()
	conn, err := net.FileConn(ours)
	if err != nil {
		a.t.Fatal(err)
	}
	cmd := a.command()
	cmd.Args = append(cmd.Args, "--a2e", "stdio")
	cmd.Stdin, cmd.Stdout = theirs, theirs
	a.launch(cmd)
	return conn
}

// What was asked over stdio is answered, also when stdin ends right behind it.
func TestStdioAnswersAll(t *testing.T) {
	for range 20 {
		dir := t.TempDir()
		cmd := exec.Command(binary, "serve", "--a2e", "stdio", "--state-dir", dir, "--listen", "unix:"+filepath.Join(dir, "s"))
		cmd.Stdin = strings.NewReader(`{"type":"handshake/req","id":"a"}` + "\n" + `{"type":"proc/status/req","id":"b"}` + "\n")
		out, err := cmd.Output()
		if err != nil {
			t.Fatal(err)
		}
		if got := string(out); strings.Count(got, "\n") != 2 || !strings.Contains(got, `"req_id":"b"`) {
			t.Fatalf("answered was %q", got)
		}
	}
}

// Another image goes on with stdio, as with the sockets; so does the same one
// where the handover fails.
func TestStdioOverUpgrades(t *testing.T) {
	a := upgradable(t)
	conn := a.onStdio()
	s, err := handshake(t, conn, "", "")
	if err != nil {
		t.Fatal(err)
	}
	shake := func() {
		again, err := handshake(t, conn, s.id, fmt.Sprintf(`,"last_seq":%d`, len(s.events)))
		if err != nil {
			t.Fatal(err)
		}
		again.events = append(s.events, again.events...)
		s = again
	}
	p := s.spawn("read x; echo $x; read x; echo $x; exit 3")
	write := func(word string) {
		if r := s.ask(fmt.Sprintf(`"type":"proc/write/req","proc_id":%q,"data":"%s\n"`, p, word)); r["ok"] != true {
			t.Fatal(r)
		}
	}
	a.hold()
	a.ask(good(t, "2"))
	if err := os.Chmod(a.exe, 0o644); err != nil {
		t.Fatal(err)
	}
	a.awaitEvent(statemachine.KindUpgradeRejected)
	shake()
	write("one")
	for s.text(p) == "" {
		s.next()
	}
	a.upgrade(good(t, "2"))
	shake()
	write("two")
	s.until(p)
	if got := s.text(p); got != "one\ntwo\n" || s.exits(p)[0].Data != `{"code":3}` {
		t.Errorf("%+v", s.events)
	}
	conn.Close()
	if err := a.cmd.Wait(); err != nil {
		t.Errorf("without stdio the agent ended with %v", err)
	}
	a.serve()
}
