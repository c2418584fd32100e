package operator

import (
	"context"
	"crypto/rand"
	"fmt"
	"slices"
	"time"

	"github.com/retrysafe/retrysafe"
)

// Erase takes all content out of a record whose operation is over and leaves a
// tombstone: a retry is told that the operation was executed and its answer not
// kept, and nothing runs again. It is for data that must go before it expires.
//
// Gone are the body and headers of the answer, the request, the checkpoint, the
// reason, the provider's name for the effect and the texts of earlier notes. What
// stays is the key, the operation's name, the fingerprint, the state and the
// status, until the key expires, which may be later by a twenty-fourth of its
// retention. A fingerprint without a secret can be guessed at by whoever knows
// almost all of the request. The audit keeps its entries.
//
// The bytes are gone from the record. Copies that the database keeps on its own,
// such as dead rows, logs and backups, go as it goes about them.
//
// Refused is what is needed still: an operation in flight or unknown, and one that
// may run on from its checkpoint, for without it finished phases would be repeated.
func (d *Desk) Erase(ctx context.Context, a Action) (Entry, error) {
	return d.act(ctx, "erase", a, nil, func(a *Action, r retrysafe.Record) (retrysafe.Record, error) {
		if err := settled(&r); err != nil {
			return r, err
		}
		if r.State == retrysafe.StateRetryable && !r.Due() && !r.Checkpoint.IsZero() {
			return r, fmt.Errorf("%w: it may run on from phase %q; forget it first, or wait until %s",
				ErrState, r.Checkpoint.Phase, r.Deadline.Format(time.RFC3339))
		}
		return a.noted(erased(r), "erased"), nil
	})
}

// erased returns r without its content, to be swapped in for it.
func erased(r retrysafe.Record) retrysafe.Record {
	if r.Result != nil {
		r.Result = &retrysafe.Result{Status: r.Result.Status, Omitted: true}
	}
	r.Reason, r.ProviderRef = "", ""
	r.Inquiry.Notes = slices.Clone(r.Inquiry.Notes)
	for i := range r.Inquiry.Notes {
		r.Inquiry.Notes[i].Text = "erased"
	}
	if !r.Checkpoint.IsZero() {
		r.Checkpoint = retrysafe.Checkpoint{Data: []byte{}} // a zero one would keep what is stored
	}
	if r.Request != nil { // only a claim replaces it; nobody runs by it
		_, _ = rand.Read(r.Claim[:]) // it never fails
		r.Request, r.Checkpoint = nil, retrysafe.Checkpoint{}
	}
	r.Term = left(&r)
	return r
}

// left is how long the record has yet to live, in 24ths of its retention: stores
// that file records by their term have few files then.
func left(r *retrysafe.Record) time.Duration {
	d, part := max(r.Deadline.Sub(r.ReadAt), 0), r.Retain/24
	if part < time.Second {
		return d
	}
	return (d + part - 1).Truncate(part)
}
