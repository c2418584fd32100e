package operator

import (
	"context"
	"crypto/rand"
	"fmt"
	"slices"
	"time"

	"github.com/retrysafe/retrysafe"
)

// Erase deletes all content of a record whose operation is over and leaves a tombstone:
// a retry gets the answer that the operation was executed and its response was not
// kept, and nothing runs again. It is for data that must be deleted before it expires.
//
// Erased are the body and headers of the answer, the request, the checkpoint, the
// reason, the provider's id of the effect and the texts of earlier notes. The key, the
// operation's name, the fingerprint, the state and the status stay until the key
// expires, which may be later by a twenty-fourth of its retention. A fingerprint
// without a secret can be guessed by a reader of the database that knows almost all of
// the request. The audit keeps its entries. With [Options.Receipts] the receipts of
// messages that settled the key are deleted too.
//
// The bytes are deleted from the record. Copies that the database keeps, such as dead
// rows, logs and backups, disappear when the database removes them.
//
// Erase refuses a record that is still needed: an operation in flight or unknown, and a
// retryable one with a checkpoint, because without the checkpoint finished phases would
// be repeated.
func (d *Service) Erase(ctx context.Context, a Action) (Entry, error) {
	return d.act(ctx, verbErase, a, nil, func(a *Action, r retrysafe.Record) (retrysafe.Write, error) {
		if err := settled(&r); err != nil {
			return retrysafe.Write{}, err
		}
		if r.State == retrysafe.StateRetryable && !r.Due() && !r.Checkpoint.IsZero() {
			return retrysafe.Write{}, fmt.Errorf("%w: it may run on from phase %q; forget it first, or wait until %s",
				ErrState, r.Checkpoint.Phase, r.Deadline.Format(time.RFC3339))
		}
		w := erased(r)
		a.note(&w, "erased")
		return w, nil
	})
}

// erased returns the write that leaves the record without its content.
func erased(r retrysafe.Record) retrysafe.Write {
	w := r.Update()
	if r.Result != nil {
		w.Result = &retrysafe.Result{Status: r.Result.Status, Omitted: true}
	}
	w.Reason, w.ProviderRef = "", ""
	w.Inquiry.Notes = slices.Clone(r.Inquiry.Notes)
	for i := range w.Inquiry.Notes {
		w.Inquiry.Notes[i].Text = "erased"
	}
	w.Checkpoint, w.SetCheckpoint = retrysafe.Checkpoint{}, true
	if r.Request != nil { // only an overwrite replaces it; no attempt runs under the new owner
		_, _ = rand.Read(w.Owner[:]) // it never fails
		w.Request, w.Overwrite = nil, true
	}
	w.Term = left(&r)
	return w
}

// left is the rest of the record's retention, rounded up to a 24th of it: stores that
// keep records in buckets by term need few buckets then.
func left(r *retrysafe.Record) time.Duration {
	d, part := max(r.Deadline.Sub(r.ReadAt), 0), r.Retain/24
	if part < time.Second {
		return d
	}
	return (d + part - 1).Truncate(part)
}
