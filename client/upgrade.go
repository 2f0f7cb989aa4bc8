package client

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"path"
	"slices"
	"strings"
	"time"

	"supervisor/wire"
)

// Upgrade is how an agent is replaced by another image.
type Upgrade struct {
	Image  io.Reader
	Folder string // of the guest, where the image is staged; "" is /tmp. It must allow execution
	Force  bool   // skip the trial of the agent's state, and nothing else
}

// discardWithin bounds the removal of a staged image that is of no use.
const discardWithin = 5 * time.Second

// Upgrade replaces the agent, waits until the new image answers, and returns
// what the old one and the new one said of themselves. The image is read once;
// who wants to show how far it has got counts what is read. After an error the
// agent runs on as it was, and what was staged is removed as far as that can be
// done.
func (c *Client) Upgrade(ctx context.Context, u Upgrade) (before, after InfoReply, err error) {
	before, err = c.Info(ctx)
	if err == nil && !slices.Contains(before.Caps, "upgrade") {
		err = fmt.Errorf("%w: it cannot be upgraded", ErrTooOld)
	}
	if err != nil {
		return before, after, err
	}
	journal, _ := c.JournalInfo(ctx) // without one, reasons stay unknown
	if u.Folder == "" {
		u.Folder = "/tmp"
	}
	staged := path.Join(u.Folder, "supervisor-"+strings.ToLower(rand.Text())+".new")
	sum := sha256.New()
	err = c.WriteFile(ctx, staged, 0o755, io.TeeReader(u.Image, sum))
	request := wire.UpgradeRequest{Path: staged, SHA256: hex.EncodeToString(sum.Sum(nil)), Force: u.Force}
	if err == nil {
		err = c.handOver(ctx, request)
	}
	if err != nil {
		c.discard(ctx, staged)
		return before, after, err
	}
	after, err = c.image(ctx, request.SHA256, journal.HeadSeq)
	return before, after, err
}

// handOver asks for the upgrade and waits for the end of the connection, which
// is the end of the image at its other side.
func (c *Client) handOver(ctx context.Context, r wire.UpgradeRequest) error {
	var reply wire.UpgradeReply
	n, err := c.callOn(ctx, "agent_upgrade", &r, &reply, nil)
	if err != nil {
		return err
	}
	var pause backoff
	for since := time.Now(); n.broken() == nil && time.Since(since) < c.patience; {
		if err := pause.sleep(ctx); err != nil {
			return err
		}
	}
	return nil
}

// image waits until the image with a digest answers, or the journal, after a
// record, tells why it does not.
func (c *Client) image(ctx context.Context, sha256 string, since uint64) (info InfoReply, err error) {
	err = c.again(ctx, isAway, func() error {
		if info, err = c.Info(ctx); err != nil || info.ImageSHA256 == sha256 {
			return err
		}
		if why := c.whyNot(ctx, since); why != "" {
			return fmt.Errorf("the agent is still %s: %s", info.AgentVersion, why)
		}
		return disconnected(fmt.Errorf("the agent is still %s", info.AgentVersion))
	})
	return info, err
}

// whyNot is what the journal, after a record, says of an upgrade that failed.
func (c *Client) whyNot(ctx context.Context, after uint64) (why string) {
	for r, err := range c.Records(ctx, after) {
		if err == nil && (r.Kind == "upgrade.rejected" || r.Kind == "upgrade.rolled_back") {
			var data struct{ Error string }
			_ = json.Unmarshal(r.Data, &data) // without an error it is still a failure
			why = strings.TrimSuffix(strings.ReplaceAll(r.Kind, "_", " ")+": "+data.Error, ": ")
		}
	}
	return why
}

// discard removes a staged image that is of no use, also when ctx has ended.
func (c *Client) discard(ctx context.Context, staged string) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), discardWithin)
	defer cancel()
	_, _ = c.Exec(ctx, ExecRequest{Cmd: []string{"rm", "-f", staged}}) // what cannot be removed stays
}
