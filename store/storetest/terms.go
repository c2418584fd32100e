package storetest

import (
	"context"
	"slices"
	"time"

	"github.com/retrysafe/retrysafe"
)

// Most rules give each write a term of an hour, so that nothing becomes due while they
// run. A store may have a faster statement for the terms that nearly every operation
// has, and for keys that are reserved one at a time. So the rules about writes run a
// second time, over a harness that changes nothing but these.

// shortLease is a lease that outlasts a rule, and is as short as the leases of operations.
const shortLease = 2 * patience

// calmCreates is after how many lone reservations of new keys a store may expect that
// the next one is the same.
const calmCreates = 12

// ordinaryRules are the rules about writes, for a run with ordinary terms, in which the
// store has just reserved new keys, one at a time.
func ordinaryRules() []rule {
	all := slices.Concat(createRules, swapRules, writeRules, fenceRules, uniformRules, callRules, txRules, txWriteRules, besideRules, finishRules)
	for i := range all {
		check := all[i].check
		all[i].check = func(k *kit) {
			k.calmDown()
			check(k)
		}
	}
	return all
}

// ordinaryTerm returns the term by which a write replaces the term later: a lease of
// seconds, or the retention of an answer.
func ordinaryTerm(state retrysafe.State, retain time.Duration) time.Duration {
	if state.Forgettable() {
		return retain
	}
	return shortLease
}

// withOrdinaryTerms returns the harness with a store that takes ordinary terms.
func (h Harness) withOrdinaryTerms() Harness {
	h.ordinaryTerms = true
	h.Store = ordinaryStore{h.Store}
	h.Peers = slices.Clone(h.Peers)
	for i, p := range h.Peers {
		h.Peers[i] = ordinaryStore{p}
	}
	if begin := h.Begin; begin != nil {
		h.Begin = func(ctx context.Context) (retrysafe.Tx, error) {
			tx, err := begin(ctx)
			if err != nil {
				return nil, err
			}
			if f, ok := tx.(retrysafe.CreateCommitter); ok {
				return ordinaryFinisher{ordinaryTx{tx}, f}, nil
			}
			return ordinaryTx{tx}, nil
		}
	}
	return h
}

// calmDown reserves new keys, one at a time, and leaves none of them.
func (k *kit) calmDown() {
	k.t.Helper()
	for range calmCreates {
		k.create(in(retrysafe.StateCompleted, k.record("calm "+newOwner().String()), 0))
	}
	for left := calmCreates; left > 0; {
		n, err := k.Store.Purge(k.ctx, calmCreates)
		if err != nil {
			k.failf("Purge: %v", err)
		}
		if left -= n; n > 0 {
			continue
		}
		select {
		case <-time.After(poll):
		case <-k.ctx.Done():
			k.failf("%d records that were due at once are not purged", left)
		}
	}
}

func withOrdinaryTerm(w retrysafe.Write) retrysafe.Write {
	if w.Term == later {
		w.Term = ordinaryTerm(w.State, w.Retain)
	}
	return w
}

type ordinaryStore struct{ retrysafe.Store }

func (s ordinaryStore) Create(ctx context.Context, w retrysafe.Write) (retrysafe.Record, error) {
	return s.Store.Create(ctx, withOrdinaryTerm(w))
}

func (s ordinaryStore) Swap(ctx context.Context, w retrysafe.Write) (retrysafe.Record, error) {
	return s.Store.Swap(ctx, withOrdinaryTerm(w))
}

type ordinaryTx struct{ retrysafe.Tx }

func (t ordinaryTx) Create(ctx context.Context, w retrysafe.Write) (retrysafe.Record, error) {
	return t.Tx.Create(ctx, withOrdinaryTerm(w))
}

func (t ordinaryTx) Swap(ctx context.Context, w retrysafe.Write) (retrysafe.Record, error) {
	return t.Tx.Swap(ctx, withOrdinaryTerm(w))
}

type ordinaryFinisher struct {
	ordinaryTx
	below retrysafe.CreateCommitter
}

func (t ordinaryFinisher) CreateAndCommit(ctx context.Context, w retrysafe.Write) (retrysafe.Record, error) {
	return t.below.CreateAndCommit(ctx, withOrdinaryTerm(w))
}
