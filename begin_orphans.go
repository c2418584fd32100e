package retrysafe

import "sync"

// maxOrphans bounds the set of orphans.
const maxOrphans = 10_000

// orphans are the owners of reservations that this process sent and that the store did
// not confirm. Such a reservation may be stored, and its operation provably never
// started. A retry in this process that finds one claims it at once instead of waiting
// for the end of its lease.
type orphans struct {
	mu    sync.Mutex
	known map[Owner]struct{}
}

func (o *orphans) add(owner Owner) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.known == nil {
		o.known = make(map[Owner]struct{})
	}
	if len(o.known) >= maxOrphans {
		for one := range o.known { // most were never stored: evict any one
			delete(o.known, one)
			break
		}
	}
	o.known[owner] = struct{}{}
}

// take removes owner and reports whether it was in the set, so that only one caller
// adopts it.
func (o *orphans) take(owner Owner) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	_, ok := o.known[owner]
	delete(o.known, owner)
	return ok
}
