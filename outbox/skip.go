package outbox

import (
	"context"
	"errors"
	"fmt"

	"github.com/retrysafe/retrysafe"
)

// A Skipper is a store in which people can see what fails, and bury it before its
// tries are over.
type Skipper interface {
	// Failing returns messages with ids above after that were sent at least once
	// and wait for their time to be sent again, in the order of their ids. The
	// Revision of each is its Tries.
	Failing(ctx context.Context, after int64, limit int) ([]Letter, error)
	// Skip buries one of those, if nobody has sent it since. It returns
	// [retrysafe.ErrConflict] if somebody has, or may be about to, and
	// [retrysafe.ErrNotFound] if it waits no more. Ended is about the record that
	// it settles, as in [Store]; if that is refused the message is as it was.
	Skip(ctx context.Context, s Skipped) (Ended, error)
}

// A Skipped says which message is to be buried, and why.
type Skipped struct {
	ID int64
	// Tries is how often it had been sent when the person saw it.
	Tries int
	Why   string
	// ProviderRef, if not empty, replaces what the message has.
	ProviderRef string
	// Settle, if not nil, is swapped in the same step.
	Settle *retrysafe.Write
}

// moves is how often a record is followed that others change meanwhile.
const moves = 5

// Bury buries a failing message and settles its key, as a worker would that gives it
// up. Why is added to what the last try came to.
func Bury(ctx context.Context, s Skipper, head *Letter, why string) error {
	e := Ending{ID: head.ID, Fate: Buried, Why: head.Why + "; " + why}
	r := Receipt{ProviderRef: head.ProviderRef}
	if head.Settles != nil {
		next := settled(*head.Settles, &e, &r)
		e.Settle = &next
	}
	for range moves {
		ended, err := s.Skip(ctx, Skipped{ID: head.ID, Tries: head.Tries, Why: e.Why, Settle: e.Settle})
		switch {
		case err != nil:
			return err
		case ended.Err == nil:
			return nil
		case errors.Is(ended.Err, retrysafe.ErrConflict) && e.Settle != nil:
			e.Settle = resettled(ended.Record, &e, &r)
		case errors.Is(ended.Err, retrysafe.ErrNotFound):
			e.Settle = nil
		default:
			return ended.Err
		}
	}
	return fmt.Errorf("message %d: the key that it settles keeps changing: %w", head.ID, retrysafe.ErrConflict)
}
