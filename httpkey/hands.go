package httpkey

import (
	"sync"
	"time"

	"github.com/retrysafe/retrysafe"
)

const (
	firstRest = time.Second
	longRest  = time.Minute
	// maxHands bounds how many records are remembered; a record that is forgotten
	// is tried again early, and that is all.
	maxHands = 10_000
)

// hands are the records that a worker need not look at: those it has in hand, and
// those that failed lately, which rest longer each time.
type hands struct {
	mu  sync.Mutex
	all map[retrysafe.Ref]*hand
}

type hand struct {
	busy  bool
	rests time.Duration
	until time.Time
}

// take reports whether the record is free, and takes it.
func (h *hands) take(ref retrysafe.Ref, now time.Time) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	known := h.all[ref]
	switch {
	case known == nil:
		if h.all == nil {
			h.all = make(map[retrysafe.Ref]*hand)
		}
		h.all[ref] = &hand{busy: true}
		return true
	case known.busy || now.Before(known.until):
		return false
	}
	known.busy = true
	return true
}

// drop lets go of a record.
func (h *hands) drop(ref retrysafe.Ref) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.all, ref)
}

// rest lets go of a record that failed.
func (h *hands) rest(ref retrysafe.Ref, now time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	known := h.all[ref]
	if len(h.all) > maxHands {
		delete(h.all, ref)
		return
	}
	known.rests = min(max(2*known.rests, firstRest), longRest)
	known.busy, known.until = false, now.Add(known.rests)
}

// tidy forgets records that have not failed again.
func (h *hands) tidy(now time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for ref, known := range h.all {
		if !known.busy && now.Sub(known.until) > longRest {
			delete(h.all, ref)
		}
	}
}
