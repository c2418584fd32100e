package storetest

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/retrysafe/retrysafe"
)

var txRules = []rule{{
	name:   "transaction shows at commit",
	reason: "What a transaction wrote is visible to no other reader before its commit and to all readers after it, all at once, because the answer must appear with the business write and not before.",
	needs:  needsTx,
	check: func(k *kit) {
		rec := k.create(k.record("old"))
		tx := k.begin()
		swapped, err := tx.Swap(k.ctx, to(retrysafe.StateCompleted, rec, later))
		k.want("Swap in the transaction", err, nil)
		created, err := tx.Create(k.ctx, in(retrysafe.StateCompleted, k.record("new"), later))
		k.want("Create in the transaction", err, nil)

		k.unchanged("a Swap in an open transaction", rec)
		k.absent(created.Ref)
		if got := k.page(retrysafe.Query{}); len(got) != 1 {
			k.failf("List beside an open transaction: got %d records, want 1", len(got))
		}
		k.want("Commit", tx.Commit(k.ctx), nil)
		k.same("after commit", k.load(rec.Ref), swapped)
		k.same("after commit", k.load(created.Ref), created)
		if swapped.Revision <= rec.Revision {
			k.failf("revision: got %d, want more than %d", swapped.Revision, rec.Revision)
		}
		_, err = k.Store.Swap(k.ctx, to(retrysafe.StateUnknown, rec, later))
		k.want("Swap at the revision before the transaction", err, retrysafe.ErrConflict)
	},
}, {
	name:   "rollback leaves no trace",
	reason: "After a rollback every record is as it was and every key is free, because the business write is undone too and the operation did not happen.",
	needs:  needsTx,
	check: func(k *kit) {
		rec := k.create(k.record("old"))
		tx := k.begin()
		_, err := tx.Swap(k.ctx, to(retrysafe.StateCompleted, rec, later))
		k.want("Swap in the transaction", err, nil)
		r := k.record("new")
		_, err = tx.Reserve(k.ctx, r.Ref)
		k.want("Reserve of a free key", err, retrysafe.ErrNotFound)
		_, err = tx.Create(k.ctx, in(retrysafe.StateCompleted, r, later))
		k.want("Create in the transaction", err, nil)
		k.want("Rollback", tx.Rollback(k.ctx), nil)

		k.unchanged("a transaction that was rolled back", rec)
		k.absent(r.Ref)
		k.swap(to(retrysafe.StateCompleted, rec, later))
		k.create(r)
	},
}, {
	name:   "refused swap poisons the transaction",
	reason: "After a Swap that was refused the transaction cannot commit, even if its caller ignores the error, because the business write in it would be a second one.",
	needs:  needsTx,
	check: func(k *kit) {
		stale := k.create(k.record("k"))
		now := k.swap(beat(stale))
		stranger := to(retrysafe.StateCompleted, now, later)
		stranger.Expect.Owner = newOwner()
		absent := k.record("absent")
		absent.Expect = retrysafe.Fence{Revision: now.Revision, Owner: absent.Owner}
		for _, c := range []struct {
			swap retrysafe.Write
			want error
		}{
			{to(retrysafe.StateCompleted, stale, later), retrysafe.ErrConflict},
			{stranger, retrysafe.ErrConflict},
			{absent, retrysafe.ErrNotFound},
		} {
			k.poisoned(fmt.Sprintf("Swap refused with %q", c.want), func(tx retrysafe.Tx) {
				got, err := tx.Swap(k.ctx, c.swap)
				k.want("Swap in the transaction", err, c.want)
				if errors.Is(err, retrysafe.ErrConflict) {
					k.same("the record returned with ErrConflict", got, now)
				}
			})
			k.unchanged("a transaction that could not commit", now)
		}
	},
}, {
	name:   "lost create poisons the transaction",
	reason: "After a Create of a key that exists, also by its own owner, the transaction cannot commit, even if its caller ignores the error, because the operation ran before.",
	needs:  needsTx,
	check: func(k *kit) {
		rec := k.create(k.record("k"))
		own := rec.Update()
		own.Term = later
		for _, w := range []retrysafe.Write{k.record("k"), own} {
			k.poisoned("Create of a key that exists", func(tx retrysafe.Tx) {
				if _, err := tx.Create(k.ctx, in(retrysafe.StateCompleted, w, later)); err == nil {
					k.failf("Create of a key that exists succeeded in a transaction")
				}
			})
		}
		k.unchanged("a transaction that could not commit", rec)
	},
}, {
	name:   "reserve shows the record",
	reason: "Reserve returns the committed record, or ErrNotFound for a free key, and its transaction can then write it, because the decision to run is made on what Reserve saw.",
	needs:  needsTx,
	check: func(k *kit) {
		rec := k.create(in(retrysafe.StateRetryable, k.record("old"), later))
		tx := k.begin()
		got, err := tx.Reserve(k.ctx, rec.Ref)
		k.want("Reserve of a key that exists", err, nil)
		k.same("reserved", got, rec)
		if got.ReadAt.IsZero() {
			k.failf("ReadAt is not set by Reserve")
		}
		swapped, err := tx.Swap(k.ctx, claim(to(retrysafe.StateCompleted, got, later), 2))
		k.want("claim of the reserved record", err, nil)

		r := in(retrysafe.StateCompleted, k.record("new"), later)
		_, err = tx.Reserve(k.ctx, r.Ref)
		k.want("Reserve of a free key", err, retrysafe.ErrNotFound)
		created, err := tx.Create(k.ctx, r)
		k.want("Create of the reserved key", err, nil)
		k.want("Commit", tx.Commit(k.ctx), nil)
		k.same("after commit", k.load(rec.Ref), swapped)
		k.same("after commit", k.load(r.Ref), created)
	},
}, {
	name:   "clock of a transaction is the step's",
	reason: "In a transaction the times are those of the step and not of its begin, because a lease that is counted from the begin of a long transaction is over before it starts.",
	needs:  needsTx,
	check: func(k *kit) {
		rec := k.create(k.record("k"))
		tx := k.begin()
		_, err := tx.Reserve(k.ctx, rec.Ref)
		k.want("Reserve", err, nil)
		at := k.load(rec.Ref).ReadAt.Add(20 * tick)
		k.until(rec.Ref, at)
		got, err := tx.Swap(k.ctx, to(retrysafe.StateCompleted, rec, later))
		k.want("Swap in the transaction", err, nil)
		for _, t := range []time.Time{got.UpdatedAt, got.ReadAt, got.Deadline.Add(-later)} {
			if t.Before(at.Add(-tick)) {
				k.failf("the step was made at %v or later, and says %v", at, t)
			}
		}
		k.want("Commit", tx.Commit(k.ctx), nil)
		k.same("after commit", k.load(rec.Ref), got)
	},
}, {
	name:   "finished transaction is refused",
	reason: "A transaction that was committed or rolled back takes no further step, because a step that seems to succeed there is lost. Its steps say so by ErrTxDone, because the engine must not take it for a rollback.",
	needs:  needsTx,
	check: func(k *kit) {
		rec := k.create(k.record("k"))
		for _, commits := range []bool{true, false} {
			tx := k.begin()
			_, err := tx.Reserve(k.ctx, rec.Ref)
			k.want("Reserve", err, nil)
			if commits {
				k.want("Commit", tx.Commit(k.ctx), nil)
				k.want("Rollback after the commit", tx.Rollback(k.ctx), retrysafe.ErrTxDone)
			} else {
				k.want("Rollback", tx.Rollback(k.ctx), nil)
			}
			_, err = tx.Reserve(k.ctx, rec.Ref)
			k.want("Reserve in a finished transaction", err, retrysafe.ErrTxDone)
			_, err = tx.Swap(k.ctx, to(retrysafe.StateCompleted, rec, later))
			k.want("Swap in a finished transaction", err, retrysafe.ErrTxDone)
			_, err = tx.Create(k.ctx, k.record("new"))
			k.want("Create in a finished transaction", err, retrysafe.ErrTxDone)
			if tx.Commit(k.ctx) == nil {
				k.failf("Commit succeeded in a finished transaction")
			}
			k.unchanged("a finished transaction", rec)
			k.absent(retrysafe.Ref{Scope: "acct_1", Key: "new"})
		}
	},
}}

