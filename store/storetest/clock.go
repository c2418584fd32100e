package storetest

import (
	"strings"
	"time"

	"github.com/retrysafe/retrysafe"
)

var clockRules = []rule{{
	name:   "deadline counts from the step",
	reason: "Each write sets Deadline to the store's time of that write plus Term, because a heartbeat must extend the lease and an answer is kept from the moment it was stored.",
	check: func(k *kit) {
		rec := k.create(k.record("k"))
		for _, term := range []time.Duration{later, 3 * later, soon, 2 * later} {
			at := rec.UpdatedAt.Add(5 * tick)
			k.until(rec.Ref, at)
			w := rec.Update()
			w.Term = term
			rec = k.swap(w)
			if rec.UpdatedAt.Before(at.Add(-tick)) {
				k.failf("UpdatedAt: got %v, want the time of the Swap, %v or later", rec.UpdatedAt, at)
			}
			k.lasts("swapped", rec, term)
			k.same("stored", k.load(rec.Ref), rec)
		}
	},
}, {
	name:   "ordinary terms hold",
	reason: "An attempt under a lease of 30 s that is settled for as long as its answer is to be kept has each deadline in turn and all that its settlement brought, because that is what nearly every operation does, and a store may have a fast path for it.",
	check: func(k *kit) {
		for _, state := range []retrysafe.State{retrysafe.StateCompleted, retrysafe.StateRetryable, retrysafe.StateUnknown} {
			bare := k.record("bare " + state.String())
			bare.KeyText, bare.Request = nil, nil
			k.ordinary(bare, state, retrysafe.Record{})
			k.ordinary(k.record("noted "+state.String()), state, retrysafe.Record{
				Checkpoint: retrysafe.Checkpoint{Phase: "charged", Data: []byte("ch_1")}, ProviderRef: "ch_1", Reason: "settled",
				Inquiry: retrysafe.Inquiry{Tries: 1, Notes: []retrysafe.Note{{By: "somebody", State: state, Text: "settled"}}},
			})
		}
	},
}, {
	name:   "times are the store's",
	reason: "Every time in a record follows the store's clock and never the node's, because nodes disagree, and one whose clock is fast would take live owners for dead.",
	needs:  needsAdvance,
	check: func(k *kit) {
		first := k.create(k.record("k"))
		k.Advance(48 * time.Hour)
		second := k.create(k.record("k2"))
		w := first.Update()
		w.Term = soon
		renewed := k.swap(w)
		for _, got := range []time.Time{second.CreatedAt, second.ReadAt, renewed.UpdatedAt, renewed.ReadAt, k.load(first.Ref).ReadAt, second.Deadline.Add(-later), renewed.Deadline.Add(-soon)} {
			if got.Before(first.CreatedAt.Add(48*time.Hour - tick)) {
				k.failf("the clock went 48 h on from %v, and the store says %v", first.CreatedAt, got)
			}
		}
		if !renewed.CreatedAt.Equal(first.CreatedAt) {
			k.failf("CreatedAt moved from %v to %v", first.CreatedAt, renewed.CreatedAt)
		}
	},
}, {
	name:   "due comes with the clock",
	reason: "A record is not due before its deadline and is due from then on, because a lease that lapses early sets a live attempt aside and one that never lapses blocks its key.",
	check: func(k *kit) {
		r := k.record("k")
		r.Term = soon
		rec := k.create(r)
		if rec.Due() && rec.ReadAt.Before(rec.CreatedAt.Add(soon-tick)) {
			k.failf("due at %v, created at %v with a term of %v", rec.ReadAt, rec.CreatedAt, soon)
		}
		k.untilDue(rec)
		if got := k.load(rec.Ref); !got.Due() {
			k.failf("not due at %v, its deadline is %v", got.ReadAt, got.Deadline)
		}
		k.unchanged("time alone", rec)
	},
}, {
	name:   "read time never goes back",
	reason: "ReadAt of a key never goes back, by any handle and any method, because what was due when it was read is acted upon later without a clock.",
	check: func(k *kit) {
		var last time.Time
		see := func(step string, at time.Time) {
			if at.Before(last) {
				k.failf("ReadAt of %s is %v, %v before the step before it", step, at, last.Sub(at))
			}
			last = at
		}
		r := k.record("k")
		rec := k.create(r)
		see("Create", rec.ReadAt)
		for i := range 30 {
			node := k.node(i)
			next, err := node.Swap(k.ctx, beat(rec))
			k.want("Swap", err, nil)
			rec = next
			see("Swap", rec.ReadAt)
			got, err := node.Load(k.ctx, r.Ref)
			k.want("Load", err, nil)
			see("Load", got.ReadAt)
			got, err = node.Create(k.ctx, k.record("k"))
			k.want("Create", err, retrysafe.ErrExists)
			see("a refused Create", got.ReadAt)
			listed, err := node.List(k.ctx, retrysafe.Query{})
			if err != nil || len(listed) != 1 {
				k.failf("List: got %d records and %v, want 1", len(listed), err)
			}
			see("List", listed[0].ReadAt)
		}
	},
}, {
	name:   "clock that is set back repeats no revision",
	reason: "While the store's clock is behind its records, each write has a higher revision than the write before it and no earlier time, also if the key was purged in between, because an owner of long ago would pass a fence that comes again.",
	needs:  needsSetBack,
	check: func(k *kit) {
		keys := []string{"renewed", "noted", "claimed", "begun anew", "in a transaction", "purged", "purged in a transaction"}
		for _, key := range keys {
			k.create(k.record(key))
		}
		k.SetBack(later)
		low := map[string]retrysafe.Record{} // behind all others
		for _, key := range keys[5:] {
			low[key] = k.create(k.record("behind " + key))
		}
		purge := func(key string) retrysafe.Record {
			k.t.Helper()
			gone := k.swap(to(retrysafe.StateCompleted, k.load(k.record(key).Ref), -2*later))
			if _, err := k.Store.Purge(k.ctx, 10); err != nil {
				k.failf("Purge: %v", err)
			}
			return gone
		}
		for _, key := range keys[:5] {
			for range 2 {
				was := k.load(k.record(key).Ref)
				w := beat(was)
				switch key {
				case "noted":
					w.SetCheckpoint, w.Checkpoint = true, retrysafe.Checkpoint{Phase: "charged"}
				case "claimed":
					w = claim(w, 2)
				case "begun anew":
					w = claim(w, 1)
				}
				k.after("Swap", was, k.swapBy(key, w))
			}
		}
		for _, key := range keys[5:] {
			gone := purge(key)
			purge(low[key].Key) // its revision is the clock's
			if _, err := k.Store.Load(k.ctx, gone.Ref); err == nil {
				continue // a store may keep a record until its clock has passed it
			}
			k.after("Create", gone, k.createBy(key, k.record(key)))
		}
	},
}}

