package storetest

import (
	"bytes"
	"crypto/sha256"
	"strings"
	"time"

	"github.com/retrysafe/retrysafe"
)

// wholeRules say that a step loses no field, whichever way it is written.
var wholeRules = []rule{{
	name:   "every step stores every field",
	reason: "A record whose fields are all set comes back whole, whichever step has written it, because a field that one of the ways forgets is missed only when it is needed.",
	check: func(k *kit) {
		for what, change := range map[string]func(*retrysafe.Write){
			"plain":     func(*retrysafe.Write) {},
			"relaxed":   func(w *retrysafe.Write) { w.Relaxed = true },
			"announced": func(w *retrysafe.Write) { w.Announce = true },
			"large":     func(w *retrysafe.Write) { w.Request = bytes.Repeat([]byte("large"), 20<<10) },
		} {
			w := k.whole(what, "created "+what)
			change(&w)
			created := k.create(w)
			want := left(w, created)
			k.same("created, "+what, created, want)
			k.everywhere(want)

			k.everywhere(k.swapsWhole(what, k.Store, created, change, false))
			k.everywhere(k.swapsWhole(what, k.Store, k.load(w.Ref), change, true))
			k.everywhere(k.swapsWhole(what, k.Store, k.load(w.Ref), func(w *retrysafe.Write) { change(w); w.SetCheckpoint = false }, false))
		}
	},
}}

// txWholeRules are wholeRules for the steps of a transaction.
var txWholeRules = []rule{{
	name:   "every step of a transaction stores every field",
	reason: "A transaction stores and shows a record whose fields are all set as a step outside of one does, because the same record is written both ways.",
	needs:  needsTx,
	check: func(k *kit) {
		stored := k.create(k.whole("stored", "stored"))
		tx := k.begin()
		got, err := tx.Reserve(k.ctx, stored.Ref)
		k.want("Reserve", err, nil)
		k.same("reserved", got, stored)
		swapped := k.swapsWhole("in a transaction", tx, stored, func(*retrysafe.Write) {}, false)
		k.want("Commit", tx.Commit(k.ctx), nil)
		k.everywhere(swapped)

		tx = k.begin()
		if t, ok := tx.(retrysafe.Taker); ok {
			got, err = t.Take(k.ctx, stored.Ref)
		} else {
			got, err = tx.Reserve(k.ctx, stored.Ref)
		}
		k.want("Take", err, nil)
		k.same("taken", got, swapped)
		swapped = k.swapsWhole("in a transaction", tx, got, func(*retrysafe.Write) {}, true)
		k.want("Commit", tx.Commit(k.ctx), nil)
		k.everywhere(swapped)

		for _, reserves := range []bool{false, true} {
			for _, commits := range []bool{false, true} {
				key := map[bool]string{false: "created", true: "reserved and created"}[reserves] + map[bool]string{false: "", true: " with the commit"}[commits]
				w := k.whole(key, key)
				tx = k.begin()
				if reserves {
					_, err = tx.Reserve(k.ctx, w.Ref)
					k.want("Reserve of a free key", err, retrysafe.ErrNotFound)
				}
				if commits {
					got, err = k.createAndCommit(tx, w)
				} else if got, err = tx.Create(k.ctx, w); err == nil {
					err = tx.Commit(k.ctx)
				}
				k.want(key, err, nil)
				k.same(key, got, left(w, got))
				k.everywhere(got)
			}
		}
	},
}}

// whole is a write that sets every field of a record that is a caller's to set, each to
// something that text makes its own. Its answer is one under review.
func (k *kit) whole(key, text string) retrysafe.Write {
	w := k.record(key)
	k.fill(&w, text)
	return w
}

// fill sets all that a write may change, and what belongs to the attempt.
func (k *kit) fill(w *retrysafe.Write, text string) {
	at := time.Date(2026, 1, 2, 3, 4, 5, 678_901_000, time.UTC)
	w.KeyText, w.Request, w.Operation = []byte("key text "+text), []byte("request "+text), "PATCH "+text
	w.Fingerprint = retrysafe.Fingerprint{Alg: 2, Sum: sha256.Sum256([]byte(text))}
	w.State, w.Lapse, w.Effects, w.Version = retrysafe.StateUnknown, retrysafe.LapseFail, retrysafe.EffectsKeyed, retrysafe.RecordVersion
	w.Attempt = 2 + len(text)
	w.Checkpoint = retrysafe.Checkpoint{Phase: "phase " + text, Data: []byte("data " + text)}
	w.Result = &retrysafe.Result{
		Status: 500 + len(text), Header: map[string][]string{"Location": {"/" + text}, "X-Text": {text, strings.ToUpper(text)}}, Body: []byte("body " + text), Omitted: true,
	}
	w.ProviderRef, w.Reason = "provider "+text, "reason "+text
	w.Inquiry = retrysafe.Inquiry{
		Tries: 1 + len(text), Dead: true, Disputed: true,
		Notes: []retrysafe.Note{{At: at, By: "by " + text, State: retrysafe.StateUnknown, Text: "note " + text, ID: "id " + text}},
	}
	w.Retain, w.Term = time.Duration(1+len(text))*time.Hour, later
}

// swapsWhole swaps every field of a record that is whole, and returns what is stored then.
// An overwrite replaces what belongs to the attempt too; any other swap leaves it alone.
func (k *kit) swapsWhole(what string, by retrysafe.Swapper, r retrysafe.Record, change func(*retrysafe.Write), overwrites bool) retrysafe.Record {
	k.t.Helper()
	w := r.Update()
	k.fill(&w, "swapped "+what)
	w.SetCheckpoint = true
	if overwrites {
		w = claim(w, 7)
		w.Reason, w.ProviderRef = "reason of a claim", "provider of a claim"
	}
	change(&w)
	got, err := by.Swap(k.ctx, w)
	k.want("Swap "+what, err, nil)
	want := left(w, got)
	if want.CreatedAt = r.CreatedAt; !overwrites {
		want.KeyText, want.Request, want.Operation, want.Fingerprint, want.Attempt = r.KeyText, r.Request, r.Operation, r.Fingerprint, r.Attempt
		if !w.SetCheckpoint {
			want.Checkpoint = r.Checkpoint
		}
	}
	k.same("swapped, "+what, got, want)
	return want
}