// begin opens a transaction, which must succeed. It is rolled back at the end of the
// rule if it is still open.
func (k *kit) begin() retrysafe.Tx {
	k.t.Helper()
	tx, err := k.Begin(k.ctx)
	if err != nil {
		k.failf("Begin: %v", err)
	}
	k.open = append(k.open, tx)
	return tx
}

// rollback ends the transactions that the rule opened. Most have ended before.
func (k *kit) rollback() {
	for _, tx := range k.open {
		_ = tx.Rollback(context.WithoutCancel(k.ctx))
	}
}

// poisoned takes the refused step in a transaction between two good ones and ignores
// its error, and checks that the transaction leaves nothing.
func (k *kit) poisoned(what string, step func(retrysafe.Tx)) {
	k.t.Helper()
	tx := k.begin()
	before, after := k.record("before"), k.record("after")
	_, err := tx.Create(k.ctx, before)
	k.want("Create in the transaction", err, nil)
	step(tx)
	_, _ = tx.Create(k.ctx, after)
	if tx.Commit(k.ctx) == nil {
		k.failf("the transaction committed after a %s", what)
	}
	_ = tx.Rollback(k.ctx)
	k.absent(before.Ref)
	k.absent(after.Ref)
}

func needsTx(h Harness) string {
	if h.Begin == nil {
		return "the store has no transactions"
	}
	return ""
}
