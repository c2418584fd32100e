package effect

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
)

// An Order is one call of the provider.
type Order struct {
	// Job is what the order is for, as the check counts effects.
	Job string
	// Key is what the provider recognises a second call by. Without a key each call has
	// an effect of its own.
	Key string
	// Request is what is ordered. A key is good for one request.
	Request string
	// By names the attempt that sends the order.
	By string
}

// An Effect is what the provider has done, and cannot undo. Its order is that of the
// first call.
type Effect struct {
	Order
	// ID is the provider's own name for the effect.
	ID string
	// Calls is how many calls were answered by it, the first included.
	Calls int
	// Conflict says that another job or request came under its key.
	Conflict bool
}

// A Provider does what orders say, and remembers it. It may be called concurrently.
type Provider struct {
	mu    sync.Mutex
	last  int
	jobs  map[string][]*Effect
	keyed map[string]*Effect
}

// NewProvider returns a provider that has done nothing.
func NewProvider() *Provider {
	return &Provider{jobs: map[string][]*Effect{}, keyed: map[string]*Effect{}}
}

// Do has an effect, or returns the one that was had under the same key.
func (p *Provider) Do(o Order) Effect {
	p.mu.Lock()
	defer p.mu.Unlock()
	if e := p.keyed[o.Key]; e != nil {
		e.Calls++
		e.Conflict = e.Conflict || e.Job != o.Job || e.Request != o.Request
		return *e
	}
	p.last++
	e := &Effect{Order: o, ID: fmt.Sprint("ch_", p.last), Calls: 1}
	p.jobs[o.Job] = append(p.jobs[o.Job], e)
	if o.Key != "" {
		p.keyed[o.Key] = e
	}
	return *e
}

// Charge is Do, as a caller in another process has it: see [Client].
func (p *Provider) Charge(_ context.Context, o Order) (id string, err error) { return p.Do(o).ID, nil }

// Find returns the ID of the first effect of a job, or nothing.
func (p *Provider) Find(_ context.Context, job string) (id string, err error) {
	if all := p.Effects(job); len(all) > 0 {
		return all[0].ID, nil
	}
	return "", nil
}

// Effects returns the effects of a job.
func (p *Provider) Effects(job string) []Effect {
	p.mu.Lock()
	defer p.mu.Unlock()
	var all []Effect
	for _, e := range p.jobs[job] {
		all = append(all, *e)
	}
	return all
}

// Jobs returns the jobs that have an effect.
func (p *Provider) Jobs() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Collect(maps.Keys(p.jobs))
}
