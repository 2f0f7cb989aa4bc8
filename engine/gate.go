package engine

import (
	"sync"

	"supervisor/wire"
)

// gate lets verbs in until it is shut, with the error that those which wait or
// come later get. It can be opened again.
type gate struct {
	mu   sync.Mutex
	shut chan struct{} // closed while the gate is
	err  *wire.Error
}

func (g *gate) init() { g.shut = make(chan struct{}) }

// close shuts the gate; of several reasons the first one counts.
func (g *gate) close(err *wire.Error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.err == nil {
		g.err = err
		close(g.shut)
	}
}

func (g *gate) open() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.err != nil {
		g.err, g.shut = nil, make(chan struct{})
	}
}

// closed is closed when the gate shuts; why then tells the reason.
func (g *gate) closed() <-chan struct{} {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.shut
}

// why is the reason for which the gate is shut, nil if it is open.
func (g *gate) why() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.err == nil {
		return nil
	}
	return g.err
}

var (
	errShuttingDown = wire.Errorf(wire.CodeShuttingDown, "the agent is shutting down")
	errUpgrading    = wire.Errorf(wire.CodeUpgrading, "the agent hands over to another image")
)
