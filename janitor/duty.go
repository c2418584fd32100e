package janitor

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/internal/deadline"
)

// Passes counts the passes of a duty.
type Passes struct {
	// Passes is how many passes have ended, and Failures how many of those ended with
	// an error.
	Passes, Failures uint64
	// Finished is when the last successful pass ended, by this node's clock.
	Finished time.Time
	// Overtaken counts records that another process had changed since they were listed,
	// or whose owner turned out to be alive. That is normal.
	Overtaken uint64
	// Unreadable is how many records of the last pass this program cannot read. They
	// are left unchanged.
	Unreadable int
}

// duty is the part that all duties share: a walk over the records that are due, and
// store operations with a timeout.
type duty struct {
	Options
	name  string
	store retrysafe.Store
	page  int // records that a walk reads in one page

	mu     sync.Mutex
	passes Passes
	// after is where the next walk begins. After a walk that was broken off it is the
	// last record that the walk reached, so that records which fail every time do not
	// block those behind them.
	after retrysafe.Ref
}

// Schedule implements [Duty].
func (d *duty) Schedule() Schedule {
	return Schedule{Name: d.name, Every: d.Every, Logger: d.Logger, Clock: d.Clock}
}

func (d *duty) check() error {
	if d.store == nil {
		return fmt.Errorf("janitor: the %s needs a store", d.name)
	}
	return nil
}

// pass runs one pass of the duty and counts it. A pass that ctx has stopped does not
// count as a failure.
func (d *duty) pass(ctx context.Context, do func() (int, error)) (n int, err error) {
	if err := d.check(); err != nil {
		return 0, err
	}
	n, err = safely(do)
	d.mu.Lock()
	defer d.mu.Unlock()
	d.passes.Passes++
	switch {
	case err == nil:
		d.passes.Finished = d.Clock.Now()
	case ctx.Err() == nil:
		d.passes.Failures++
	}
	return n, err
}

func (d *duty) overtaken() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.passes.Overtaken++
}

// maxFailures is how many records may fail before a walk is broken off. So many
// failures point to the store, not to the records.
const maxFailures = 10

// walk calls do for every due record in these states, page by page and several at once.
// A record that fails does not stop the walk before maxFailures. Do reports whether it
// changed the record.
func (d *duty) walk(ctx context.Context, do func(context.Context, retrysafe.Record) (bool, error), states ...retrysafe.State) (changed int, err error) {
	d.mu.Lock()
	q := retrysafe.Query{States: states, Due: true, Limit: d.page, After: d.after}
	d.mu.Unlock()
	whole, unreadable := q.After == retrysafe.Ref{}, 0
	var failed failures
	for {
		page, err := d.list(ctx, q)
		if err != nil {
			return changed, fmt.Errorf("%s: list what is due: %w", d.name, err)
		}
		due := page[:0:0]
		for _, r := range page {
			if !r.Readable() {
				unreadable++
			} else {
				due = append(due, r)
			}
		}
		n, seen := d.each(ctx, due, &failed, do)
		changed += n
		switch {
		case ctx.Err() != nil:
			return changed, ctx.Err()
		case failed.n >= maxFailures && seen > 0:
			d.goOnBehind(due[seen-1].Ref)
			return changed, failed.err(d.name)
		case len(page) < q.Size():
			d.goOnBehind(retrysafe.Ref{})
			d.found(ctx, unreadable, whole)
			return changed, failed.err(d.name)
		}
		q.After = page[len(page)-1].Ref
	}
}

func (d *duty) goOnBehind(ref retrysafe.Ref) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.after = ref
}

// found stores how many records a whole walk could not read, and logs the number when
// it has changed.
func (d *duty) found(ctx context.Context, unreadable int, whole bool) {
	if !whole {
		return
	}
	d.mu.Lock()
	before := d.passes.Unreadable
	d.passes.Unreadable = unreadable
	d.mu.Unlock()
	if unreadable != before {
		d.Logger.LogAttrs(ctx, slog.LevelError, "retrysafe: "+d.name+" leaves records that it cannot read", slog.Int("records", unreadable))
	}
}

