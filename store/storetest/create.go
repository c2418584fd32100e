package storetest

import (
	"errors"
	"fmt"
	"time"

	"github.com/retrysafe/retrysafe"
)

var createRules = []rule{{
	name:   "create stores the record",
	reason: "Create stores what it is given, sets the fields that are the store's, and returns the record as stored, because the engine works on with what it returned.",
	check: func(k *kit) {
		w := k.record("k")
		// Create ignores Expect and the fields that the store sets.
		past := time.Unix(1, 0)
		w.Expect, w.Revision = retrysafe.Fence{Revision: 9, Owner: newOwner()}, 7
		w.Deadline, w.CreatedAt, w.UpdatedAt, w.ReadAt = past, past, past, past
		w.Checkpoint = retrysafe.Checkpoint{Phase: "handed over", Data: []byte("one")}
		got := k.create(w)
		if got.Revision <= 0 || got.CreatedAt.IsZero() || got.CreatedAt.Equal(past) || got.ReadAt.IsZero() || got.ReadAt.Equal(past) {
			k.failf("out fields are not the store's: Revision %d, CreatedAt %v, ReadAt %v", got.Revision, got.CreatedAt, got.ReadAt)
		}
		if !got.UpdatedAt.Equal(got.CreatedAt) {
			k.failf("UpdatedAt: got %v, want CreatedAt, %v", got.UpdatedAt, got.CreatedAt)
		}
		k.lasts("created", got, w.Term)
		if got.ReadAt.Before(got.UpdatedAt.Add(-tick)) {
			k.failf("ReadAt %v is before UpdatedAt %v", got.ReadAt, got.UpdatedAt)
		}
		want := left(w, got)
		k.same("returned", got, want)
		k.same("stored", k.load(w.Ref), want)
	},
}, {
	name:   "in-only fields are not returned",
	reason: "Term, Overwrite and SetCheckpoint hold for the one write that brings them, because a caller that swaps what it got must not claim, extend or rewrite by accident.",
	check: func(k *kit) {
		w := k.record("k")
		w.Overwrite, w.SetCheckpoint = true, true
		w.Checkpoint = retrysafe.Checkpoint{Phase: "one", Data: []byte("one")}
		rec := k.create(w)
		k.writesPlainly("Create", rec)
		again := claim(k.load(w.Ref).Update(), 2)
		again.SetCheckpoint, again.Term = true, later
		k.writesPlainly("Swap that overwrites", k.swap(again))
	},
}, {
	name:   "second create gets the stored record",
	reason: "A Create of a key that exists returns the stored record with ErrExists and changes nothing, because a retry must see the first attempt and not replace it.",
	check: func(k *kit) {
		first := k.create(k.record("k"))
		other := k.record("k")
		other.Operation, other.Attempt, other.Request = "POST /refunds", 9, []byte("other")
		got, err := k.Store.Create(k.ctx, other)
		k.want("second Create", err, retrysafe.ErrExists)
		k.same("the record returned with ErrExists", got, first)
		if got.ReadAt.IsZero() {
			k.failf("ReadAt is not set with ErrExists")
		}
		k.unchanged("second Create", first)

		done := k.swap(to(retrysafe.StateCompleted, first, later))
		got, err = k.Store.Create(k.ctx, k.record("k"))
		k.want("Create of a completed key", err, retrysafe.ErrExists)
		k.same("the answer returned with ErrExists", got, done)
		k.unchanged("Create of a completed key", done)
	},
}, {
	name:   "create recognises itself",
	reason: "A Create sent twice by the same owner is one reservation, and both get the stored record, because the reply of the first may have been lost.",
	check: func(k *kit) {
		r := k.record("k")
		first := k.create(r)
		for range 2 {
			again, err := k.Store.Create(k.ctx, r)
			if err != nil && !errors.Is(err, retrysafe.ErrExists) {
				k.failf("Create sent again: got %v, want nil or ErrExists", err)
			}
			k.same("the record returned to the same step", again, first)
		}
		k.unchanged("Create sent again", first)
	},
}, {
	name:   "one of many creates wins",
	reason: "Of many Creates of one key at the same time exactly one wins and all others see its owner, because each winner runs the operation.",
	check: func(k *kit) {
		for round := range 4 {
			key := fmt.Sprintf("k%d", round)
			records := make([]retrysafe.Write, crowd)
			for i := range records {
				records[i] = k.record(key)
			}
			replies := race(crowd, func(i int) (retrysafe.Record, error) {
				return k.retryBusy(func() (retrysafe.Record, error) { return k.node(i).Create(k.ctx, records[i]) })
			})
			winner := records[k.winner(replies, retrysafe.ErrExists)].Owner
			for _, r := range replies {
				if r.rec.Owner != winner {
					k.failf("a caller saw owner %v, the winner is %v", r.rec.Owner, winner)
				}
			}
			if got := k.load(records[0].Ref).Owner; got != winner {
				k.failf("stored owner: got %v, want the winner's, %v", got, winner)
			}
		}
	},
}, {
	name:   "creates of many keys do not mix",
	reason: "Creates of many keys at the same time, each sent by several, have one winner for each key and never another key's record, because a batch that mixes its members gives a client another client's answer.",
	check: func(k *kit) {
		const keys, senders = 32, 6
		records := make([]retrysafe.Write, keys*senders)
		for i := range records {
			records[i] = k.record(fmt.Sprintf("k%d", i%keys))
			records[i].Operation = records[i].Key
		}
		replies := race(len(records), func(i int) (retrysafe.Record, error) {
			return k.retryBusy(func() (retrysafe.Record, error) { return k.node(i).Create(k.ctx, records[i]) })
		})
		for key := range keys {
			var mine []reply
			for i := key; i < len(records); i += keys {
				if got, want := replies[i].rec.Operation, records[i].Operation; got != want {
					k.failf("Create(%q) returned the record of %q (%v)", want, got, replies[i].err)
				}
				mine = append(mine, replies[i])
			}
			winner := mine[k.winner(mine, retrysafe.ErrExists)].rec
			k.same("stored", k.load(winner.Ref), winner)
		}
	},
}, {
	name:   "absent key is not found",
	reason: "Load of a key that was never created returns ErrNotFound, because an empty record could be taken for a free key.",
	check: func(k *kit) {
		k.create(k.record("k"))
		k.absent(retrysafe.Ref{Scope: "acct_1", Key: "other"})
		k.absent(retrysafe.Ref{Scope: "acct_2", Key: "k"})
	},
}, {
	name:   "returned records do not change",
	reason: "A record that was returned stays as it was when later steps change the stored one, because callers decide on it without a lock.",
	check: func(k *kit) {
		r := k.record("k")
		r.Checkpoint = retrysafe.Checkpoint{Phase: "one", Data: []byte("first")}
		r.AddNote(retrysafe.Note{By: "first", Text: "first", ID: "first"})
		created := k.create(r)
		done := k.swap(to(retrysafe.StateCompleted, created, later))
		loaded := k.load(r.Ref)
		listed, err := k.Store.List(k.ctx, retrysafe.Query{})
		if err != nil || len(listed) != 1 {
			k.failf("List: got %d records and %v, want 1", len(listed), err)
		}
		snapshot := clone(done)

		next := claim(k.record("k"), 1)
		next.Expect = done.Fence()
		next.Checkpoint = retrysafe.Checkpoint{Phase: "two", Data: []byte("other")}
		next.Request = []byte(`{"amount":9999}`)
		next.AddNote(retrysafe.Note{By: "other", Text: "other", ID: "other"})
		next = in(retrysafe.StateCompleted, next, later)
		next.Result.Body = []byte(`{"id":2}`)
		next.Result.Header = map[string][]string{"Content-Type": {"text/html"}, "Location": {"/other/22"}}
		k.swap(next)

		for _, got := range []retrysafe.Record{done, loaded, listed[0]} {
			k.same("a record returned before", got, snapshot)
		}
		k.same("the record that Create returned", created, func() retrysafe.Record {
			want := snapshot
			want.State, want.Result, want.Revision = retrysafe.StateInProgress, nil, created.Revision
			want.Deadline, want.UpdatedAt = created.Deadline, created.UpdatedAt
			return want
		}())
	},
}}