// swapBy swaps, in a transaction if the key says so and the store has them.
func (k *kit) swapBy(key string, w retrysafe.Write) (got retrysafe.Record) {
	k.t.Helper()
	if k.Begin == nil || !strings.HasSuffix(key, "in a transaction") {
		return k.swap(w)
	}
	k.inTx(func(tx retrysafe.Tx) (err error) { got, err = tx.Swap(k.ctx, w); return err })
	return got
}

// createBy creates, in a transaction if the key says so and the store has them.
func (k *kit) createBy(key string, w retrysafe.Write) (got retrysafe.Record) {
	k.t.Helper()
	if k.Begin == nil || !strings.HasSuffix(key, "in a transaction") {
		return k.create(w)
	}
	k.inTx(func(tx retrysafe.Tx) (err error) { got, err = tx.Create(k.ctx, w); return err })
	return got
}

// inTx commits a transaction with one step.
func (k *kit) inTx(step func(retrysafe.Tx) error) {
	k.t.Helper()
	tx := k.begin()
	k.want("step in a transaction", step(tx), nil)
	k.want("Commit", tx.Commit(k.ctx), nil)
}

// after checks that a record was written after another one of the same key, whatever the
// clock says, and that it is stored as it was returned.
func (k *kit) after(step string, was, got retrysafe.Record) {
	k.t.Helper()
	if got.Revision <= was.Revision {
		k.failf("%s of %q: revision %d after %d", step, was.Key, got.Revision, was.Revision)
	}
	if step == "Swap" && (got.UpdatedAt.Before(was.UpdatedAt) || got.ReadAt.Before(was.UpdatedAt)) {
		k.failf("%s of %q: updated at %v, read at %v, after %v", step, was.Key, got.UpdatedAt, got.ReadAt, was.UpdatedAt)
	}
	k.lasts(step+" of "+was.Key, got, later)
	k.same("stored by "+step+" of "+was.Key, k.load(was.Ref), got)
}

// ordinary performs an operation with ordinary terms: w reserves the key, the lease is
// renewed, and the attempt is settled in state, with the fields of brings.
func (k *kit) ordinary(w retrysafe.Write, state retrysafe.State, brings retrysafe.Record) {
	k.t.Helper()
	const lease, retain = 30 * time.Second, 24 * time.Hour
	w.Lapse, w.Effects, w.Term, w.Retain = retrysafe.LapseResume, retrysafe.EffectsKeyed, lease, retain
	rec := k.create(w)
	k.lasts("reserved", rec, lease)
	k.until(rec.Ref, rec.UpdatedAt.Add(5*tick))
	renewal := rec.Update()
	renewal.Checkpoint, renewal.SetCheckpoint, renewal.Term = brings.Checkpoint, !brings.Checkpoint.IsZero(), lease
	rec = k.swap(renewal)
	k.lasts("renewed", rec, lease)
	k.until(rec.Ref, rec.UpdatedAt.Add(5*tick))

	term := retain
	if state == retrysafe.StateUnknown {
		term = lease
	}
	next := to(state, rec, term)
	next.Checkpoint = retrysafe.Checkpoint{}
	next.ProviderRef, next.Reason, next.Inquiry = brings.ProviderRef, brings.Reason, brings.Inquiry
	got := k.swap(next)
	k.lasts("settled", got, term)
	want := left(next, got)
	want.Checkpoint, want.CreatedAt = brings.Checkpoint, rec.CreatedAt
	k.same("settled", got, want)
	k.everywhere(want)
	if n, err := k.Store.Purge(k.ctx, 10); n != 0 || err != nil {
		k.failf("Purge right after the settlement: got %d, %v", n, err)
	}
	k.lists(retrysafe.Query{Due: true})
}

// lasts checks that a record's deadline is its last write plus term.
func (k *kit) lasts(what string, r retrysafe.Record, term time.Duration) {
	k.t.Helper()
	if k.ordinaryTerms && term == later {
		term = ordinaryTerm(r.State, r.Retain)
	}
	if d := r.Deadline.Sub(r.UpdatedAt) - term; d.Abs() > tick {
		k.failf("%s: Deadline is %v away from UpdatedAt plus a Term of %v", what, d, term)
	}
}

func needsSetBack(h Harness) string {
	if h.SetBack == nil {
		return "the store's clock cannot be set back"
	}
	return ""
}

func needsAdvance(h Harness) string {
	if h.Advance == nil {
		return "the store's clock cannot be moved"
	}
	return ""
}
