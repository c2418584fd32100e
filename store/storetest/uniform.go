package storetest

import (
	"errors"
	"fmt"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/store/storekit"
)

// uniformRules send many steps of one kind at the same time. A store that collects
// steps in batches may have a statement for a batch of one kind, which mixed batches
// never reach.
var uniformRules = []rule{{
	name:   "creates of one kind do not mix",
	reason: "Of many Creates at the same time that are all new, all known, all sent again or all of reserved keys, each gets what it would get alone, because a statement for such a batch is held to the rules of one Create.",
	check: func(k *kit) {
		first, other := k.uniform("k"), k.uniform("k")
		created := k.creates(first, nil)
		for i, got := range created {
			k.same("created", got, left(first[i], got))
		}
		known := k.creates(other, retrysafe.ErrExists)
		again := race(len(first), func(i int) (retrysafe.Record, error) {
			return k.retryBusy(func() (retrysafe.Record, error) { return k.Store.Create(k.ctx, first[i]) })
		})
		for i, want := range created {
			k.same("the record returned with ErrExists", known[i], want)
			if err := again[i].err; err != nil && !errors.Is(err, retrysafe.ErrExists) {
				k.failf("Create sent again: got %v, want nil or ErrExists", err)
			}
			k.same("the record returned to the same step", again[i].rec, want)
			k.unchanged("a Create of a key that exists", want)
		}
		if needsTwoTx(k.Harness) != "" {
			return
		}
		held := k.uniform("held")
		tx := k.begin()
		for _, w := range held {
			_, err := tx.Reserve(k.ctx, w.Ref)
			k.want("Reserve of a free key", err, retrysafe.ErrNotFound)
		}
		for _, r := range race(len(held), func(i int) (retrysafe.Record, error) { return k.Store.Create(k.ctx, held[i]) }) {
			k.want("Create of a reserved key", r.err, retrysafe.ErrBusy)
		}
		k.want("Rollback", tx.Rollback(k.ctx), nil)
		for _, w := range held {
			k.absent(w.Ref)
		}
		k.creates(held, nil)
	},
}, {
	name:   "swaps of one kind keep the fence",
	reason: "Of many Swaps of one kind at the same time exactly those are applied that expect the stored revision and owner, and each caller gets the record of its own key, because a statement for such a batch is held to the rules of one Swap.",
	check: func(k *kit) {
		for _, of := range swapKinds {
			kind, write := of.name, of.write
			records := k.creates(k.uniform(kind), nil)
			right, wrong := make([]retrysafe.Write, len(records)), make([]retrysafe.Write, 2*len(records))
			for i, r := range records {
				right[i] = write(r)
				wrong[2*i], wrong[2*i+1] = right[i], right[i]
				wrong[2*i].Expect.Revision--
				wrong[2*i+1].Expect.Owner = newOwner()
			}
			k.refusals(kind, wrong)
			for i, r := range race(len(right), func(i int) (retrysafe.Record, error) {
				return k.retryBusy(func() (retrysafe.Record, error) { return k.Store.Swap(k.ctx, right[i]) })
			}) {
				k.want(kind, r.err, nil)
				want := storekit.Apply(&records[i], &right[i], r.rec.UpdatedAt)
				want.Revision, want.Deadline, want.UpdatedAt = r.rec.Revision, r.rec.Deadline, r.rec.UpdatedAt
				k.same(kind, r.rec, want)
				k.lasts(kind, r.rec, right[i].Term)
				k.same(kind+", stored", k.load(r.rec.Ref), want)
				records[i] = r.rec
			}
			k.refusals(kind+" sent twice", right)
			for _, r := range records {
				k.unchanged("a refused "+kind, r)
			}
		}
	},
}}

// swapKinds are the kinds of swaps that an engine and a janitor send.
var swapKinds = []struct {
	name  string
	write func(retrysafe.Record) retrysafe.Write
}{
	{"heartbeat", beat},
	{"completion", func(r retrysafe.Record) retrysafe.Write { return to(retrysafe.StateCompleted, r, later) }},
	{"release", func(r retrysafe.Record) retrysafe.Write { return to(retrysafe.StateRetryable, r, later) }},
	{"quarantine", func(r retrysafe.Record) retrysafe.Write { return to(retrysafe.StateUnknown, r, later) }},
	{"claim", func(r retrysafe.Record) retrysafe.Write { return claim(beat(r), 2) }},
	{"checkpoint", func(r retrysafe.Record) retrysafe.Write {
		w := beat(r)
		w.Checkpoint, w.SetCheckpoint = retrysafe.Checkpoint{Phase: "charged", Data: []byte(r.Key)}, true
		return w
	}},
}

