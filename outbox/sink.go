package outbox

import (
	"context"
	"errors"
	"time"

	"github.com/retrysafe/retrysafe"
)

// A Sink delivers messages. It is called by many goroutines at once, never with two
// messages of one group at a time.
type Sink interface {
	// Deliver sends a batch and returns a receipt for each of its messages, in
	// their order. It returns when all are sent or ctx ends, and never sends a
	// message twice by itself.
	Deliver(ctx context.Context, batch []Delivery) []Receipt
}

// A Receipt is what a receiver said to one message.
type Receipt struct {
	// Err is nil if the receiver has it. [Permanent] marks one that will not go
	// away by itself.
	Err error
	// After is when the receiver wants to be asked again, if it said so.
	After time.Duration
	// ProviderRef is the receiver's own name for the effect, if it gave one. It is
	// kept also when the delivery failed after it was seen.
	ProviderRef string
	// Answer is what retries of a key get that the message settles. Without one
	// they get 204 No Content.
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

// Permanent marks an error that sending again cannot cure: the message is buried at
// once.
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
