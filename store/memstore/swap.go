package memstore

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/retrysafe/retrysafe"
)

// Swap implements [retrysafe.Swapper]. If an open transaction holds the key it
// waits for the transaction's end, as for a row lock, or for ctx.
func (s *Store) Swap(ctx context.Context, r retrysafe.Record) (out retrysafe.Record, err error) {
	if err := ctx.Err(); err != nil {
		return out, err
	}
	for {
		var holder *Tx
		holder, err = s.swap(&r, &out)
		if errors.Is(err, errNoRoom) {
			err = s.forgetAndRetry("swap", func() (err error) {
				holder, err = s.swap(&r, &out)
				return err
			})
		}
		if holder == nil {
			return out, err
		}
		select {
		case <-holder.done:
		case <-ctx.Done():
			return out, fmt.Errorf("swap: wait for the transaction that holds the key: %w", ctx.Err())
		}
	}
}

// swap is one try of Swap. It returns the transaction to wait for, if any.
func (s *Store) swap(r, out *retrysafe.Record) (*Tx, error) {
	now := s.now()
	sh := s.shard(r.Ref)
	sh.mu.Lock()
	defer sh.mu.Unlock()
	now = sh.tick(now)

	e := sh.entries[r.Ref]
	if e == nil {
		return nil, retrysafe.ErrNotFound
	}
	if tx := sh.holder(r.Ref); tx != nil {
		return tx, nil
	}
	if stale(&e.rec, r) {
		e.read(out, now)
		return nil, retrysafe.ErrConflict
	}
	succeed(&e.rec, r, now)
	size := sizeOf(r)
	if !s.used.grow(size-e.size, r, &s.limits) {
		return nil, errNoRoom
	}
	e.rec, e.size = *r, size
	s.stamp(&e.rec, now)
	sh.file(e)
	e.read(out, now)
	return nil, nil
}

// stale reports whether the swap r was made for another revision or owner than
// the stored record has.
func stale(stored, r *retrysafe.Record) bool {
	return stored.Revision != r.Revision || stored.Owner != r.Owner
}

// succeed turns the swap r into the record that follows stored: a step of the
// present attempt keeps what belongs to the attempt, a claim starts another.
// What every write moves, and the new owner, are left to stamp: until then r is
// still the same swap, and may be tried again.
func succeed(stored, r *retrysafe.Record, now time.Time) {
	r.CreatedAt = stored.CreatedAt
	if !r.Claim.IsZero() {
		if r.Attempt == 1 {
			r.CreatedAt = now
		}
		return
	}
	r.Operation = stored.Operation
	r.Fingerprint = stored.Fingerprint
	r.KeyText = stored.KeyText
	r.Request = stored.Request
	r.Attempt = stored.Attempt
	if r.Checkpoint.IsZero() {
		r.Checkpoint = stored.Checkpoint
	}
}
