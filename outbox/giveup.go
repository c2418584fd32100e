package outbox

import (
	"context"
	"errors"
	"fmt"

	"github.com/retrysafe/retrysafe"
)

// A Skipper is a store that lists the messages whose deliveries fail, and in which an
// operator can make one of them a dead letter before its last try.
type Skipper interface {
	// Failing returns messages with ids above after that were sent at least once
	// and wait for their time to be sent again, in the order of their ids. The
	// Revision of each is its Tries.
	Failing(ctx context.Context, after int64, limit int) ([]DeadLetter, error)
	// Skip makes one of those a dead letter, if no worker has sent it since. It returns
	// [retrysafe.ErrConflict] if a worker has, or may be about to, and
	// [retrysafe.ErrNotFound] if the message does not wait any more. The AckResult is about
	// the record that the message settles, as in [Store]; if that is refused the message is
	// unchanged.
	Skip(ctx context.Context, s SkipRequest) (AckResult, error)
}

// A SkipRequest says which message is to become a dead letter, and why.
type SkipRequest struct {
	ID int64
	// Tries is how often the message had been sent when the operator saw it.
	Tries int
	Why   string
	// ProviderRef, if not empty, replaces the message's.
	ProviderRef string
	// Settle, if not nil, is swapped in the same step.
	Settle *retrysafe.Write
}

// maxConflicts is how often a record that changes meanwhile is read again.
const maxConflicts = 5

// GiveUp makes a failing message a dead letter and settles its key, as a worker does after
// the last try. Why is added to the error of that try.
func GiveUp(ctx context.Context, s Skipper, head *DeadLetter, why string) error {
	e := Ack{ID: head.ID, Kind: AckDead, Why: head.Why + "; " + why}
	r := Receipt{ProviderRef: head.ProviderRef}
	if head.Settles != nil {
		e.Settle = settled(*head.Settles, &e, &r)
	}
	for range maxConflicts {
		ended, err := s.Skip(ctx, SkipRequest{ID: head.ID, Tries: head.Tries, Why: e.Why, Settle: e.Settle})
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
