package client

import (
	"context"
	"errors"
	"fmt"
	"slices"
)

// Info asks who the agent is and what it can do. ErrTooOld is an agent that
// has no managed processes at all.
func (c *Client) Info(ctx context.Context) (InfoReply, error) {
	var reply InfoReply
	n, err := c.callOn(ctx, "agent_info", nil, &reply, nil)
	if err == nil || errors.Is(err, ErrTooOld) {
		n.learn(reply.Caps)
	}
	return reply, err
}

// Has reports whether the agent has a capability. It asks once a connection,
// and a connection outlives neither the guest's boot nor the agent's image. An
// agent that does not know the question has none, which is no error.
func (c *Client) Has(ctx context.Context, capability string) (bool, error) {
	caps, known := c.learned()
	if !known {
		info, err := c.Info(ctx)
		if err != nil && !errors.Is(err, ErrTooOld) {
			return false, err
		}
		caps = info.Caps
	}
	return slices.Contains(caps, capability), nil
}

// need is ErrTooOld if the agent lacks a capability: it would pass over what
// it does not know, and do something else than it was asked to.
func (c *Client) need(ctx context.Context, capability string) error {
	has, err := c.Has(ctx, capability)
	if err == nil && !has {
		err = fmt.Errorf("%w: it lacks %q", ErrTooOld, capability)
	}
	return err
}

// learned returns what any connection's agent can do. One that has broken may be
// among the connections for a moment still, and its agent gone.
func (c *Client) learned() (caps []string, known bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, n := range c.conns {
		if known := n.caps.Load(); known != nil && n.broken() == nil {
			return *known, true
		}
	}
	return nil, false
}

// learn keeps what the agent at the other side can do.
func (n *conn) learn(caps []string) { n.caps.Store(&caps) }
