package janitor

import (
	"context"
	"fmt"
	"time"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/internal/clockskew"
	"github.com/retrysafe/retrysafe/internal/deadline"
)

// A Reaper deletes final records whose retention is over, by the store's clock. It
// never deletes a record that is in flight or unknown, however old: a [Sweeper] or a
// [Reconciler] has to settle it first. Accepted work that no worker took up gets a
// stored 408, and its retention begins then.
//
// The reaper deletes in small batches. After each batch it sleeps for as long as the
// batch took, so that half of the time is left to requests.
type Reaper struct {
	duty
	tombstone time.Duration
	stats     ReaperStats // under duty.mu
}

// ReaperOptions configure a [Reaper]. Nil and zero values select the defaults.
type ReaperOptions struct {
	// Options: by default a pass every 60 s, in batches of 1,000 records.
	Options
	// Tombstone, if not zero, is how long a key is kept after its answer has expired.
	// The record becomes Expired: answer, request and checkpoint are deleted; the key,
	// its fingerprint and its notes stay. Under [retrysafe.ExpiredGone] a retry gets a
	// 410 for that long.
	//
	// All processes that delete records must use the same value. A reaper on another
	// node without tombstones, or SQL in the database, deletes answers as soon as they
	// are due. This reaper may do so too, in the moment between its last walk and its
	// purge. In both cases only the tombstone of a key whose retention is over is lost,
	// never an answer within its retention.
	Tombstone time.Duration
}

// ReaperStats are counts since the reaper was made.
type ReaperStats struct {
	Passes
	// Deleted records were deleted, receipts of an outbox included. Expired ones became
	// tombstones.
	Deleted, Expired uint64
}

var _ Duty = (*Reaper)(nil)

const (
	reapEvery  = 60 * time.Second
	purgeBatch = 1000
	// longestRest bounds the pause after a batch.
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

// RunOnce implements [Duty]: it deletes all final records that are due.
func (r *Reaper) RunOnce(ctx context.Context) (int, error) {
	return r.pass(ctx, func() (int, error) {
		if err := r.checkClock(ctx); err != nil {
			return 0, err
		}
		if r.tombstone == 0 {
			return r.purge(ctx)
		}
		return r.bury(ctx)
	})
}

// Stats returns the counts so far. It may be called at any time.
func (r *Reaper) Stats() ReaperStats {
	r.mu.Lock()
	defer r.mu.Unlock()
	stats := r.stats
	stats.Passes = r.passes
	return stats
}

// checkClock returns an error if the store's clock is too far ahead of this node's to
// believe that retentions are over. It reads that clock off any record; without one there
// is nothing to delete.
func (r *Reaper) checkClock(ctx context.Context) error {
	some, err := r.list(ctx, retrysafe.Query{Limit: 1})
	switch {
	case err != nil:
		return fmt.Errorf("reaper: read the store's clock: %w", err)
	case len(some) == 0:
		return nil
	}
	if ahead := clockskew.Ahead(some[0].ReadAt, r.Clock.Now()); ahead > 0 {
		return fmt.Errorf("reaper: the store's clock is ahead of this machine's by %v, so nothing is deleted: correct the clock that is wrong; this ends when they differ by less than %v",
			ahead.Round(time.Second), clockskew.MaxLead)
	}
	return nil
}

// purge deletes due records in batches until a batch is not full.
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

// rest sleeps for as long as the last batch took, up to longestRest.
func (r *Reaper) rest(ctx context.Context, began time.Time) error {
	return r.Clock.Sleep(ctx, min(r.Clock.Now().Sub(began), longestRest))
}

// bury turns due answers into tombstones. Then it purges as many records as there are
// due records that need no tombstone, and when no record is due, what else the store
// keeps for a time. If the first part fails, it deletes nothing.
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
		limit := len(past)
		if limit == 0 { // what the store has beside records may be due
			if fresh, err := r.list(ctx, retrysafe.Query{States: []retrysafe.State{retrysafe.StateCompleted}, Due: true, Limit: 1}); err != nil || len(fresh) > 0 {
				return changed, err
			}
			limit = r.page
		}
		n, err := r.purgeSome(ctx, limit)
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

// expire turns one record into a tombstone.
func (r *Reaper) expire(ctx context.Context, rec retrysafe.Record) (bool, error) {
	_, ok, err := r.replace(ctx, tombstoneOf(rec, r.tombstone))
	if ok {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.stats.Expired++
	}
	return ok, err
}

// tombstoneOf returns the write that turns an answer into its tombstone.
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