// uniform returns the reservations of some keys, each by an owner of its own.
func (k *kit) uniform(prefix string) []retrysafe.Write {
	all := make([]retrysafe.Write, 12)
	for i := range all {
		all[i] = k.record(fmt.Sprintf("%s %d", prefix, i))
		all[i].Operation = all[i].Key
	}
	return all
}

// creates sends Creates at the same time, each of which must end with want.
func (k *kit) creates(all []retrysafe.Write, want error) []retrysafe.Record {
	k.t.Helper()
	records := make([]retrysafe.Record, len(all))
	for i, r := range race(len(all), func(i int) (retrysafe.Record, error) {
		return k.retryBusy(func() (retrysafe.Record, error) { return k.Store.Create(k.ctx, all[i]) })
	}) {
		k.want("Create", r.err, want)
		if r.rec.Ref != all[i].Ref {
			k.failf("Create(%q) returned the record of %q", all[i].Ref, r.rec.Ref)
		}
		records[i] = r.rec
	}
	return records
}

// refusals sends Swaps at the same time, each of which must lose.
func (k *kit) refusals(kind string, all []retrysafe.Write) {
	k.t.Helper()
	for i, r := range race(len(all), func(i int) (retrysafe.Record, error) {
		return k.retryBusy(func() (retrysafe.Record, error) { return k.Store.Swap(k.ctx, all[i]) })
	}) {
		k.want(kind+" that expects another fence", r.err, retrysafe.ErrConflict)
		if r.rec.Ref != all[i].Ref {
			k.failf("%s of %q that was refused returned the record of %q", kind, all[i].Ref, r.rec.Ref)
		}
	}
}

// finishRules are about the step that stores an answer and commits.
var finishRules = []rule{{
	name:   "create and commit is one step",
	reason: "A Create that commits its transaction stores the record together with all that the transaction wrote, or refuses and leaves nothing of it, because the answer and the effects commit together or not at all.",
	needs:  needsTx,
	check: func(k *kit) {
		for _, reserved := range []bool{true, false} {
			tx, beside, w := k.begin(), k.record(fmt.Sprint("beside ", reserved)), in(retrysafe.StateCompleted, k.record(fmt.Sprint("k ", reserved)), later)
			if reserved {
				_, err := tx.Reserve(k.ctx, w.Ref)
				k.want("Reserve of a free key", err, retrysafe.ErrNotFound)
			}
			_, err := tx.Create(k.ctx, beside)
			k.want("Create in the transaction", err, nil)
			got, err := k.createAndCommit(tx, w)
			k.want("Create that commits", err, nil)
			k.same("returned", got, left(w, got))
			k.lasts("returned", got, w.Term)
			k.same("stored", k.load(w.Ref), got)
			k.load(beside.Ref)

			for _, second := range []retrysafe.Write{w, in(retrysafe.StateCompleted, k.record(w.Key), later)} {
				k.refusesToCommit("a key that exists", second, "")
			}
			k.unchanged("a Create that was refused", got)
		}
		if needsTwoTx(k.Harness) != "" || needsWriters(k.Harness) != "" {
			return
		}
		held := in(retrysafe.StateCompleted, k.record("held"), later)
		open := k.begin()
		_, err := open.Reserve(k.ctx, held.Ref)
		k.want("Reserve of a free key", err, retrysafe.ErrNotFound)
		k.refusesToCommit("a key that another transaction holds", held, "")
		k.refusesToCommit("a key that another transaction holds, after a Reserve of another key", held, "other")
		_, err = k.createAndCommit(open, held)
		k.want("Create that commits, by the holder", err, nil)
	},
}}

// createAndCommit stores the record and commits, in one round trip if the transaction
// can do that.
func (k *kit) createAndCommit(tx retrysafe.Tx, w retrysafe.Write) (retrysafe.Record, error) {
	if f, ok := tx.(retrysafe.CreateCommitter); ok {
		return f.CreateAndCommit(k.ctx, w)
	}
	got, err := tx.Create(k.ctx, w)
	if err != nil {
		return got, err
	}
	return got, tx.Commit(k.ctx)
}

// refusesToCommit checks that a Create that commits is refused and that nothing of its
// transaction is left. If reserves is a key the transaction has reserved that before.
func (k *kit) refusesToCommit(what string, w retrysafe.Write, reserves string) {
	k.t.Helper()
	tx, beside := k.begin(), k.record("beside "+what)
	if reserves != "" {
		_, err := tx.Reserve(k.ctx, retrysafe.Ref{Scope: w.Scope, Key: reserves})
		k.want("Reserve of a free key", err, retrysafe.ErrNotFound)
	}
	_, err := tx.Create(k.ctx, beside)
	k.want("Create in the transaction", err, nil)
	if _, err := k.createAndCommit(tx, w); err == nil {
		k.failf("a Create of %s has committed", what)
	}
	_ = tx.Rollback(k.ctx)
	k.absent(beside.Ref)
}
