package gateway

import (
	"log/slog"
	"sync"
	"time"

	"github.com/retrysafe/retrysafe"
)

// A clockWatch logs when the store's clock was set. It reads that clock off the
// reservations: the revision of a new key is the store's time. How much time has really
// passed between two of them is measured by this process's monotonic clock, which is
// never set.
type clockWatch struct {
	next   retrysafe.Observer // may be nil
	logger *slog.Logger

	mu    sync.Mutex
	store time.Time // the store's time at the last reservation
	at    time.Time // when that was
}

// maxStep is how far two reservations may differ from what has passed between them: they
// are observed a little late, and clocks are adjusted in small steps.
const maxStep = time.Minute

// Observe implements [retrysafe.Observer].
func (w *clockWatch) Observe(e retrysafe.Event) {
	if e.Kind == retrysafe.EventReserved {
		if step := w.note(time.UnixMicro(e.Revision), time.Now()); step.Abs() >= maxStep {
			w.log(step)
		}
	}
	if w.next != nil {
		w.next.Observe(e)
	}
}

// note notes a reservation and returns by how much the store's clock was set since the
// last one.
func (w *clockWatch) note(store, at time.Time) (step time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.at.IsZero() {
		step = store.Sub(w.store) - at.Sub(w.at)
	}
	w.store, w.at = store, at
	return step
}

func (w *clockWatch) log(step time.Duration) {
	by := slog.Duration("by", step.Abs().Round(time.Second))
	if step > 0 {
		w.logger.Error("retrysafe: the store's clock was set forward, or this machine was suspended", by,
			"effect", "leases seem over, so attempts in flight may be settled as lapsed; answers are kept until their retention is over by this machine's clock too; SQLite has no other clock",
			"fix", "correct the clock of the store's server, and keep it right by NTP")
		return
	}
	w.logger.Warn("retrysafe: the store's clock was set back", by,
		"effect", "answers are kept longer; keys whose owner died before are settled one lease after the sweeper has noticed",
		"fix", "correct the clock of the store's server, and keep it right by NTP")
}
