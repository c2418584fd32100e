package storetest

import (
	"context"
	"slices"
	"time"
)

// OutboxReports is [Reports] for the rules of an outbox.
func OutboxReports(ctx context.Context, open func() OutboxHarness, patience time.Duration, names ...string) map[string]string {
	reports := make(map[string]string)
	for _, r := range outboxRules() {
		h := open()
		if r.lacks(h) != "" || len(names) > 0 && !slices.Contains(names, r.name) {
			continue
		}
		var rec recorder
		done := make(chan struct{})
		go func() {
			defer close(done)
			r.run(ctx, &rec, h, patience)
		}()
		<-done
		if rec.report != "" {
			reports[r.name] = rec.report
		}
	}
	return reports
}

// OutboxPromises is [Promises] for the rules of an outbox.
func OutboxPromises(h OutboxHarness) map[string]string {
	promises := make(map[string]string)
	for _, r := range outboxRules() {
		if r.lacks(h) == "" {
			promises[r.name] = r.reason
		}
	}
	return promises
}
