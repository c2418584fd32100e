package storetest

import (
	"errors"
	"fmt"

	"github.com/retrysafe/retrysafe"
)

// damageRules say what becomes of a record whose stored bytes cannot be read.
var damageRules = []rule{{
	name:   "damaged record is refused",
	reason: "Create, Load and Swap of a record that cannot be read return ErrUnreadable, because a key that seems to be free, or to hold something else, runs the operation again.",
	needs:  needsDamageable,
	check: func(k *kit) {
		for _, state := range []retrysafe.State{retrysafe.StateInProgress, retrysafe.StateCompleted} {
			w := in(state, k.record(state.String()), later)
			stale := k.create(w)
			rec := k.swap(beat(stale))
			beside := k.create(k.record("beside " + state.String()))
			k.damage(rec.Ref)
			for i := range 1 + len(k.Peers) {
				node := k.node(i)
				_, err := node.Load(k.ctx, rec.Ref)
				k.want("Load", err, retrysafe.ErrUnreadable)
				_, err = node.Create(k.ctx, k.record(rec.Key))
				k.want("Create", err, retrysafe.ErrUnreadable)
				_, err = node.Create(k.ctx, w)
				k.want("Create sent again", err, retrysafe.ErrUnreadable)
				_, err = node.Swap(k.ctx, beat(stale))
				k.want("Swap at an earlier revision", err, retrysafe.ErrUnreadable)
			}
			// The store may apply this Swap. It cannot return the record.
			_, err := k.Store.Swap(k.ctx, beat(rec))
			k.want("Swap at the revision of the record", err, retrysafe.ErrUnreadable)
			_, err = k.Store.Load(k.ctx, rec.Ref)
			k.want("Load after the Swap", err, retrysafe.ErrUnreadable)
			k.unchanged("damage of another record", beside)
			k.swap(to(retrysafe.StateCompleted, beside, later))
		}
	},
}, {
	name:   "damaged record is refused in a transaction",
	reason: "Reserve of a record that cannot be read returns ErrUnreadable, and a transaction that tried to write it cannot commit, because the business write in it may be a second one.",
	needs: func(h Harness) string {
		if lacks := needsDamageable(h); lacks != "" {
			return lacks
		}
		return needsTx(h)
	},
	check: func(k *kit) {
		stale := k.create(k.record("k"))
		rec := k.swap(beat(stale))
		beside := k.create(k.record("beside"))
		k.damage(rec.Ref)
		tx := k.begin()
		_, err := tx.Reserve(k.ctx, rec.Ref)
		k.want("Reserve", err, retrysafe.ErrUnreadable)
		k.want("Rollback", tx.Rollback(k.ctx), nil)

		for what, w := range map[string]retrysafe.Write{"earlier revision": beat(stale), "revision of the record": beat(rec)} {
			k.poisoned("Swap of a damaged record at the "+what, func(tx retrysafe.Tx) {
				_, err := tx.Swap(k.ctx, w)
				k.want("Swap at the "+what, err, retrysafe.ErrUnreadable)
			})
		}
		k.poisoned("Create of a key whose record is damaged", func(tx retrysafe.Tx) {
			if _, err := tx.Create(k.ctx, k.record(rec.Key)); err == nil || errors.Is(err, retrysafe.ErrNotFound) {
				k.failf("Create of a key whose record is damaged: got %v, want an error that refuses it", err)
			}
		})
		_, err = k.Store.Load(k.ctx, rec.Ref)
		k.want("Load after the transactions", err, retrysafe.ErrUnreadable)
		k.unchanged("damage of another record", beside)
	},
}, {
	name:   "damaged record is listed",
	reason: "List shows a record that cannot be read once, with Version 0, and goes on behind it, because an operator has to find it and it must not hide the others from a sweeper.",
	needs:  needsDamageable,
	check: func(k *kit) {
		const records = 24
		state := retrysafe.StateInProgress
		var last retrysafe.Record
		whole := make(map[retrysafe.Ref]bool)
		for i := range records {
			last = k.create(in(state, k.record(fmt.Sprintf("k%c", 'a'+i)), soon))
			whole[last.Ref] = true
		}
		k.untilDue(last)
		for i := range records / 3 {
			ref := retrysafe.Ref{Scope: last.Scope, Key: fmt.Sprintf("k%c", 'a'+3*i)}
			k.damage(ref)
			delete(whole, ref)
		}
		for _, q := range []retrysafe.Query{
			{}, {Limit: 1}, {Limit: 5}, {Due: true}, {Due: true, Limit: 4},
			{States: []retrysafe.State{state}, Limit: 4}, {States: []retrysafe.State{state}, Due: true},
		} {
			damaged, found := 0, 0
			for _, r := range k.page(q) {
				switch {
				case whole[r.Ref] && r.Version != 0:
					found++
				case !whole[r.Ref] && r.Version == 0:
					damaged++
				default:
					k.failf("List(%+v) returned %q with version %d", q, r.Ref, r.Version)
				}
			}
			if damaged != records/3 || found != len(whole) {
				k.failf("List(%+v) returned %d damaged records and %d others, want %d and %d", q, damaged, found, records/3, len(whole))
			}
		}
		// A damaged record may be left out here, because its scope is not known.
		found := 0
		for _, r := range k.page(retrysafe.Query{Scope: last.Scope, Limit: 5}) {
			if whole[r.Ref] {
				found++
			}
		}
		if found != len(whole) {
			k.failf("List of one scope returned %d of %d records that are not damaged", found, len(whole))
		}
	},
}, {
	name:   "purge goes on behind damaged records",
	reason: "Purge deletes what is due and final behind records that cannot be read, and none of those in flight, unknown or not due, because damage proves nothing about an operation.",
	needs:  needsDamageable,
	check: func(k *kit) {
		var damaged, kept []retrysafe.Record
		var gone retrysafe.Record
		live := k.create(k.record("live"))
		for _, state := range []retrysafe.State{retrysafe.StateAccepted, retrysafe.StateInProgress, retrysafe.StateUnknown} {
			kept = append(kept, k.create(in(state, k.record("kept "+state.String()), soon)))
		}
		for _, state := range []retrysafe.State{retrysafe.StateCompleted, retrysafe.StateRetryable, retrysafe.StateExpired} {
			kept = append(kept, k.create(in(state, k.record("kept "+state.String()), later)))
			damaged = append(damaged, k.create(in(state, k.record("damaged "+state.String()), soon)))
		}
		for i := range 5 {
			gone = k.create(in(retrysafe.StateCompleted, k.record(fmt.Sprintf("gone %d", i)), soon))
		}
		k.until(live.Ref, gone.Deadline)
		for _, r := range append(damaged, kept...) {
			k.damage(r.Ref)
		}
		deleted := 0
		for {
			n, err := k.Store.Purge(k.ctx, 2)
			k.want("Purge", err, nil)
			if deleted += n; n == 0 {
				break
			}
		}
		for _, r := range kept {
			_, err := k.Store.Load(k.ctx, r.Ref)
			k.want(fmt.Sprintf("Load of a damaged record in state %v, due %t, after Purge", r.State, !r.Deadline.After(gone.Deadline)), err, retrysafe.ErrUnreadable)
		}
		want := 5
		for _, r := range damaged {
			// A store that keeps state and deadline beside the bytes may know that it is due.
			_, err := k.Store.Load(k.ctx, r.Ref)
			if errors.Is(err, retrysafe.ErrNotFound) {
				want++
				continue
			}
			k.want("Load of a damaged record after Purge", err, retrysafe.ErrUnreadable)
		}
		for i := range 5 {
			k.absent(retrysafe.Ref{Scope: gone.Scope, Key: fmt.Sprintf("gone %d", i)})
		}
		if deleted != want {
			k.failf("Purge says that it deleted %d records, and %d are gone", deleted, want)
		}
	},
}}

// damage corrupts a stored record.
func (k *kit) damage(ref retrysafe.Ref) {
	k.t.Helper()
	if err := k.Damage(ref); err != nil {
		k.failf("Damage(%q): %v", ref, err)
	}
}

func needsDamageable(h Harness) string {
	if h.Damage == nil {
		return "no stored record can be damaged"
	}
	return ""
}
