package retrysafe

import "sync"

// maxOrphans bounds how many lost reservations are remembered.
const maxOrphans = 10_000

// orphans are owners of reservations that this process sent and got no reply
// for. They may be stored, and provably never started. A retry that meets one
// here may take it up at once instead of waiting for a lease that nobody holds.
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
		for one := range o.known { // most were never stored: any will do
			delete(o.known, one)
			break
		}
	}
	o.known[owner] = struct{}{}
}

// take removes owner and reports whether it was there: one caller gets it.
func (o *orphans) take(owner Owner) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	_, ok := o.known[owner]
	delete(o.known, owner)
	return ok
}
