package storetest

import "github.com/retrysafe/retrysafe"

var acceptedRules = []rule{{
	name:   "accepted work waits for a worker",
	reason: "Work that was accepted is kept with its request, an empty one included, until exactly one worker claims it, is listed for workers before its deadline and for sweepers after it, and is never purged, because its client got the promise that it will be done.",
	check: func(k *kit) {
		waiting := k.create(accepted(k.record("waiting")))
		empty := accepted(k.record("empty"))
		empty.Request = []byte{}
		bare := k.create(empty)
		late := accepted(k.record("late"))
		late.Term = soon
		abandoned := k.create(late)
		k.create(k.record("running"))
		k.untilDue(abandoned)

		if n, err := k.Store.Purge(k.ctx, 10); n != 0 || err != nil {
			k.failf("Purge of accepted work: got %d, %v", n, err)
		}
		k.lists(retrysafe.Query{States: []retrysafe.State{retrysafe.StateAccepted}}, waiting, bare, abandoned)
		k.lists(retrysafe.Query{States: []retrysafe.State{retrysafe.StateAccepted}, Due: true}, abandoned)

		for _, rec := range []retrysafe.Record{waiting, bare, abandoned} {
			if got := k.load(rec.Ref); got.Request == nil || got.Attempt != 0 {
				k.failf("%q has no request: %t, and attempt %d, want a request and attempt 0", rec.Key, got.Request == nil, got.Attempt)
			}
			taken := k.takeUp(rec)
			if taken.Request == nil {
				k.failf("%q has no request after it was claimed", rec.Key)
			}
			k.swap(to(retrysafe.StateCompleted, taken, later))
		}
		k.lists(retrysafe.Query{States: []retrysafe.State{retrysafe.StateAccepted}})
	},
}}

// accepted returns w as an engine stores it for a worker: no attempt was made.
func accepted(w retrysafe.Write) retrysafe.Write {
	w.State, w.Attempt = retrysafe.StateAccepted, 0
	return w
}

// takeUp lets several workers claim accepted work at the same time and returns the
// record of the one that won.
func (k *kit) takeUp(rec retrysafe.Record) retrysafe.Record {
	k.t.Helper()
	claims := make([]retrysafe.Write, 8)
	for i := range claims {
		claims[i] = claim(to(retrysafe.StateInProgress, rec, later), 1)
	}
	replies := race(len(claims), func(i int) (retrysafe.Record, error) {
		return k.retryBusy(func() (retrysafe.Record, error) { return k.node(i).Swap(k.ctx, claims[i]) })
	})
	winner := k.winner(replies, retrysafe.ErrConflict)
	got := replies[winner].rec
	want := left(claims[winner], got)
	k.same("claimed by a worker", got, want)
	k.same("stored", k.load(rec.Ref), want)
	return got
}

// lists checks that the query selects exactly these records, unchanged.
func (k *kit) lists(q retrysafe.Query, want ...retrysafe.Record) {
	k.t.Helper()
	got := make(map[retrysafe.Ref]retrysafe.Record)
	for _, r := range k.page(q) {
		got[r.Ref] = r
	}
	for _, w := range want {
		r, ok := got[w.Ref]
		if !ok {
			k.failf("List(%+v) leaves out %q", q, w.Ref)
		}
		k.same("listed", r, w)
	}
	if len(got) != len(want) {
		k.failf("List(%+v) returned %d records, want %d", q, len(got), len(want))
	}
}
