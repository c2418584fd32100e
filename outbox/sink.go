package outbox

import (
	"context"
	"errors"
	"time"

	"github.com/retrysafe/retrysafe"
)

// A Sink delivers messages. Many goroutines call it at once, never with two messages of
// one group at a time.
type Sink interface {
	// Deliver sends a batch and returns one receipt for each of its messages, in the
	// order of the batch. It returns when all are sent or ctx ends. It never sends a
	// message twice by itself: the worker does, and counts.
	Deliver(ctx context.Context, batch []Delivery) []Receipt
}

// A Receipt is the outcome of sending one message.
type Receipt struct {
	// Err is nil if the receiver has the message. [Permanent] marks an error that
	// sending again cannot cure.
	Err error
	// After is the least time before the next try, if the receiver asked for one.
	After time.Duration
	// ProviderRef is the receiver's own name for the effect, if it gave one. It is
	// kept also if the delivery failed after the name was read.
	ProviderRef string
	// Answer is the answer that retries of the settled key get, for a message that
	// settles one. Nil: 204 No Content.
	Answer *retrysafe.Result
}

// SinkFunc is a sink that delivers one message at a time.
type SinkFunc func(ctx context.Context, d *Delivery) Receipt

// Deliver implements [Sink].
func (f SinkFunc) Deliver(ctx context.Context, batch []Delivery) []Receipt {
	receipts := make([]Receipt, len(batch))
	for i := range batch {
		receipts[i] = f(ctx, &batch[i])
	}
	return receipts
}

// Permanent marks an error that sending again cannot cure: the message becomes a dead
// letter at once.
func Permanent(err error) error {
	if err == nil {
		return nil
	}
	return &permanentError{err}
}

// IsPermanent reports whether err carries the mark of [Permanent].
func IsPermanent(err error) bool {
	var mark *permanentError
	return errors.As(err, &mark)
}

type permanentError struct{ err error }

func (e *permanentError) Error() string { return e.err.Error() }
func (e *permanentError) Unwrap() error { return e.err }
