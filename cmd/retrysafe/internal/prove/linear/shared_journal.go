package linear

import "sync"

// A sharedJournal is the journal of all clients, and what the keys' turn goes by.
type sharedJournal struct {
	// of is how many steps there are to be.
	of int
	// each is called after each step that has returned, one at a time, with how many
	// those are.
	each func(done int)

	mu    sync.Mutex
	steps []*step
	open  map[uint32]*step // by worker
	n     int
}

func newSharedJournal(of int, each func(done int)) *sharedJournal {
	return &sharedJournal{of: of, each: each, open: map[uint32]*step{}, steps: make([]*step, 0, of)}
}

// turnSteps is how many steps a turn of keys has.
const turnSteps = 24 * turnKeys

// note implements [journal].
func (g *sharedJournal) note(steps ...*step) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, s := range steps {
		if s.End == open {
			pending := *s // its worker goes on with s
			g.open[s.Worker] = &pending
			continue
		}
		delete(g.open, s.Worker)
		g.steps = append(g.steps, s)
		g.n++
		g.each(g.n)
	}
	return nil
}

// all returns every step that was ever begun. Those that have not ended have no end.
func (g *sharedJournal) all() []*step {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, s := range g.open {
		s.Return = never
		g.steps = append(g.steps, s)
	}
	clear(g.open)
	return g.steps
}
