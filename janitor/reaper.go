package janitor

import (
	"context"
	"fmt"
	"time"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/internal/deadline"
)

// A Reaper deletes what is final and past its retention, by the store's clock.
// Nothing in flight or unknown is ever deleted, however old: a [Sweeper] and a
// [Reconciler] have to settle it first, and accepted work that nobody took up has a
// stored 408 before its time begins to run.
//
// It deletes in small batches and rests after each for as long as that took, so
// that half of the time is the requests' own.
type Reaper struct {
	duty
	tombstone time.Duration
	stats     ReaperStats // under duty.mu
}

// ReaperOptions configure a [Reaper]. Nil and zero values are the defaults.
type ReaperOptions struct {
	// Options: it comes every 60 s and deletes 1,000 records at a time.
	Options
	// Tombstone, if not zero, is how long a key is remembered after its answer was
	// forgotten. The record becomes Expired: answer, request and checkpoint are
	// gone, the key, its fingerprint and its notes stay. Under [retrysafe.ExpiredGone] a
	// retry is told so for that long.
	//
	// All who delete must agree on it: a reaper of another node, or SQL in the
	// database, that knows of no tombstones deletes answers as soon as they are
	// due. So may this one, in the moment between its last look and its purge. What
	// is lost is the memory of a key whose retention is over, never an answer that
	// is still promised.
	Tombstone time.Duration
}

// ReaperStats are counts since the reaper was made.
type ReaperStats struct {
	Passes
	// Deleted records are gone, Expired ones have become tombstones.
	Deleted, Expired uint64
}

var _ Duty = (*Reaper)(nil)

const (
	reapEvery  = 60 * time.Second
	purgeBatch = 1000
	// longestRest bounds how long the reaper rests after a batch.
	longestRest = time.Second
)

// NewReaper returns a reaper of the store. Opts may be nil.
func NewReaper(s retrysafe.Store, opts *ReaperOptions) *Reaper {
	if opts == nil {
		opts = &ReaperOptions{}
	}
	o := opts.withDefaults(reapEvery, purgeBatch)
	return &Reaper{
		duty:      duty{name: "reaper", store: s, page: min(o.Batch, pageSize), Options: o},
		tombstone: max(opts.Tombstone, 0),
	}
}

// RunOnce implements [Duty]: it deletes all that is due.
func (r *Reaper) RunOnce(ctx context.Context) (int, error) {
	return r.pass(ctx, func() (int, error) {
		if r.tombstone == 0 {
			return r.purge(ctx)
		}
		return r.bury(ctx)
	})
}

// Stats returns what was done so far. It may be called at any time.
func (r *Reaper) Stats() ReaperStats {
	r.mu.Lock()
	defer r.mu.Unlock()
	stats := r.stats
	stats.Passes = r.passes
	return stats
}

// purge deletes what is due, in batches, until one is not full.
func (r *Reaper) purge(ctx context.Context) (deleted int, err error) {
	for {
		began := r.Clock.Now()
		n, err := r.purgeSome(ctx, r.Batch)
		deleted += n
		if err != nil {
			return deleted, fmt.Errorf("reaper: %w", err)
		}
		if n < r.Batch {
			return deleted, nil
		}
		if err := r.rest(ctx, began); err != nil {
			return deleted, err
		}
	}
}

func (r *Reaper) purgeSome(ctx context.Context, limit int) (int, error) {
	ctx, stop := deadline.After(ctx, r.Clock, r.StoreTimeout)
	defer stop()
	n, err := r.store.Purge(ctx, limit)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.stats.Deleted += uint64(max(n, 0))
	return n, err
}

// rest leaves the store to others for as long as the reaper had it.
func (r *Reaper) rest(ctx context.Context, began time.Time) error {
	return r.Clock.Sleep(ctx, min(r.Clock.Now().Sub(began), longestRest))
}

// bury turns answers that are due into tombstones, and then deletes as many records
// as there are that need none. It does not delete when it could not bury.
func (r *Reaper) bury(ctx context.Context) (changed int, err error) {
	if changed, err = r.walk(ctx, r.expire, retrysafe.StateCompleted); err != nil {
		return changed, err
	}
	for {
		began := r.Clock.Now()
		past, err := r.list(ctx, retrysafe.Query{States: []retrysafe.State{retrysafe.StateRetryable, retrysafe.StateExpired}, Due: true, Limit: r.page})
		if err != nil {
			return changed, fmt.Errorf("reaper: list what is due: %w", err)
		}
		if len(past) == 0 {
			return changed, nil
		}
		n, err := r.purgeSome(ctx, len(past))
		changed += n
		if err != nil {
			return changed, fmt.Errorf("reaper: %w", err)
		}
		if n < r.page {
			return changed, nil
		}
		if err := r.rest(ctx, began); err != nil {
			return changed, err
		}
	}
}

// expire makes a tombstone of one record.
func (r *Reaper) expire(ctx context.Context, rec retrysafe.Record) (bool, error) {
	_, ok, err := r.replace(ctx, tombstoneOf(rec, r.tombstone))
	if ok {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.stats.Expired++
	}
	return ok, err
}

// tombstoneOf returns the write that leaves of an answer what is kept for audit.
func tombstoneOf(r retrysafe.Record, term time.Duration) retrysafe.Write {
	w := r.Update()
	w.State, w.Result, w.Term = retrysafe.StateExpired, nil, term
	w.Checkpoint, w.SetCheckpoint = retrysafe.Checkpoint{}, true
	if r.Request != nil {
		w.Request, w.Overwrite = nil, true // only an overwrite drops a request
	}
	w.AddNote(retrysafe.Note{By: "reaper", Text: "its retention is over"})
	return w
}
