package telemetry

import (
	"context"
	"time"

	"github.com/retrysafe/retrysafe/outbox"
)

// depthTimeout bounds how long a scrape waits for an outbox to be counted.
const depthTimeout = 2 * time.Second

// Outbox adds a worker and the depth of its outbox as a source. Either may be nil: one
// process may report the depth while others deliver. The store counts the depth at each
// scrape. If it fails, the depth is missing from that scrape.
func (m *Metrics) Outbox(w *outbox.Worker, depth outbox.DepthReporter) (forget func()) {
	var errs uint64 // under the lock of pull
	return m.pull.watch(
		func(r reading) {
			if w != nil {
				s := w.Stats()
				r.add(messages, float64(s.Delivered), "delivered")
				r.add(messages, float64(s.Again), "again")
				r.add(messages, float64(s.Buried), "buried")
				r.add(messages, float64(s.Fenced), "fenced")
			}
			if depth != nil {
				r.add(scrapeErrors, float64(errs), "outbox")
			}
		},
		func(r reading) {
			if depth == nil {
				return
			}
			ctx, cancel := context.WithTimeout(context.Background(), depthTimeout)
			defer cancel()
			d, err := depth.Depth(ctx)
			if err != nil {
				errs++
				return
			}
			r.add(waiting, float64(d.Waiting))
			r.add(dead, float64(d.Dead))
			r.add(oldestWaiting, d.Oldest.Seconds())
			r.add(oldestDead, d.OldestDead.Seconds())
		})
}
