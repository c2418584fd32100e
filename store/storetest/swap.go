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
		next := in(retrysafe.StateCompleted, first, later)
		next.ProviderRef, next.Retain = "ch_1", 48*time.Hour
		got := k.swap(next)
		k.same("returned and stored differ", k.load(first.Ref), got)
		want := next
		want.Revision, want.Deadline, want.UpdatedAt = got.Revision, got.Deadline, got.UpdatedAt
		k.same("stored", got, want)
		if got.ReadAt.IsZero() {
			k.failf("ReadAt is not set")
		}
	},
}, {
	name:   "swap of an absent key is not found",
	reason: "Swap of a key that is not there returns ErrNotFound and stores nothing, because a forgotten key must not come back by a late write.",
	check: func(k *kit) {
		r := k.record("k")
		for _, revision := range []int64{0, 1, time.Now().UnixMicro()} {
			r.Revision = revision
			_, err := k.Store.Swap(k.ctx, r)
			k.want("Swap", err, retrysafe.ErrNotFound)
			r.Claim = newOwner()
			_, err = k.Store.Swap(k.ctx, r)
			k.want("Swap with a Claim", err, retrysafe.ErrNotFound)
		}
		k.absent(r.Ref)
	},
}, {
	name:   "swap keeps what belongs to the attempt",
	reason: "Swap without a Claim keeps Operation, Fingerprint, KeyText, Request, Attempt and CreatedAt as stored, because a heartbeat or a sweeper that does not hold them must not erase them.",
	check: func(k *kit) {
		first := k.create(k.record("k"))
		bare := retrysafe.Record{
			Ref: first.Ref, Owner: first.Owner, Revision: first.Revision,
			State: retrysafe.StateUnknown, Version: first.Version, Retain: first.Retain, Reason: "lease lapsed", Term: later,
		}
		got := k.swap(bare)
		want := first
		want.State, want.Reason = bare.State, bare.Reason
		want.Revision, want.Deadline, want.UpdatedAt = got.Revision, got.Deadline, got.UpdatedAt
		k.same("after a bare Swap", got, want)

		other := k.record("other")
		other.Ref, other.Owner, other.Revision = first.Ref, first.Owner, got.Revision
		other.Operation, other.Attempt, other.CreatedAt, other.Reason = "POST /refunds", 9, time.Unix(1, 0), "again"
		other.State = retrysafe.StateUnknown
		got = k.swap(other)
		want.Reason, want.Revision, want.Deadline, want.UpdatedAt = "again", got.Revision, got.Deadline, got.UpdatedAt
		k.same("after a Swap with other values", got, want)
		k.same("stored after it", k.load(first.Ref), want)
	},
}, {
	name:   "zero checkpoint keeps the stored one",
	reason: "Swap with a zero Checkpoint keeps the stored one, and any other replaces it, because a heartbeat must neither rewrite nor lose how far the work has come.",
	check: func(k *kit) {
		one := retrysafe.Checkpoint{Phase: "authorised", Data: []byte("\x00\x01one")}
		two := retrysafe.Checkpoint{Phase: "captured"}
		r := k.record("k")
		r.Checkpoint = one
		rec := k.create(r)
		for _, step := range []struct{ swap, want retrysafe.Checkpoint }{{retrysafe.Checkpoint{}, one}, {two, two}, {retrysafe.Checkpoint{}, two}} {
			rec.Checkpoint, rec.Term = step.swap, later
			rec = k.swap(rec)
			for _, got := range []retrysafe.Checkpoint{rec.Checkpoint, k.load(r.Ref).Checkpoint} {
				if got.Phase != step.want.Phase || string(got.Data) != string(step.want.Data) {
					k.failf("after Swap with checkpoint %q: got %q, want %q", step.swap, got, step.want)
				}
			}
		}
	},
}, {
	name:   "zero result clears the stored one",
	reason: "Swap replaces the Result with what it is given, nothing included, because an expired answer is forgotten and a new attempt has none yet.",
	check: func(k *kit) {
		rec := k.swap(in(retrysafe.StateCompleted, k.create(k.record("k")), later))
		rec = k.swap(in(retrysafe.StateExpired, rec, later))
		if got := k.load(rec.Ref); rec.Result != nil || got.Result != nil {
			k.failf("the result is still there after a Swap without one")
		}
	},
}, {
	name:   "claim starts another attempt",
	reason: "Swap with a Claim replaces everything but the Ref and hands the record to the claimant, because the new attempt runs its own request; the former owner is out.",
	check: func(k *kit) {
		r := k.record("k")
		r.Checkpoint = retrysafe.Checkpoint{Phase: "old", Data: []byte("old")}
		first := k.create(r)
		k.until(first.Ref, first.CreatedAt.Add(2*tick))

		claim := k.record("k2")
		claim.Ref, claim.Owner, claim.Revision = first.Ref, first.Owner, first.Revision
		claim.Claim, claim.Attempt = newOwner(), 2
		claim.Operation, claim.Request, claim.ProviderRef, claim.Reason = "POST /refunds", []byte("two"), "ch_2", "resumed"
		claim.Lapse, claim.Effects, claim.Retain = retrysafe.LapseResume, retrysafe.EffectsKeyed, 3*time.Hour
		got := k.swap(claim)
		want := claim
		want.Owner, want.CreatedAt = claim.Claim, first.CreatedAt
		want.Revision, want.Deadline, want.UpdatedAt = got.Revision, got.Deadline, got.UpdatedAt
		k.same("after the claim", got, want)
		k.same("stored after the claim", k.load(first.Ref), want)

		late := in(retrysafe.StateCompleted, got, later)
		late.Owner = first.Owner
		_, err := k.Store.Swap(k.ctx, late)
		k.want("Swap by the former owner", err, retrysafe.ErrConflict)
		k.unchanged("Swap by the former owner", got)
		k.swap(in(retrysafe.StateCompleted, got, later))
	},
}, {
	name:   "first attempt starts a new generation",
	reason: "A Claim with Attempt 1 moves CreatedAt to now and a later attempt keeps it, because an expired key that runs again is a new operation with an age of its own.",
	check: func(k *kit) {
		first := k.create(k.record("k"))
		k.until(first.Ref, first.CreatedAt.Add(2*tick))
		again := first
		again.Claim, again.Attempt, again.Term = newOwner(), 1, later
		second := k.swap(again)
		if !second.CreatedAt.After(first.CreatedAt) || !second.CreatedAt.Equal(second.UpdatedAt) {
			k.failf("CreatedAt: got %v, want the time of the claim (%v); it was %v before", second.CreatedAt, second.UpdatedAt, first.CreatedAt)
		}
		k.same("stored", k.load(first.Ref), second)
	},
}, {
	name:   "one of many swaps wins",
	reason: "Of many Swaps at one revision at the same time exactly one wins and all others get its record with ErrConflict, because two attempts that both settle, or both take over, are two executions.",
	check: func(k *kit) {
		rec := k.create(k.record("k"))
		for round := range 4 {
			before := rec.Revision
			replies := race(crowd, func(i int) (retrysafe.Record, error) {
				r := rec
				r.Reason, r.Term = fmt.Sprintf("round %d, caller %d", round, i), later
				if round%2 == 1 {
					r.Claim, r.Attempt = newOwner(), round+1
				}
				return k.heard(func() (retrysafe.Record, error) { return k.node(i).Swap(k.ctx, r) })
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
