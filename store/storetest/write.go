package storetest

import (
	"math"
	"time"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/store/storekit"
)

// writeRules say which parts of a [retrysafe.Write] count, and when.
var writeRules = []rule{{
	name:   "checkpoint that is not set is not stored",
	reason: "Swap without SetCheckpoint keeps the stored Checkpoint, whatever checkpoint the write holds, because only a finished phase moves how far the work has come.",
	check: func(k *kit) {
		one, other := retrysafe.Checkpoint{Phase: "authorised", Data: []byte("one")}, retrysafe.Checkpoint{Phase: "captured", Data: []byte("other")}
		bare := k.create(k.record("bare"))
		k.checkpoint(bare, other, false, retrysafe.Checkpoint{})
		w := k.record("k")
		w.Checkpoint = one
		rec := k.create(w)
		for _, given := range []retrysafe.Checkpoint{other, {Phase: "captured"}, {Data: []byte("other")}, {Phase: one.Phase}} {
			rec = k.checkpoint(rec, given, false, one)
		}
		settled := to(retrysafe.StateUnknown, rec, later)
		settled.Checkpoint = other
		if got := k.swap(settled).Checkpoint; got.Phase != one.Phase || string(got.Data) != string(one.Data) {
			k.failf("after a settlement that does not set its checkpoint: got %q, want %q", got, one)
		}
	},
}, {
	name:   "zero checkpoint that is set clears the stored one",
	reason: "Swap with SetCheckpoint stores the Checkpoint that it is given, a zero one included, because SetCheckpoint alone says whether a checkpoint counts.",
	check: func(k *kit) {
		one := retrysafe.Checkpoint{Phase: "authorised", Data: []byte("one")}
		w := k.record("k")
		w.Checkpoint = one
		rec := k.create(w)
		for _, given := range []retrysafe.Checkpoint{{}, one, {Phase: "captured"}, {Data: []byte("only data")}, {}} {
			rec = k.checkpoint(rec, given, true, given)
		}
		k.checkpoint(rec, retrysafe.Checkpoint{}, false, retrysafe.Checkpoint{})
	},
}, {
	name:   "overwrite takes the checkpoint it is given",
	reason: "Swap with Overwrite stores the Checkpoint that it is given, with SetCheckpoint and without, because the new attempt says where it goes on from.",
	check: func(k *kit) {
		one, two := retrysafe.Checkpoint{Phase: "authorised", Data: []byte("one")}, retrysafe.Checkpoint{Phase: "captured", Data: []byte("two")}
		w := k.record("k")
		w.Checkpoint = one
		rec := k.create(w)
		for i, given := range []retrysafe.Checkpoint{two, {}, one, one, {}} {
			next := claim(beat(rec), i+2)
			next.Checkpoint, next.SetCheckpoint = given, i%2 == 1
			rec = k.swap(next)
			for _, got := range []retrysafe.Checkpoint{rec.Checkpoint, k.load(rec.Ref).Checkpoint} {
				if got.Phase != given.Phase || string(got.Data) != string(given.Data) {
					k.failf("after an overwrite with checkpoint %q, set %t: got %q", given, next.SetCheckpoint, got)
				}
			}
		}
	},
}, {
	name:   "swap keeps the owner",
	reason: "Swap without Overwrite keeps the stored owner, whatever owner the write holds, because a sweeper settles for an attempt whose late owner must still recognise it.",
	check: func(k *kit) {
		rec := k.create(k.record("k"))
		for _, owner := range []retrysafe.Owner{newOwner(), {}, rec.Owner} {
			w := to(retrysafe.StateUnknown, rec, later)
			w.Owner = owner
			got := k.swap(w)
			want := left(w, got)
			want.Owner, want.CreatedAt = rec.Owner, rec.CreatedAt
			k.same("returned", got, want)
			k.same("stored", k.load(rec.Ref), want)

			late := to(retrysafe.StateCompleted, got, later)
			if late.Expect.Owner = owner; owner != rec.Owner {
				_, err := k.Store.Swap(k.ctx, late)
				k.want("Swap that expects the owner of the write before", err, retrysafe.ErrConflict)
			}
			rec = got
		}
		k.swap(to(retrysafe.StateCompleted, rec, later))
	},
}, {
	name:   "swap compares only what it expects",
	reason: "Swap compares the stored revision and owner with Expect and ignores the revision and the times in the record that it is given, because those are the store's to set.",
	check: func(k *kit) {
		rec := k.create(k.record("k"))
		long := time.Date(1999, 1, 1, 0, 0, 0, 0, time.UTC)
		for i, revision := range []int64{0, -1, 1, rec.Revision + 1, math.MaxInt64 / 2, math.MaxInt64} {
			for _, at := range []time.Time{{}, long, long.AddDate(200, 0, 0)} {
				w := beat(rec)
				w.Revision, w.Deadline, w.CreatedAt, w.UpdatedAt, w.ReadAt = revision, at, at, at, at
				if i%2 == 1 {
					w = claim(w, 2)
				}
				got := k.swap(w)
				if got.Revision <= rec.Revision || revision > math.MaxInt64/4 && got.Revision >= revision {
					k.failf("Swap of a record with revision %d at revision %d stored revision %d", revision, rec.Revision, got.Revision)
				}
				if got.UpdatedAt.Before(rec.UpdatedAt) || got.UpdatedAt.Equal(at) || got.ReadAt.Equal(at) || got.ReadAt.IsZero() {
					k.failf("Swap of a record with all times %v: got UpdatedAt %v and ReadAt %v; it was updated at %v before", at, got.UpdatedAt, got.ReadAt, rec.UpdatedAt)
				}
				k.lasts("swapped", got, later)
				want := left(w, got)
				want.CreatedAt = rec.CreatedAt
				k.same("returned", got, want)
				k.same("stored", k.load(rec.Ref), want)
				rec = got
			}
		}
		w := beat(rec)
		w.Expect.Revision--
		_, err := k.Store.Swap(k.ctx, w)
		k.want("Swap of the stored record that expects another revision", err, retrysafe.ErrConflict)
		w = beat(rec)
		w.Expect.Owner = newOwner()
		_, err = k.Store.Swap(k.ctx, w)
		k.want("Swap of the stored record that expects another owner", err, retrysafe.ErrConflict)
		k.unchanged("a refused Swap", rec)
	},
}, {
	name:   "overwrite by the same owner replaces the request",
	reason: "Swap with Overwrite replaces everything but the Ref also when the owner stays the same, because Overwrite alone says that an attempt starts.",
	check: func(k *kit) {
		w := k.record("k")
		w.Checkpoint = retrysafe.Checkpoint{Phase: "old", Data: []byte("old")}
		first := k.create(w)
		next := k.record("k2")
		next.Ref, next.Owner, next.Expect, next.Overwrite, next.Attempt = first.Ref, first.Owner, first.Fence(), true, 2
		next.Operation, next.Request = "POST /refunds", []byte("two")
		got := k.swap(next)
		want := left(next, got)
		want.CreatedAt = first.CreatedAt
		k.same("after the overwrite", got, want)
		k.same("stored after the overwrite", k.load(first.Ref), want)
		k.swap(to(retrysafe.StateCompleted, got, later))
	},
}}

