package storetest

import (
	"fmt"
	"time"

	"github.com/retrysafe/retrysafe"
)

var swapRules = []rule{{
	name:   "swap returns the record as stored",
	reason: "Swap stores the new state and returns the record as it is stored, because the next step compares with what was returned.",
	check: func(k *kit) {
		first := k.create(k.record("k"))
		next := to(retrysafe.StateCompleted, first, later)
		next.ProviderRef, next.Retain = "ch_1", 48*time.Hour
		got := k.swap(next)
		k.same("returned and stored differ", k.load(first.Ref), got)
		want := left(next, got)
		want.CreatedAt = first.CreatedAt
		k.same("stored", got, want)
		if got.ReadAt.IsZero() {
			k.failf("ReadAt is not set")
		}
	},
}, {
	name:   "swap of an absent key is not found",
	reason: "Swap of a key that is not there returns ErrNotFound and stores nothing, because a forgotten key must not come back by a late write.",
	check: func(k *kit) {
		w := k.record("k")
		for _, expect := range []retrysafe.Fence{{}, {Owner: w.Owner}, {Revision: 1, Owner: w.Owner}, {Revision: time.Now().UnixMicro(), Owner: w.Owner}} {
			w.Expect = expect
			_, err := k.Store.Swap(k.ctx, w)
			k.want("Swap", err, retrysafe.ErrNotFound)
			_, err = k.Store.Swap(k.ctx, claim(w, 1))
			k.want("Swap that overwrites", err, retrysafe.ErrNotFound)
		}
		k.absent(w.Ref)
	},
}, {
	name:   "swap keeps what belongs to the attempt",
	reason: "Swap without Overwrite keeps Operation, Fingerprint, KeyText, Request, Attempt and CreatedAt as stored, because a heartbeat or a sweeper that does not hold them must not erase them.",
	check: func(k *kit) {
		first := k.create(k.record("k"))
		bare := retrysafe.Write{Record: retrysafe.Record{
			Ref: first.Ref, Owner: first.Owner, State: retrysafe.StateUnknown, Version: first.Version, Retain: first.Retain, Reason: "lease lapsed",
			Lapse: first.Lapse, Effects: first.Effects,
		}, Expect: first.Fence(), Term: later}
		got := k.swap(bare)
		want := first
		want.State, want.Reason = bare.State, bare.Reason
		want.Revision, want.Deadline, want.UpdatedAt = got.Revision, got.Deadline, got.UpdatedAt
		k.same("after a bare Swap", got, want)

		other := k.record("other")
		other.Ref, other.Owner, other.Expect = first.Ref, first.Owner, got.Fence()
		other.Operation, other.Attempt, other.CreatedAt, other.Reason = "POST /refunds", 9, time.Unix(1, 0), "again"
		other.State = retrysafe.StateUnknown
		got = k.swap(other)
		want.Reason, want.Revision, want.Deadline, want.UpdatedAt = "again", got.Revision, got.Deadline, got.UpdatedAt
		k.same("after a Swap with other values", got, want)
		k.same("stored after it", k.load(first.Ref), want)
	},
}, {
	name:   "heartbeat keeps the stored checkpoint",
	reason: "Swap without SetCheckpoint, as of a heartbeat, keeps the stored Checkpoint, and one with it replaces it, because a heartbeat must neither rewrite nor lose how far the work has come.",
	check: func(k *kit) {
		one := retrysafe.Checkpoint{Phase: "authorised", Data: []byte("\x00\x01one")}
		two := retrysafe.Checkpoint{Phase: "captured"}
		r := k.record("k")
		r.Checkpoint = one
		rec := k.create(r)
		for _, step := range []struct{ swap, want retrysafe.Checkpoint }{{retrysafe.Checkpoint{}, one}, {two, two}, {retrysafe.Checkpoint{}, two}} {
			rec = k.checkpoint(rec, step.swap, !step.swap.IsZero(), step.want)
		}
	},
}, {
	name:   "zero result clears the stored one",
	reason: "Swap replaces the Result with what it is given, nothing included, because an expired answer is forgotten and a new attempt has none yet.",
	check: func(k *kit) {
		rec := k.swap(to(retrysafe.StateCompleted, k.create(k.record("k")), later))
		rec = k.swap(to(retrysafe.StateExpired, rec, later))
		if got := k.load(rec.Ref); rec.Result != nil || got.Result != nil {
			k.failf("the result is still there after a Swap without one")
		}
	},
}, {
	name:   "claim starts another attempt",
	reason: "Swap with Overwrite replaces everything but the Ref and hands the record to the owner that it brings, because the new attempt runs its own request, and the former owner must not write any more.",
	check: func(k *kit) {
		r := k.record("k")
		r.Checkpoint = retrysafe.Checkpoint{Phase: "old", Data: []byte("old")}
		first := k.create(r)
		k.until(first.Ref, first.CreatedAt.Add(2*tick))

		next := claim(k.record("k2"), 2)
		next.Ref, next.Expect = first.Ref, first.Fence()
		next.Operation, next.Request, next.ProviderRef, next.Reason = "POST /refunds", []byte("two"), "ch_2", "resumed"
		next.Lapse, next.Effects, next.Retain = retrysafe.LapseResume, retrysafe.EffectsKeyed, 3*time.Hour
		got := k.swap(next)
		want := left(next, got)
		want.CreatedAt = first.CreatedAt
		k.same("after the claim", got, want)
		k.same("stored after the claim", k.load(first.Ref), want)

		late := to(retrysafe.StateCompleted, got, later)
		late.Expect.Owner = first.Owner
		_, err := k.Store.Swap(k.ctx, late)
		k.want("Swap by the former owner", err, retrysafe.ErrConflict)
		k.unchanged("Swap by the former owner", got)
		k.swap(to(retrysafe.StateCompleted, got, later))
	},
}, {
	name:   "first attempt starts a new generation",
	reason: "Overwrite with Attempt 1 moves CreatedAt to now and a later attempt keeps it, because an expired key that runs again is a new operation with an age of its own.",
	check: func(k *kit) {
		first := k.create(k.record("k"))
		k.until(first.Ref, first.CreatedAt.Add(2*tick))
		second := k.swap(claim(beat(first), 1))
		if !second.CreatedAt.After(first.CreatedAt) || !second.CreatedAt.Equal(second.UpdatedAt) {
			k.failf("CreatedAt: got %v, want the time of the claim (%v); it was %v before", second.CreatedAt, second.UpdatedAt, first.CreatedAt)
		}
		k.same("stored", k.load(first.Ref), second)
	},
}, {
	name:   "one of many wins beside steps of others",
	reason: "Of many Creates, or Swaps, of one key exactly one wins also while other keys keep the store busy, because steps that wait for others then come together, and the second of a key has to meet what the first has done.",
	check: func(k *kit) {
		var others [crowd / 2]retrysafe.Record
		for i := 1; i < len(others); i += 2 {
			others[i] = k.create(k.record(fmt.Sprint("other ", i)))
		}
		for round := range 8 {
			rec := k.create(k.record(fmt.Sprint("swapped ", round)))
			replies := race(crowd, func(i int) (retrysafe.Record, error) {
				var w retrysafe.Write
				switch {
				case i < len(others) && i%2 == 1:
					w = beat(others[i])
				case i < len(others):
					w = k.record(fmt.Sprint("other ", round, " ", i))
				case i%2 == 1:
					w = beat(rec)
					w.Reason = fmt.Sprint("caller ", i)
				default:
					w = k.record(fmt.Sprint("created ", round))
				}
				return k.retryBusy(func() (retrysafe.Record, error) {
					if i%2 == 1 {
						return k.Store.Swap(k.ctx, w)
					}
					return k.Store.Create(k.ctx, w)
				})
			})
			var swaps, creates []reply
			for i, r := range replies {
				switch {
				case i < len(others):
					k.want("step of another key", r.err, nil)
					others[i] = r.rec
				case i%2 == 1:
					swaps = append(swaps, r)
				default:
					creates = append(creates, r)
				}
			}
			k.winner(swaps, retrysafe.ErrConflict)
			k.winner(creates, retrysafe.ErrExists)
		}
	},
}, {
	name:   "one of many swaps wins",
	reason: "Of many Swaps at one revision at the same time exactly one wins and all others get its record with ErrConflict, because two attempts that both settle, or both take over, are two executions.",
	check: func(k *kit) {
		rec := k.create(k.record("k"))
		for round := range 4 {
			before := rec.Revision
			replies := race(crowd, func(i int) (retrysafe.Record, error) {
				w := beat(rec)
				w.Reason = fmt.Sprintf("round %d, caller %d", round, i)
				if round%2 == 1 {
					w = claim(w, round+1)
				}
				return k.retryBusy(func() (retrysafe.Record, error) { return k.node(i).Swap(k.ctx, w) })
			})
			rec = replies[k.winner(replies, retrysafe.ErrConflict)].rec
			if rec.Revision <= before {
				k.failf("revision: got %d, want more than %d", rec.Revision, before)
			}
			for _, r := range replies {
				k.same("a loser saw another record than the winner's", r.rec, rec)
			}
			k.same("stored", k.load(rec.Ref), rec)
		}
	},
}}

// checkpoint swaps rec with a checkpoint, and checks which one is stored then.
func (k *kit) checkpoint(rec retrysafe.Record, given retrysafe.Checkpoint, set bool, want retrysafe.Checkpoint) retrysafe.Record {
	k.t.Helper()
	w := beat(rec)
	w.Checkpoint, w.SetCheckpoint = given, set
	rec = k.swap(w)
	for _, got := range []retrysafe.Checkpoint{rec.Checkpoint, k.load(rec.Ref).Checkpoint} {
		if got.Phase != want.Phase || string(got.Data) != string(want.Data) {
			k.failf("after Swap with checkpoint %q, set %t: got %q, want %q", given, set, got, want)
		}
	}
	return rec
}
