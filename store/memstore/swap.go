package memstore

import (
	"context"
	"errors"
	"fmt"

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
	next := retrysafe.Swapped(&e.rec, r, now)
	size := sizeOf(&next)
	if !s.used.grow(size-e.size, r, &s.limits) {
		return nil, errNoRoom
	}
	s.relaxed.wrote(r, e)
	e.rec, e.size = next, size
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