// txWriteRules test a transaction against the same rules.
var txWriteRules = []rule{{
	name:   "transaction writes by the same rules",
	reason: "Swap means in a transaction what it means outside of one, in what it compares, keeps and replaces, because the same step is taken both ways.",
	needs:  needsTx,
	check: func(k *kit) {
		one, other := retrysafe.Checkpoint{Phase: "authorised", Data: []byte("one")}, retrysafe.Checkpoint{Phase: "captured", Data: []byte("other")}
		changes := map[string]func(*retrysafe.Write){
			"heartbeat":                        func(*retrysafe.Write) {},
			"zero checkpoint, not set":         func(w *retrysafe.Write) { w.Checkpoint = retrysafe.Checkpoint{} },
			"another checkpoint, not set":      func(w *retrysafe.Write) { w.Checkpoint = other },
			"another checkpoint, set":          func(w *retrysafe.Write) { w.Checkpoint, w.SetCheckpoint = other, true },
			"zero checkpoint, set":             func(w *retrysafe.Write) { w.Checkpoint, w.SetCheckpoint = retrysafe.Checkpoint{}, true },
			"another owner":                    func(w *retrysafe.Write) { w.Owner = newOwner() },
			"another revision and other times": func(w *retrysafe.Write) { w.Revision, w.CreatedAt, w.Deadline = 1, time.Unix(1, 0), time.Unix(1, 0) },
			"what belongs to the attempt":      func(w *retrysafe.Write) { w.Operation, w.Request, w.KeyText, w.Attempt = "other", nil, nil, 9 },
			"overwrite":                        func(w *retrysafe.Write) { *w = claim(*w, 2); w.Request, w.Checkpoint = []byte("two"), other },
			"overwrite by the same owner":      func(w *retrysafe.Write) { w.Overwrite, w.Attempt, w.Request = true, 2, []byte("two") },
			"overwrite with a zero checkpoint": func(w *retrysafe.Write) { *w = claim(*w, 1); w.Checkpoint = retrysafe.Checkpoint{} },
		}
		stored := make(map[string]retrysafe.Record)
		for what := range changes {
			w := k.record(what)
			w.Checkpoint = one
			stored[what] = k.create(w)
		}
		tx := k.begin()
		for what, change := range changes {
			rec := stored[what]
			w := to(retrysafe.StateCompleted, rec, later)
			change(&w)
			got, err := tx.Swap(k.ctx, w)
			k.want(what+": Swap in the transaction", err, nil)
			want := storekit.Apply(&rec, &w, got.UpdatedAt)
			want.Revision, want.Deadline, want.UpdatedAt = got.Revision, got.Deadline, got.UpdatedAt
			if got.Revision <= rec.Revision {
				k.failf("%s: revision: got %d, want more than %d", what, got.Revision, rec.Revision)
			}
			k.lasts(what, got, later)
			k.same(what, got, want)
			stored[what] = want
		}
		k.want("Commit", tx.Commit(k.ctx), nil)
		for what, want := range stored {
			k.same(what+", after commit", k.load(want.Ref), want)
		}
	},
}}
