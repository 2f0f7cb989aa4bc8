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
	ctx  context.Context // ends when the gate shuts; its cause is the error
	shut context.CancelCauseFunc
}

func (g *gate) init() { g.ctx, g.shut = context.WithCancelCause(context.Background()) }

// close shuts the gate; of several reasons the first one counts.
func (g *gate) close(err *wire.Error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.shut(err)
}

func (g *gate) open() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.ctx.Err() != nil {
		g.init()
	}
}

func (g *gate) current() context.Context {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.ctx
}

// closed is closed when the gate shuts; why then tells the reason.
func (g *gate) closed() <-chan struct{} { return g.current().Done() }

// why is the reason for which the gate is shut, nil if it is open.
func (g *gate) why() error { return context.Cause(g.current()) }

// within is ctx, which also ends when the gate shuts. done lets go of it.
func (g *gate) within(ctx context.Context) (within context.Context, done func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	open := g.current()
	stop := context.AfterFunc(open, func() { cancel(context.Cause(open)) })
	return ctx, func() {
		stop()
		cancel(nil)
	}
}

var (
	errShuttingDown = wire.Errorf(wire.CodeShuttingDown, "the agent is shutting down")
	errUpgrading    = wire.Errorf(wire.CodeUpgrading, "the agent hands over to another image")
)
