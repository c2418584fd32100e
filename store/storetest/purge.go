package storetest

import (
	"errors"
	"fmt"

	"github.com/retrysafe/retrysafe"
)

var purgeRules = []rule{{
	name:   "purge takes only what is due and final",
	reason: "Purge deletes due records in Completed, Retryable or Expired and never one that is in flight, accepted or unknown, because a forgotten key runs again.",
	check: func(k *kit) {
		var due, rest, last retrysafe.Record
		var gone, kept []retrysafe.Record
		for state := retrysafe.StateAccepted; state <= retrysafe.StateExpired; state++ {
			due = k.create(in(state, k.record("due "+state.String()), soon))
			rest = k.create(in(state, k.record("kept "+state.String()), later))
			if last = due; state.Forgettable() {
				gone = append(gone, due)
			} else {
				kept = append(kept, due)
			}
			kept = append(kept, rest)
		}
		// The last one is due last, and Purge may delete it, so time is read from a
		// record that stays.
		k.until(rest.Ref, last.Deadline)
		n, err := k.Store.Purge(k.ctx, 1000)
		for _, r := range kept {
			if _, err := k.Store.Load(k.ctx, r.Ref); errors.Is(err, retrysafe.ErrNotFound) {
				k.failf("Purge deleted a record in state %v, due %t", r.State, r.Key[:3] == "due")
			}
		}
		for _, r := range gone {
			k.absent(r.Ref)
		}
		if n != len(gone) || err != nil {
			k.failf("Purge: got %d, %v; it deleted %d", n, err, len(gone))
		}
		for _, r := range kept {
			k.unchanged("Purge", r)
		}
	},
}, {
	name:   "purge respects its limit",
	reason: "Purge deletes as many due records as there are up to its limit and reports how many, because the reaper goes in small steps and must know when it is done.",
	check: func(k *kit) {
		var last retrysafe.Record
		for i := range 7 {
			last = k.create(in(retrysafe.StateCompleted, k.record(fmt.Sprintf("k%d", i)), soon))
		}
		k.untilDue(last)
		for _, left := range []int{7, 4, 1, 0} {
			n, err := k.Store.Purge(k.ctx, 3)
			if want := min(3, left); n != want || err != nil {
				k.failf("Purge with limit 3 and %d records due: got %d, %v, want %d", left, n, err, want)
			}
			if got, want := len(k.page(retrysafe.Query{})), left-n; got != want {
				k.failf("after Purge: got %d records, want %d", got, want)
			}
		}
	},
}, {
	name:   "retention counts from the swap",
	reason: "An attempt that ran longer than its answer is kept is not purged before or right after it settles, because its retention begins when the answer is stored.",
	check: func(k *kit) {
		r := k.record("k")
		r.Term, r.Retain = soon, soon
		rec := k.create(r)
		k.until(rec.Ref, rec.Deadline.Add(2*tick))
		if n, err := k.Store.Purge(k.ctx, 10); n != 0 || err != nil {
			k.failf("Purge of a lapsed attempt in flight: got %d, %v", n, err)
		}
		rec = k.swap(to(retrysafe.StateCompleted, rec, later))
		if n, err := k.Store.Purge(k.ctx, 10); n != 0 || err != nil {
			k.failf("Purge of an answer that was just stored: got %d, %v", n, err)
		}
		k.unchanged("Purge", rec)
	},
}, {
	name:   "purge and claim never both win",
	reason: "A due record that is claimed while a purge runs is either gone or claimed, never claimed and then deleted, because the claimant runs the operation under a key that must exist.",
	check: func(k *kit) {
		const keys = 40
		var records []retrysafe.Record
		for i := range keys {
			records = append(records, k.create(in(retrysafe.StateRetryable, k.record(fmt.Sprintf("k%d", i)), soon)))
		}
		k.untilDue(records[keys-1])
		purged := make([]int, 4)
		replies := race(keys+len(purged), func(i int) (retrysafe.Record, error) {
			if i >= keys {
				n, err := k.node(i).Purge(k.ctx, keys)
				purged[i-keys] = n
				return retrysafe.Record{}, err
			}
			w := claim(to(retrysafe.StateInProgress, records[i], later), 2)
			return k.retryBusy(func() (retrysafe.Record, error) { return k.node(i).Swap(k.ctx, w) })
		})
		gone := 0
		for i, r := range replies[:keys] {
			switch {
			case r.err == nil:
				k.same("a claimed record", k.load(records[i].Ref), r.rec)
			case errors.Is(r.err, retrysafe.ErrNotFound):
				gone++
				k.absent(records[i].Ref)
			default:
				k.failf("claim of a record that is being purged: got %v, want nil or ErrNotFound", r.err)
			}
		}
		sum := 0
		for i, n := range purged {
			k.want("Purge", replies[keys+i].err, nil)
			sum += n
		}
		if sum != gone {
			k.failf("purges say that they deleted %d records, and %d are gone", sum, gone)
		}
	},
}}
