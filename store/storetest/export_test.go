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
	reports := make(map[string]string)
	for _, r := range rules() {
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

// Promises returns the reason of each rule that the harness can serve, by name.
func Promises(h Harness) map[string]string {
	promises := make(map[string]string)
	for _, r := range rules() {
		if r.lacks(h) == "" {
			promises[r.name] = r.reason
		}
	}
	return promises
}

// A recorder takes the report of a rule in place of a [*testing.T].
type recorder struct{ report string }

func (r *recorder) Helper()                           {}
func (r *recorder) Errorf(format string, args ...any) { r.report += fmt.Sprintf(format, args...) }
func (r *recorder) FailNow()                          { runtime.Goexit() }
