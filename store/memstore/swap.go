package memstore

import (
	"context"
	"errors"
	"fmt"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/store/storekit"
)

// Swap implements [retrysafe.Swapper]. If an open transaction holds the key it
// waits for the transaction's end, as for a row lock, or for ctx.
func (s *Store) Swap(ctx context.Context, w retrysafe.Write) (out retrysafe.Record, err error) {
	return s.swapAnd(ctx, w, nil)
}

// swapAnd swaps a record and calls also, which may be nil: both happen, or neither if also
// returns an error. It is called with the record's shard locked.
func (s *Store) swapAnd(ctx context.Context, w retrysafe.Write, also func() error) (out retrysafe.Record, err error) {
	if err := ctx.Err(); err != nil {
		return out, err
	}
	for {
		var holder *Tx
		holder, err = s.swap(&w, also, &out)
		if errors.Is(err, errNoRoom) {
			err = s.forgetAndRetry("swap", func() (err error) {
				holder, err = s.swap(&w, also, &out)
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

// swap is one try of swapAnd. It returns the transaction to wait for, if any.
func (s *Store) swap(w *retrysafe.Write, also func() error, out *retrysafe.Record) (*Tx, error) {
	now := s.now()
	sh := s.shard(w.Ref)
	sh.mu.Lock()
	defer sh.mu.Unlock()
	now = sh.tick(now)

	e := sh.entries[w.Ref]
	if e == nil {
		return nil, retrysafe.ErrNotFound
	}
	if tx := sh.holder(w.Ref); tx != nil {
		return tx, nil
	}
	if e.rec.Fence() != w.Expect {
		e.read(out, now)
		return nil, retrysafe.ErrConflict
	}
	next := storekit.Apply(&e.rec, w, now)
	size := sizeOf(&next)
	if !s.used.grow(size-e.size, w, &s.limits) {
		return nil, errNoRoom
	}
	if also != nil {
		if err := also(); err != nil {
			s.used.bytes.Add(e.size - size)
			return nil, err
		}
	}
	s.relaxed.wrote(w, e)
	e.rec, e.size = next, size
	s.stamp(&e.rec, w.Term, now)
	sh.reindex(e)
	e.read(out, now)
	if w.Announce {
		s.changes.add(w.Ref)
	}
	return nil, nil
}