// each calls do for the records of one page until too many have failed. It returns how
// many records were changed, and how many were started, counted from the first.
func (d *duty) each(ctx context.Context, page []retrysafe.Record, failed *failures, do func(context.Context, retrysafe.Record) (bool, error)) (changed, seen int) {
	var next, done atomic.Int64
	work := func() {
		for ctx.Err() == nil && !failed.tooMany() {
			i := int(next.Add(1)) - 1
			if i >= len(page) {
				return
			}
			ok, err := safely(func() (bool, error) { return do(ctx, page[i]) })
			if ok {
				done.Add(1)
			}
			failed.add(err)
		}
	}
	if d.Workers == 1 { // on the caller's goroutine: the simulator schedules goroutines itself
		work()
	} else {
		var wg sync.WaitGroup
		for range min(d.Workers, len(page)) {
			wg.Go(work)
		}
		wg.Wait()
	}
	return int(done.Load()), min(int(next.Load()), len(page))
}

// failures counts the records of a walk that failed, and keeps the first error.
type failures struct {
	mu    sync.Mutex
	n     int
	first error
}

func (f *failures) add(err error) {
	if err == nil {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.n++; f.first == nil {
		f.first = err
	}
}

func (f *failures) tooMany() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.n >= maxFailures
}

func (f *failures) err(name string) error {
	if f.n == 0 {
		return nil
	}
	return fmt.Errorf("%s: %d records failed, the first with: %w", name, f.n, f.first)
}

func (d *duty) list(ctx context.Context, q retrysafe.Query) ([]retrysafe.Record, error) {
	ctx, stop := deadline.After(ctx, d.Clock, d.StoreTimeout)
	defer stop()
	return d.store.List(ctx, q)
}

// swapTries is how often a swap is sent while its outcome is unknown.
const swapTries = 3

// swap swaps next in. It does not end with ctx: evidence that was found is stored even
// if the node is stopping.
func (d *duty) swap(ctx context.Context, next retrysafe.Write) (got retrysafe.Record, err error) {
	ctx, stop := deadline.After(context.WithoutCancel(ctx), d.Clock, d.StoreTimeout)
	defer stop()
	for try := 1; ; try++ {
		got, err = d.store.Swap(ctx, next)
		if try > 1 && errors.Is(err, retrysafe.ErrConflict) && wrote(&got, &next.Record) {
			return got, nil // an earlier try was applied, and its reply was lost
		}
		if err == nil || late(err) || try == swapTries || d.Clock.Sleep(ctx, time.Duration(try)*10*time.Millisecond) != nil {
			return got, err
		}
	}
}

// replace swaps next in and reports whether it did. It did not if another process has
// changed the record first.
func (d *duty) replace(ctx context.Context, next retrysafe.Write) (got retrysafe.Record, ok bool, err error) {
	got, err = d.swap(ctx, next)
	if late(err) {
		d.overtaken()
		return got, false, nil
	}
	return got, err == nil, err
}

// late reports whether err says that another process has changed the record first, or
// holds it.
func late(err error) bool {
	return errors.Is(err, retrysafe.ErrConflict) || errors.Is(err, retrysafe.ErrNotFound) || errors.Is(err, retrysafe.ErrBusy)
}

// wrote reports whether the stored record is the result of a swap of next. The last
// note identifies the write: it carries the time of the read that next was made from.
func wrote(got, next *retrysafe.Record) bool {
	a, b := got.Inquiry.Notes, next.Inquiry.Notes
	if got.State != next.State || len(a) != len(b) || len(a) == 0 {
		return false
	}
	x, y := &a[len(a)-1], &b[len(b)-1]
	return x.At.UnixMicro() == y.At.UnixMicro() && x.By == y.By && x.State == y.State && x.Text == y.Text && x.ID == y.ID
}

// tell logs a change of a record and reports it to the observer.
func (d *duty) tell(ctx context.Context, level slog.Level, what string, kind retrysafe.EventKind, r *retrysafe.Record, cause error) {
	attrs := []slog.Attr{
		slog.String("scope", retrysafe.HashKey(r.Scope)), slog.String("key", retrysafe.HashKey(r.Key)), slog.String("operation", r.Operation),
		slog.Int("attempt", r.Attempt), slog.Int64("revision", r.Revision), slog.String("state", r.State.String()),
	}
	if cause != nil {
		attrs = append(attrs, causeOf(cause)...)
	}
	d.Logger.LogAttrs(ctx, level, "retrysafe: "+what, attrs...)
	if d.Observer != nil && kind != 0 {
		d.Observer.Observe(retrysafe.Event{
			Kind: kind, Ref: r.Ref, Operation: r.Operation, Attempt: r.Attempt, Revision: r.Revision, State: r.State, Err: cause,
		})
	}
}
