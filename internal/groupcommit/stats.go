package groupcommit

// Stats say how much callers share batches.
type Stats struct {
	// Batches is how many batches were sent, and Requests how many requests were in them:
	// Requests divided by Batches is the average size of a batch.
	Batches, Requests uint64
	// InFlight is how many batches are under way now, and Waiting how many requests wait
	// for the next one.
	InFlight, Waiting int
}

// Add adds the stats of another batcher.
func (s *Stats) Add(other Stats) {
	s.Batches += other.Batches
	s.Requests += other.Requests
	s.InFlight += other.InFlight
	s.Waiting += other.Waiting
}

// Stats returns the batcher's stats. It may be called concurrently with Do.
func (b *Batcher[Q, A]) Stats() Stats {
	b.mu.Lock()
	waiting := len(b.waiting) + len(b.parked)
	b.mu.Unlock()
	sent := b.sent.Load() // before the requests, so that no average is below one
	return Stats{Batches: sent, Requests: b.requests.Load(), InFlight: int(b.inFlight.Load()), Waiting: waiting}
}
