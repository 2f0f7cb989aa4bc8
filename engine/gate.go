package engine

import (
	"context"
	"sync"

	"supervisor/wire"
)

// gate lets verbs in until it is shut, with the error that those which wait or
// come later get. It can be opened again.
type gate struct {
	mu   sync.Mutex
	ctx  context.Context // ends when the gate shuts, with the reason as its cause
	shut context.CancelCauseFunc
}

// init opens the gate.
func (g *gate) init() { g.ctx, g.shut = context.WithCancelCause(context.Background()) }

// close shuts the gate; of several reasons the first one counts.
func (g *gate) close(err *wire.Error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.shut(err)
}

// open opens the gate again if it is shut.
func (g *gate) open() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.ctx.Err() != nil {
		g.init()
	}
}

// context ends when the gate shuts; its cause is the reason.
func (g *gate) context() context.Context {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.ctx
}

// closed is closed when the gate shuts.
func (g *gate) closed() <-chan struct{} { return g.context().Done() }

// why is the reason for which the gate is shut, nil if it is open.
func (g *gate) why() error { return context.Cause(g.context()) }

var (
	errShuttingDown = wire.Errorf(wire.CodeShuttingDown, "the agent is shutting down")
	errUpgrading    = wire.Errorf(wire.CodeUpgrading, "the agent hands over to another image")
)
