package storetest

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/outbox"
)

var letterRules = []outboxRule{{
	name:   "buried message is kept",
	reason: "A message that was given up is kept whole, with the last error and the receiver's own name for the effect if it ever gave one, because an operator has to find out what became of it.",
	check: func(k *outboxKit) {
		held := k.all()
		m := outbox.Message{Topic: "t", Group: "a", Key: "k", Header: map[string]string{"A": "1"}, Payload: []byte("0\x00\xff")}
		k.enqueue(m, text("a", "next"))
		d := k.one(held, string(m.Payload))
		for _, ref := range []string{"ch_0", "ch_1", ""} { // the last name that was given counts
			failed := again(k.one(held, string(m.Payload)), 0)
			failed.ProviderRef = ref
			k.ends(failed)
		}
		last := ending(k.one(held, string(m.Payload)), outbox.AckDead)
		last.Why = "geschlossen: ü"
		k.ends(last)
		k.finds("after it was buried", held, "next")
		list := k.dead()
		if len(list) != 1 {
			k.failf("%d dead letters, want 1", len(list))
		}
		l := &list[0]
		if diff := k.differs(&l.Message, &m); diff != "" || l.ID != d.ID || l.Err != nil {
			k.failf("the dead letter is not the message: %s %v", diff, l.Err)
		}
		if l.Why != last.Why || l.ProviderRef != "ch_1" || l.Tries != 4 || l.Died.Before(l.Enqueued) || l.Revision == 0 || !l.Enqueued.Equal(d.Enqueued) {
			k.failf("the dead letter says %q, %q, %d tries, enqueued %v, died %v, revision %d", l.Why, l.ProviderRef, l.Tries, l.Enqueued, l.Died, l.Revision)
		}
	},
}, {
	name:   "receiver's name and tries are not lost",
	reason: "The receiver's name for the effect stays with a letter that is sent again until there is another one, and tries never become fewer, because an operator finds the effect by the name, and a worker gives up by the tries.",
	check: func(k *outboxKit) {
		held := k.all()
		k.enqueue(text("a", "m"))
		first := again(k.one(held, "m"), 0)
		first.Tries, first.ProviderRef = 5, "ch_1"
		late := first
		late.Tries, late.ProviderRef = 1, ""
		k.ends(first)
		k.ends(late)
		if n := k.one(held, "m").Tries; n != 5 {
			k.failf("%d tries after 5", n)
		}
		want := "ch_1"
		for _, given := range []string{"", "", "ch_2", ""} {
			e := ending(k.one(held, "m"), outbox.AckDead)
			e.ProviderRef, want = given, cmp.Or(given, want)
			k.ends(e)
			l := k.dead()[0]
			if l.ProviderRef != want || l.Tries != e.Tries {
				k.failf("buried with the name %q and %d tries, it has %q and %d, want %q", given, e.Tries, l.ProviderRef, l.Tries, want)
			}
			k.want("Dispose", k.Outbox.Dispose(k.ctx, outbox.Disposal{ID: l.ID, Revision: l.Revision, Redrive: true}), nil)
		}
	},
}, {
	name:   "dead letters are listed in order",
	reason: "Dead letters are listed in the order of their ids, page by page, because none may be overlooked.",
	check: func(k *outboxKit) {
		held := k.all()
		var want, got []int64
		for n := range 7 {
			want = append(want, k.bury(held, text("", fmt.Sprint("m", n))).ID)
		}
		for after := int64(0); ; {
			page, err := k.Outbox.DeadLetters(k.ctx, after, 3)
			k.want("Dead", err, nil)
			if len(page) > 3 {
				k.failf("a page of 3 has %d", len(page))
			}
			if len(page) == 0 {
				break
			}
			for i := range page {
				got = append(got, page[i].ID)
			}
			after = page[len(page)-1].ID
			if len(got) > len(want) {
				break
			}
		}
		if !slices.Equal(got, want) {
			k.failf("listed are %v, want %v", got, want)
		}
	},
}, {
	name:   "disposal needs the letter as it was seen",
	reason: "A dead letter is disposed of at the revision that the operator saw, and once, because two operators that decide at the same time would decide twice.",
	check: func(k *outboxKit) {
		held := k.all()
		l := k.bury(held, text("a", "m"))
		k.want("Dispose at another revision", k.Outbox.Dispose(k.ctx, outbox.Disposal{ID: l.ID, Revision: l.Revision + 1, Redrive: true}), retrysafe.ErrConflict)
		k.want("Dispose at another revision", k.Outbox.Dispose(k.ctx, outbox.Disposal{ID: l.ID, Revision: l.Revision - 1}), retrysafe.ErrConflict)
		k.want("Dispose of what is not there", k.Outbox.Dispose(k.ctx, outbox.Disposal{ID: l.ID + 1000, Revision: l.Revision}), retrysafe.ErrNotFound)
		k.finds("after refused disposals", held)
		if n := len(k.dead()); n != 1 {
			k.failf("after refused disposals there are %d dead letters", n)
		}
		won := 0
		for _, r := range race(8, func(i int) (retrysafe.Record, error) {
			return retrysafe.Record{}, k.node(i).Dispose(k.ctx, outbox.Disposal{ID: l.ID, Revision: l.Revision, Redrive: i%2 == 0})
		}) {
			switch {
			case r.err == nil:
				won++
			case !errors.Is(r.err, retrysafe.ErrConflict) && !errors.Is(r.err, retrysafe.ErrNotFound):
				k.failf("Dispose: %v", r.err)
			}
		}
		if won != 1 || len(k.due(held, plenty)) > 1 || len(k.dead()) != 0 {
			k.failf("%d of 8 disposed of one letter, and it waits %d times", won, len(k.due(held, plenty)))
		}
	},
}, {
	name:   "redriven letter goes behind its group",
	reason: "A letter that is sent again is behind all others of its group, with the bytes and the key that it had and as old as it was, because the others have gone on without it and its receiver remembers its key from the first time.",
	check: func(k *outboxKit) {
		held := k.all()
		k.enqueue(text("a", "a1"), text("a", "a2"), text("a", "a3"))
		was := k.one(held, "a1")
		k.ends(ending(was, outbox.AckDead))
		l := k.dead()[0]
		k.eventually("some time", func() bool { return k.one(held, "a2").Age >= soon })
		k.want("Dispose", k.Outbox.Dispose(k.ctx, outbox.Disposal{ID: l.ID, Revision: l.Revision, Redrive: true}), nil)
		k.enqueue(text("a", "a4"))
		if got := payloads(k.due(held, plenty)); !slices.Equal(got, []string{"a2", "a3", "a1", "a4"}) {
			k.failf("the group comes as %q", got)
		}
		d := k.one(held, "a1")
		if diff := k.differs(&d.Message, &was.Message); diff != "" || d.ID <= was.ID || d.Tries != 0 {
			k.failf("it comes back as message %d after %d tries, and was %d: %s", d.ID, d.Tries, was.ID, diff)
		}
		if !d.Enqueued.Equal(was.Enqueued) || d.Age < soon {
			k.failf("it comes back %v old, enqueued at %v, and was enqueued at %v", d.Age, d.Enqueued, was.Enqueued)
		}
		if n := len(k.dead()); n != 0 {
			k.failf("%d dead letters are left", n)
		}
		k.ends(ending(d, outbox.AckDead))
		again := k.dead()
		if len(again) != 1 || again[0].ID == l.ID {
			k.failf("buried again it has the id that it had before: an operator that saw it then would decide about it now")
		}
		k.want("Dispose, anew", k.Outbox.Dispose(k.ctx, outbox.Disposal{ID: again[0].ID, Revision: again[0].Revision, Redrive: true, ResetAge: true}), nil)
		if d := k.one(held, "a1"); !d.Enqueued.After(was.Enqueued) {
			k.failf("an operator has reset its age, and it is as old as it was, enqueued at %v", d.Enqueued)
		}
	},
}, {
	name:   "dropped letter is gone",
	reason: "A letter that is dropped is neither listed nor sent, because an operator has decided so.",
	check: func(k *outboxKit) {
		held := k.all()
		l, other := k.bury(held, text("a", "m")), k.bury(held, text("a", "other"))
		k.want("Dispose", k.Outbox.Dispose(k.ctx, outbox.Disposal{ID: l.ID, Revision: l.Revision}), nil)
		k.finds("after it was dropped", held)
		if list := k.dead(); len(list) != 1 || list[0].ID != other.ID {
			k.failf("the dead letters are %+v", list)
		}
	},
}, {
	name:   "skipped message lets its group go on",
	reason: "A message that waits to be sent again is listed, and buried when an operator says so, because its group need not wait for all its tries.",
	needs:  needsSkipper,
	check: func(k *outboxKit) {
		held := k.all()
		skipper := k.Outbox.(outbox.Skipper)
		rec := k.keys().create(k.keys().record("handed over"))
		m := text("a", "a1")
		m.Settles = &rec
		kept := text("", "kept back")
		kept.Wait = later
		k.enqueue(m, text("a", "a2"), text("b", "b1"), kept)
		first := again(k.one(held, "a1"), later)
		first.ProviderRef = "ch_1"
		k.ends(first)
		list, err := skipper.Failing(k.ctx, 0, plenty)
		k.want("Failing", err, nil)
		if len(list) != 1 || string(list[0].Payload) != "a1" || list[0].Tries != 1 || list[0].Revision != 1 || list[0].Why != first.Why || list[0].ProviderRef != "ch_1" {
			k.failf("failing are %+v", list)
		}
		if rest, err := skipper.Failing(k.ctx, list[0].ID, plenty); len(rest) != 0 || err != nil {
			k.failf("failing behind the last one are %+v, %v", rest, err)
		}
		done := to(retrysafe.StateUnknown, rec, later)
		ended, err := skipper.Skip(k.ctx, outbox.SkipRequest{ID: list[0].ID, Tries: 1, Why: "skipped", Settle: &done})
		k.want("Skip", errors.Join(err, ended.Err), nil)
		k.finds("after it was skipped", held, "a2", "b1")
		if got := k.keys().load(rec.Ref); got.State != retrysafe.StateUnknown {
			k.failf("the record that it settles is %v", got.State)
		}
		letters := k.dead()
		if len(letters) != 1 || string(letters[0].Payload) != "a1" || letters[0].Why != "skipped" || letters[0].ProviderRef != "ch_1" || letters[0].Tries != 1 || letters[0].Died.IsZero() {
			k.failf("the dead letters are %+v", letters)
		}
	},
}, {
	name:   "skip needs a message that waits as it was seen",
	reason: "Only a message that waits to be sent again is skipped, with the tries that the operator saw, and not if its key cannot be settled, because a worker may be sending it this moment.",
	needs:  needsSkipper,
	check: func(k *outboxKit) {
		held := k.all()
		skipper := k.Outbox.(outbox.Skipper)
		rec := k.keys().create(k.keys().record("handed over"))
		k.enqueue(text("a", "fresh"), text("b", "waits"), text("c", "due"))
		fresh, waits, due := k.one(held, "fresh"), k.one(held, "waits"), k.one(held, "due")
		k.ends(again(waits, later), again(due, 0))
		for what, c := range map[string]struct {
			skip outbox.SkipRequest
			want error
		}{
			"of one that was never sent":       {outbox.SkipRequest{ID: fresh.ID}, retrysafe.ErrConflict},
			"of one that is due":               {outbox.SkipRequest{ID: due.ID, Tries: 1}, retrysafe.ErrConflict},
			"of one that was sent once more":   {outbox.SkipRequest{ID: waits.ID, Tries: 2}, retrysafe.ErrConflict},
			"of one that was never sent, then": {outbox.SkipRequest{ID: waits.ID}, retrysafe.ErrConflict},
			"of one that is not there":         {outbox.SkipRequest{ID: waits.ID + 1000, Tries: 1}, retrysafe.ErrNotFound},
		} {
			_, err := skipper.Skip(k.ctx, c.skip)
			k.want("Skip "+what, err, c.want)
		}
		stale := to(retrysafe.StateUnknown, rec, later)
		stale.Expect.Revision--
		ended, err := skipper.Skip(k.ctx, outbox.SkipRequest{ID: waits.ID, Tries: 1, Settle: &stale})
		k.want("Skip with a stale record", err, nil)
		k.want("Skip with a stale record", ended.Err, retrysafe.ErrConflict)
		k.keys().same("the record that Skip returned", ended.Record, rec)
		k.finds("afterwards", held, "fresh", "due")
		if len(k.dead()) != 0 {
			k.failf("a refused skip buried a message")
		}
	},
}}
