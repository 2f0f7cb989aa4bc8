package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"supervisor/client"
)

func (a *app) upgradeCommand() *cobra.Command {
	var u client.Upgrade
	cmd := &cobra.Command{
		Use:   "upgrade [flags] FILE",
		Short: "Replace the agent by another version, with all its processes",
		Long: `Upgrade copies FILE, an executable of the agent on this side, into the guest, lets
the agent replace itself by it, waits until the new version answers, and prints the
old version and the new one. Processes do not notice. If the new version cannot take
over, the agent stays what it is, and upgrade says why.`,
		Example: `  supctl upgrade ./supervisor
  supctl --addr vsock:3:18047 upgrade --stage-dir /var/tmp ./supervisor`,
		Args: operands("FILE"),
		RunE: a.connected(tidily(func(ctx context.Context, c *client.Client, args []string) error {
			return a.upgrade(ctx, c, u, args[0])
		})),
	}
	cmd.Flags().StringVar(&u.Folder, "stage-dir", "", "the guest's `DIR` that takes the copy; it must allow execution (default /tmp)")
	cmd.Flags().BoolVar(&u.Force, "force", false, "skip the new version's trial of the agent's state")
	return cmd
}

func (a *app) upgrade(ctx context.Context, c *client.Client, u client.Upgrade, path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	bar := a.progress(f)
	u.Image = bar
	before, after, err := c.Upgrade(ctx, u)
	bar.clear()
	if err != nil {
		return err
	}
	if !a.json {
		_, err = fmt.Fprintf(a.stdout, "upgraded from %s to %s\n", before.AgentVersion, after.AgentVersion)
		return err
	}
	return json.NewEncoder(a.stdout).Encode(struct {
		From        string `json:"from"`
		To          string `json:"to"`
		ImageSHA256 string `json:"image_sha256"`
	}{before.AgentVersion, after.AgentVersion, after.ImageSHA256})
}

// drawEvery is how often a progress bar is drawn at most.
const drawEvery = 50 * time.Millisecond

// barWidth is how many columns a full bar has.
const barWidth = 30

// progress shows on a terminal how much of a file was read.
type progress struct {
	file        *os.File
	total, read int64
	terminal    io.Writer // nil: nothing is shown
	drawn       time.Time
}

func (a *app) progress(f *os.File) *progress {
	p := &progress{file: f}
	info, err := f.Stat()
	if out, ok := a.stderr.(*os.File); ok && err == nil && info.Mode().IsRegular() && term.IsTerminal(int(out.Fd())) {
		p.total, p.terminal = info.Size(), out
	}
	return p
}

func (p *progress) Read(b []byte) (int, error) {
	n, err := p.file.Read(b)
	p.read += int64(n)
	if p.terminal != nil && (time.Since(p.drawn) >= drawEvery || err != nil) {
		p.draw()
	}
	return n, err
}

func (p *progress) draw() {
	p.drawn = time.Now()
	full := int(barWidth * min(p.read, p.total) / max(p.total, 1))
	bar := strings.Repeat("#", full) + strings.Repeat(".", barWidth-full)
	fmt.Fprintf(p.terminal, "\r[%s] %s of %s\x1b[K", bar, size(p.read), size(p.total))
}

// clear leaves an empty line, in which what comes of it is told.
func (p *progress) clear() {
	if p.terminal != nil {
		fmt.Fprint(p.terminal, "\r\x1b[K")
	}
}
