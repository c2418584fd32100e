package storetest

import (
	"math"

	"github.com/retrysafe/retrysafe"
)

var fenceRules = []rule{{
	name:   "swap needs the revision",
	reason: "Swap that expects any revision but the stored one changes nothing and returns the stored record with ErrConflict, because the revision is the fence that safety rests on.",
	check: func(k *kit) {
		first := k.create(k.record("k"))
		second := k.swap(beat(first))
		for _, revision := range []int64{first.Revision, second.Revision - 1, second.Revision + 1, 0, 1, -1, math.MaxInt64} {
			if revision == second.Revision {
				continue
			}
			w := to(retrysafe.StateCompleted, second, later)
			w.Expect.Revision = revision
			got, err := k.Store.Swap(k.ctx, w)
			k.want("Swap at another revision", err, retrysafe.ErrConflict)
			k.same("the record returned with ErrConflict", got, second)
			k.unchanged("Swap at another revision", second)
		}
	},
}, {
	name:   "swap needs the owner",
	reason: "Swap that expects any owner but the stored one changes nothing and returns the stored record with ErrConflict, because a caller that guesses or reuses a revision must still not write for another attempt.",
	check: func(k *kit) {
		first := k.create(k.record("k"))
		for _, owner := range []retrysafe.Owner{newOwner(), {}} {
			w := to(retrysafe.StateCompleted, first, later)
			w.Expect.Owner = owner
			got, err := k.Store.Swap(k.ctx, w)
			k.want("Swap that expects another owner", err, retrysafe.ErrConflict)
			k.same("the record returned with ErrConflict", got, first)
			_, err = k.Store.Swap(k.ctx, claim(w, 2))
			k.want("claim by a caller that does not know the owner", err, retrysafe.ErrConflict)
			k.unchanged("Swap that expects another owner", first)
		}
	},
}, {
	name:   "refused swap returns the stored record",
	reason: "A Swap that loses gets the record as it is stored now, ReadAt included, because the loser decides by it what its client gets.",
	check: func(k *kit) {
		first := k.create(k.record("k"))
		done := k.swap(to(retrysafe.StateCompleted, first, later))
		got, err := k.Store.Swap(k.ctx, to(retrysafe.StateUnknown, first, later))
		k.want("late Swap", err, retrysafe.ErrConflict)
		k.same("the record returned with ErrConflict", got, done)
		if got.ReadAt.IsZero() {
			k.failf("ReadAt is not set with ErrConflict")
		}
	},
}, {
	name:   "revision grows",
	reason: "Each write raises the revision and a refused one does not, because a revision that stays or falls lets an older step win.",
	check: func(k *kit) {
		rec := k.create(k.record("k"))
		states := []retrysafe.State{retrysafe.StateInProgress, retrysafe.StateInProgress, retrysafe.StateUnknown, retrysafe.StateRetryable, retrysafe.StateInProgress, retrysafe.StateCompleted, retrysafe.StateExpired}
		for i, state := range states {
			next := to(state, rec, later)
			if i == 4 {
				next = claim(next, 2)
			}
			got := k.swap(next)
			if got.Revision <= rec.Revision {
				k.failf("revision after Swap to %v: got %d, want more than %d", state, got.Revision, rec.Revision)
			}
			if _, err := k.Store.Swap(k.ctx, next); err == nil {
				k.failf("the same Swap to %v won twice", state)
			}
			rec = got
			k.unchanged("a refused Swap", rec)
		}
	},
}, {
	name:   "revision does not repeat after a purge",
	reason: "A key that was purged and created again has a revision above all it ever had, because a late writer still holds the old ones.",
	check: func(k *kit) {
		last := int64(0)
		for range 3 {
			created := k.create(k.record("k"))
			if created.Revision <= last {
				k.failf("revision of the new record: got %d, want more than %d", created.Revision, last)
			}
			rec := created
			for range 5 {
				rec = k.swap(beat(rec))
			}
			rec = k.swap(to(retrysafe.StateCompleted, rec, soon))
			last = rec.Revision
			k.purgeOne(rec)
		}
	},
}, {
	name:   "zombie of a purged key loses",
	reason: "An owner from before a purge cannot write to the record created after it, at whatever revision, because its operation belongs to a key that was forgotten.",
	check: func(k *kit) {
		zombie := k.create(k.record("k"))
		k.purgeOne(k.swap(to(retrysafe.StateRetryable, zombie, soon)))
		second := k.create(k.record("k"))
		for _, revision := range []int64{zombie.Revision, zombie.Revision + 1, second.Revision, second.Revision + 1, 0, 1, 2} {
			late := to(retrysafe.StateCompleted, zombie, later)
			late.Expect.Revision = revision
			_, err := k.Store.Swap(k.ctx, late)
			k.want("Swap by the zombie", err, retrysafe.ErrConflict)
			_, err = k.Store.Swap(k.ctx, claim(late, 1))
			k.want("claim by the zombie", err, retrysafe.ErrConflict)
			k.unchanged("the zombie's Swap", second)
		}
		stale := to(retrysafe.StateCompleted, second, later)
		stale.Expect.Revision = zombie.Revision
		_, err := k.Store.Swap(k.ctx, stale)
		k.want("Swap by the new owner at the old revision", err, retrysafe.ErrConflict)
		k.swap(to(retrysafe.StateCompleted, second, later))
	},
}}

// purgeOne waits until the record is due and purges it; no other record is due.
func (k *kit) purgeOne(r retrysafe.Record) {
	k.t.Helper()
	k.untilDue(r)
	if n, err := k.Store.Purge(k.ctx, 10); n != 1 || err != nil {
		k.failf("Purge of one due record in state %v: got %d, %v", r.State, n, err)
	}
	k.absent(r.Ref)
}
