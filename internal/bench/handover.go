package main

import (
	"bufio"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"text/tabwriter"
	"time"

	"supervisor/client"
)

// handover is an agent that is upgraded again and again, to its own binary.
type handover struct {
	*agent
	binary string // what is staged
	sha256 string
	after  uint64 // sequence of the last adoption seen
}

// measureHandovers measures how often in a second the agent could be away for
// a handover, beside execve of its binary alone.
func measureHandovers(w *tabwriter.Writer, binary string, rounds int, only string) error {
	for _, c := range []struct {
		procs int
		goal  float64
	}{{64, 1.0 / 4}, {400, 1.0 / 8}} {
		what := fmt.Sprintf("blackouts of an upgrade, %d processes", c.procs)
		if !strings.Contains(what, only) {
			continue
		}
		h, err := newHandover(binary, c.procs)
		if err != nil {
			return err
		}
		r := row{
			what, "/s",
			h.upgrade,
			func() (float64, error) { return bareExecve(binary) },
			"execve of the same binary to its main", c.goal,
		}
		if err := errors.Join(r.measure(w, rounds), h.close()); err != nil {
			return err
		}
	}
	return nil
}

// newHandover starts an agent with so many processes from a copy of the binary.
func newHandover(binary string, procs int) (*handover, error) {
	image, err := os.ReadFile(binary)
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "bench-")
	if err != nil {
		return nil, err
	}
	installed := filepath.Join(dir, "supervisor")
	if err := os.WriteFile(installed, image, 0o755); err != nil {
		return nil, err
	}
	a, err := startAgent(installed)
	if err != nil {
		return nil, err
	}
	h := &handover{agent: a, binary: installed, sha256: fmt.Sprintf("%x", sha256.Sum256(image))}
	return h, h.start(procs)
}

// close kills the processes and removes everything.
func (h *handover) close() error {
	c, err := client.Dial(context.Background(), h.addr)
	if err != nil {
		return err
	}
	defer c.Close()
	procs, err := c.List(context.Background())
	for _, p := range procs {
		err = errors.Join(err, c.Kill(context.Background(), p.Handle))
	}
	h.stop()
	return errors.Join(err, os.RemoveAll(filepath.Dir(h.binary)))
}

func (h *handover) start(procs int) error {
	c, err := client.Dial(context.Background(), h.addr)
	if err != nil {
		return err
	}
	defer c.Close()
	for range procs {
		if _, err := c.Start(context.Background(), client.StartRequest{Cmd: []string{"sleep", "600"}}); err != nil {
			return err
		}
	}
	return nil
}

// upgrade returns the inverse of one blackout, in seconds.
func (h *handover) upgrade() (float64, error) {
	staged := filepath.Join(h.dir, "agent.new")
	image, err := os.ReadFile(h.binary)
	if err == nil {
		err = os.WriteFile(staged, image, 0o755)
	}
	if err == nil {
		err = h.ask(staged)
	}
	if err != nil {
		return 0, err
	}
	us, err := h.blackout()
	return 1e6 / us, err
}

func (h *handover) ask(staged string) error {
	conn, err := net.Dial("unix", filepath.Join(h.dir, "agent.sock"))
	if err != nil {
		return err
	}
	defer conn.Close()
	fmt.Fprintf(conn, `{"op":"agent_upgrade","path":%q,"sha256":%q}`+"\n", staged, h.sha256)
	line, err := bufio.NewReader(conn).ReadBytes('\n')
	if err != nil {
		return err
	}
	var reply struct {
		OK    bool
		Error string
	}
	if err := json.Unmarshal(line, &reply); err != nil || !reply.OK {
		return fmt.Errorf("agent_upgrade: %s %w", reply.Error, err)
	}
	return nil
}

// blackout reads from the journal how long nobody was served, microseconds.
func (h *handover) blackout() (float64, error) {
	for end := time.Now().Add(20 * time.Second); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		us, err := h.adoption()
		if err == nil && us > 0 {
			return us, nil
		}
	}
	return 0, errors.New("no adoption is recorded")
}

// adoption is the blackout of the next adoption; 0: there is none yet.
func (h *handover) adoption() (float64, error) {
	c, err := client.Dial(context.Background(), h.addr)
	if err != nil {
		return 0, err
	}
	defer c.Close()
	r, err := c.JournalRead(context.Background(), client.JournalReadRequest{AfterSeq: h.after, Limit: 10_000})
	for _, raw := range r.Records {
		var rec struct {
			Seq  uint64
			Kind string
			Data struct {
				BlackoutUS float64 `json:"blackout_us"`
			}
		}
		if err := json.Unmarshal(raw, &rec); err != nil {
			return 0, err
		}
		h.after = rec.Seq
		if rec.Kind == "upgrade.adopted" {
			return rec.Data.BlackoutUS, nil
		}
	}
	return 0, err
}

// bareExecve returns the inverse of the time from an execve of binary to the
// first thing that its main prints, in seconds.
func bareExecve(binary string) (float64, error) {
	self, err := os.Executable()
	if err != nil {
		return 0, err
	}
	cmd := exec.Command(self, "execve", binary)
	out, err := cmd.StdoutPipe()
	if err != nil {
		return 0, err
	}
	if err := cmd.Start(); err != nil {
		return 0, err
	}
	var one [1]byte
	_, err = io.ReadFull(out, one[:])
	began := time.Now()
	if err == nil {
		_, err = io.ReadFull(out, one[:])
	}
	took := time.Since(began)
	_, rest := io.Copy(io.Discard, out)
	return 1 / took.Seconds(), errors.Join(err, rest, cmd.Wait())
}

// execve is the other side: it says that it begins and becomes the binary.
func execve(binary string) error {
	if _, err := os.Stdout.WriteString("."); err != nil {
		return err
	}
	return syscall.Exec(binary, []string{binary, "--version"}, os.Environ())
}
