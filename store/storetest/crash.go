package storetest

import (
	"errors"
	"fmt"

	"github.com/retrysafe/retrysafe"
)

var crashRules = []rule{{
	name:   "what was confirmed survives a crash",
	reason: "Every step that returned nil is still there after a crash, because the operation ran, and its answer was sent, only after the step was confirmed.",
	needs:  needsReopen,
	check: func(k *kit) {
		var records []retrysafe.Record
		for state := retrysafe.StateAccepted; state <= retrysafe.StateExpired; state++ {
			created := k.create(k.record(fmt.Sprintf("swapped %v", state)))
			records = append(records,
				k.swap(to(state, created, later)),
				k.create(in(state, k.record(fmt.Sprintf("created %v", state)), later)))
		}
		k.Store = k.Reopen()
		for _, r := range records {
			got, err := k.Store.Create(k.ctx, k.record(r.Key))
			k.want("Create of a key from before the crash", err, retrysafe.ErrExists)
			k.same("after the crash", got, r)
		}
		for i, r := range records {
			records[i] = k.swap(to(retrysafe.StateCompleted, r, later))
		}
		k.Store = k.Reopen()
		for _, r := range records {
			k.same("after the second crash", k.load(r.Ref), r)
		}
	},
}, {
	name:   "revision does not repeat after a crash",
	reason: "Revisions go on above all earlier ones after a crash, also for a key that was purged before it, because a late writer of another process still holds the old ones.",
	needs:  needsReopen,
	check: func(k *kit) {
		old := k.create(k.record("k"))
		gone := k.swap(to(retrysafe.StateRetryable, k.create(k.record("gone")), soon))
		k.purgeOne(gone)
		k.Store = k.Reopen()
		if got := k.swap(beat(old)); got.Revision <= old.Revision {
			k.failf("revision after the crash: got %d, want more than %d", got.Revision, old.Revision)
		}
		if got := k.create(k.record("gone")); got.Revision <= gone.Revision {
			k.failf("revision of a key created again after the crash: got %d, want more than %d", got.Revision, gone.Revision)
		}
	},
}, {
	name:   "open transaction is gone after a crash",
	reason: "A transaction that was open when the store crashed leaves no record and holds no key, because its business write is undone and a retry must run.",
	needs: func(h Harness) string {
		if lacks := needsReopen(h); lacks != "" {
			return lacks
		}
		return needsTx(h)
	},
	check: func(k *kit) {
		rec := k.create(k.record("old"))
		tx := k.begin()
		_, err := tx.Swap(k.ctx, to(retrysafe.StateCompleted, rec, later))
		k.want("Swap in the transaction", err, nil)
		created := k.record("new")
		_, err = tx.Create(k.ctx, created)
		k.want("Create in the transaction", err, nil)
		k.Store = k.Reopen()
		k.unchanged("a transaction that did not commit", rec)
		k.absent(created.Ref)
		if err := tx.Commit(k.ctx); err == nil {
			k.failf("a transaction from before the crash committed after it")
		}

		next := k.begin()
		_, err = next.Reserve(k.ctx, rec.Ref)
		k.want("Reserve after the crash", err, nil)
		if _, err = next.Reserve(k.ctx, created.Ref); !errors.Is(err, retrysafe.ErrNotFound) {
			k.failf("Reserve of a key that the lost transaction held: got %v, want ErrNotFound", err)
		}
	},
}}

func needsReopen(h Harness) string {
	if h.Reopen == nil {
		return "the store does not survive a crash, or cannot be made to"
	}
	return ""
}
