package janitor

import (
	"context"
	"log/slog"
	"time"

	"github.com/retrysafe/retrysafe"
)

// A Sweeper settles records that their owner has abandoned. An attempt whose lease ran
// out is settled by the record's own policy. Accepted work that no worker took up in
// time gets a stored 408. The sweeper needs no configuration for that; see
// [retrysafe.DecideLapse].
//
// A retry that finds such a record settles it too. The sweeper is for keys without
// retries. Each record that it settles points to a crash.
type Sweeper struct {
	duty
	stats SweeperStats // under duty.mu
}

// SweeperStats are counts since the sweeper was made.
type SweeperStats struct {
	Passes
	// Quarantined attempts became unknown.
	Quarantined uint64
	// Failed attempts were completed with an error answer.
	Failed uint64
	// Released attempts became retryable, Requeued ones accepted again.
	Released, Requeued uint64
	// Abandoned work was never taken up and got a 408.
	Abandoned uint64
}

var _ Duty = (*Sweeper)(nil)

const (
	sweepEvery = 2 * time.Second
	// pageSize is how many records one page holds. Each may hold a request and an
	// answer.
	pageSize = 100
)

// NewSweeper returns a sweeper of the store. Opts may be nil; by default there is a
// pass every 2 s, in pages of 100 records.
func NewSweeper(s retrysafe.Store, opts *Options) *Sweeper {
	if opts == nil {
		opts = &Options{}
	}
	o := opts.withDefaults(sweepEvery, pageSize)
	return &Sweeper{duty: duty{name: "sweeper", store: s, page: o.Batch, Options: o}}
}

// RunOnce implements [Duty]: it settles all abandoned records that are due.
func (s *Sweeper) RunOnce(ctx context.Context) (int, error) {
	return s.pass(ctx, func() (int, error) { return s.walk(ctx, s.sweep, retrysafe.StateInProgress, retrysafe.StateAccepted) })
}

// Stats returns the counts so far. It may be called at any time.
func (s *Sweeper) Stats() SweeperStats {
	s.mu.Lock()
	defer s.mu.Unlock()
	stats := s.stats
	stats.Passes = s.passes
	return stats
}

func (s *Sweeper) sweep(ctx context.Context, r retrysafe.Record) (bool, error) {
	next, ok := retrysafe.DecideLapse(r)
	if !ok {
		return false, nil
	}
	got, ok, err := s.replace(ctx, next)
	if ok {
		s.swept(ctx, &r, &got)
	}
	return ok, err
}

// swept counts, logs and reports how a record was settled.
func (s *Sweeper) swept(ctx context.Context, was, is *retrysafe.Record) {
	s.mu.Lock()
	what := "the lease of an attempt ran out; the attempt was settled"
	switch is.State {
	case retrysafe.StateUnknown:
		if is.UnderReview() {
			s.stats.Failed++
			what = "the lease of an attempt ran out; retries get an error, and the outcome is under review"
		} else {
			s.stats.Quarantined++
		}
	case retrysafe.StateRetryable:
		s.stats.Released++
	case retrysafe.StateAccepted:
		s.stats.Requeued++
	default: // Completed
		s.stats.Abandoned++
		what = "accepted work was not taken up in time; it was completed with a 408"
	}
	s.mu.Unlock()
	s.tell(ctx, slog.LevelWarn, what, retrysafe.EventLapsed, is, nil)
}