// writesPlainly checks that the next write of a returned record starts no new attempt
// and has no Term of an earlier write.
func (k *kit) writesPlainly(after string, rec retrysafe.Record) {
	k.t.Helper()
	w := rec.Update()
	w.Operation, w.Checkpoint = "POST /refunds", retrysafe.Checkpoint{Phase: "not set"}
	got := k.swap(w)
	k.lasts("the write after a "+after, got, 0)
	want := rec
	want.Revision, want.Deadline, want.UpdatedAt = got.Revision, got.Deadline, got.UpdatedAt
	k.same("the write after a "+after, got, want)
	k.same("stored", k.load(rec.Ref), want)
}

// clone returns a copy of r that shares nothing with it.
func clone(r retrysafe.Record) retrysafe.Record {
	r.KeyText = append([]byte(nil), r.KeyText...)
	r.Request = append([]byte(nil), r.Request...)
	r.Checkpoint.Data = append([]byte(nil), r.Checkpoint.Data...)
	r.Inquiry.Notes = append([]retrysafe.Note(nil), r.Inquiry.Notes...)
	if r.Result != nil {
		c := *r.Result
		c.Body = append([]byte(nil), c.Body...)
		c.Header = make(map[string][]string, len(r.Result.Header))
		for name, values := range r.Result.Header {
			c.Header[name] = append([]string(nil), values...)
		}
		r.Result = &c
	}
	return r
}
