package janitor

import (
	"context"
	"log/slog"
	"time"

	"github.com/retrysafe/retrysafe"
)

// A Sweeper settles what its owner has left behind: an attempt whose lease ran out
// goes where the record's own policy says, and accepted work that no worker took up
// in time gets a stored 408. Nothing else needs to be known; see [retrysafe.DecideLapse].
//
// A retry that meets such a record settles it too. The sweeper is for those that
// nobody asks about any more. Each one it finds is the sign of a crash.
type Sweeper struct {
	duty
	stats SweeperStats // under duty.mu
}

// SweeperStats are counts since the sweeper was made.
type SweeperStats struct {
	Passes
	// Quarantined attempts became Unknown.
	Quarantined uint64
	// Failed attempts were completed with an error answer.
	Failed uint64
	// Released attempts became Retryable, Requeued ones Accepted again.
	Released, Requeued uint64
	// Abandoned work was never taken up, and has a 408.
	Abandoned uint64
}

var _ Duty = (*Sweeper)(nil)

const (
	sweepEvery = 2 * time.Second
	// pageSize is how many records are read at once. Each may hold a request and
	// an answer.
	pageSize = 100
)

// NewSweeper returns a sweeper of the store. Opts may be nil; it comes every 2 s
// and reads 100 records at a time.
func NewSweeper(s retrysafe.Store, opts *Options) *Sweeper {
	if opts == nil {
		opts = &Options{}
	}
	o := opts.withDefaults(sweepEvery, pageSize)
	return &Sweeper{duty: duty{name: "sweeper", store: s, page: o.Batch, Options: o}}
}

// RunOnce implements [Duty]: it sweeps all that is due.
func (s *Sweeper) RunOnce(ctx context.Context) (int, error) {
	return s.pass(ctx, func() (int, error) { return s.walk(ctx, s.sweep, retrysafe.StateInProgress, retrysafe.StateAccepted) })
}

// Stats returns what was done so far. It may be called at any time.
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

// swept counts and tells what became of a record.
func (s *Sweeper) swept(ctx context.Context, was, is *retrysafe.Record) {
	s.mu.Lock()
	what := "an attempt stopped without a word"
	switch is.State {
	case retrysafe.StateUnknown:
		s.stats.Quarantined++
	case retrysafe.StateRetryable:
		s.stats.Released++
	case retrysafe.StateAccepted:
		s.stats.Requeued++
	default: // Completed
		if was.State == retrysafe.StateAccepted {
			s.stats.Abandoned++
			what = "accepted work was given up"
		} else {
			s.stats.Failed++
		}
	}
	s.mu.Unlock()
	s.tell(ctx, slog.LevelWarn, what, retrysafe.EventLapsed, is, nil)
}
