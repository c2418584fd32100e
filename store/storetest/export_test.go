package storetest

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"time"
)

// Reports holds the stores that open returns to the named rules, or to all if
// none is named, and returns what each broken rule reported, by its name.
func Reports(ctx context.Context, open func() Harness, patience time.Duration, names ...string) map[string]string {
	return reports(ctx, rules(), open, patience, names)
}

// OrdinaryReports is [Reports] for the rules that run with ordinary terms.
func OrdinaryReports(ctx context.Context, open func() Harness, patience time.Duration, names ...string) map[string]string {
	return reports(ctx, ordinaryRules(), func() Harness { return open().withOrdinaryTerms() }, patience, names)
}

// OutboxReports is [Reports] for the rules of an outbox.
func OutboxReports(ctx context.Context, open func() OutboxHarness, patience time.Duration, names ...string) map[string]string {
	return reports(ctx, outboxRules(), open, patience, names)
}

// Promises returns the reason of each rule that the harness can serve, by name.
func Promises(h Harness) map[string]string { return promises(rules(), h) }

// OutboxPromises is [Promises] for the rules of an outbox.
func OutboxPromises(h OutboxHarness) map[string]string { return promises(outboxRules(), h) }

func reports[H harness[K], K interface{ rollback() }](ctx context.Context, rules []ruleFor[H, K], open func() H, patience time.Duration, names []string) map[string]string {
	all := make(map[string]string)
	for _, r := range rules {
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
			all[r.name] = rec.report
		}
	}
	return all
}

func promises[H harness[K], K interface{ rollback() }](rules []ruleFor[H, K], h H) map[string]string {
	all := make(map[string]string)
	for _, r := range rules {
		if r.lacks(h) == "" {
			all[r.name] = r.reason
		}
	}
	return all
}

// A recorder takes the report of a rule in place of a [*testing.T].
type recorder struct{ report string }

func (r *recorder) Helper()                           {}
func (r *recorder) Errorf(format string, args ...any) { r.report += fmt.Sprintf(format, args...) }
func (r *recorder) FailNow()                          { runtime.Goexit() }
