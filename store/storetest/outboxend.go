package storetest

import (
	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/outbox"
)

var endRules = []outboxRule{{
	name:   "delivered message is gone",
	reason: "A message that was delivered is not read again, and nothing else goes with it, because each is ended by its own id alone.",
	check: func(k *outboxKit) {
		held := k.all()
		k.enqueue(text("a", "a1"), text("a", "a2"), text("b", "b1"), text("", "free"))
		k.ends(ending(k.one(held, "a1"), outbox.AckDelivered), ending(k.one(held, "free"), outbox.AckDelivered))
		k.finds("after two were delivered", held, "a2", "b1")
		if n := len(k.dead()); n != 0 {
			k.failf("%d dead letters", n)
		}
	},
}, {
	name:   "ending twice is ending once",
	reason: "To end what is ended changes nothing and is no error, because a worker whose ending was not confirmed sends it once more.",
	check: func(k *outboxKit) {
		held := k.all()
		k.enqueue(text("a", "a1"), text("a", "a2"), text("b", "b1"), text("b", "b2"))
		a, b := ending(k.one(held, "a1"), outbox.AckDelivered), ending(k.one(held, "b1"), outbox.AckDead)
		k.ends(a, b)
		before := k.dead()
		k.ends(a, b)
		k.ends(b, a)
		k.finds("after the third time", held, "a2", "b2")
		if after := k.dead(); len(before) != 1 || len(after) != 1 || before[0].Revision != after[0].Revision || after[0].Tries != 1 {
			k.failf("a message that was buried three times is the dead letters %+v", after)
		}
	},
}, {
	name:   "message settles its key as it ends",
	reason: "The record of a key is swapped in the step that ends the message, because a crash in between would send it again or never answer.",
	check: func(k *outboxKit) {
		held := k.all()
		rec := k.keys().create(k.keys().record("handed over"))
		m := text("a", "m")
		m.Settles = &rec
		k.enqueue(m, text("a", "next"))
		done := to(retrysafe.StateCompleted, rec, later)
		done.Revision = 0 // Expect has the revision that counts
		e := ending(k.one(held, "m"), outbox.AckDelivered)
		e.Settle = &done
		ended := k.end(e)[0]
		k.want("End", ended.Err, nil)
		got := k.keys().load(rec.Ref)
		if got.State != retrysafe.StateCompleted || got.Result == nil || got.Revision <= rec.Revision {
			k.failf("the record is %v at revision %d", got.State, got.Revision)
		}
		k.keys().same("the record that End returned", ended.Record, got)
		k.finds("after it was settled", held, "next")
		k.ends(e) // as if the first call was not confirmed
		k.keys().unchanged("the same ending once more", got)
	},
}, {
	name:   "refused settlement leaves the message",
	reason: "If the record cannot be swapped its message is as it was and the record is returned, and others in the same call are not touched, because the worker looks at the record and decides anew.",
	check: func(k *outboxKit) {
		held := k.all()
		rec := k.keys().create(k.keys().record("handed over"))
		now := k.keys().swap(rec.Update()) // its owner renews the lease
		gone := k.keys().record("gone").Record
		gone.Revision = rec.Revision
		k.enqueue(text("a", "stale"), text("b", "gone"), text("c", "buried"), text("", "other"))
		stale, missing := ending(k.one(held, "stale"), outbox.AckDelivered), ending(k.one(held, "gone"), outbox.AckDelivered)
		buried, other := ending(k.one(held, "buried"), outbox.AckDead), ending(k.one(held, "other"), outbox.AckDelivered)
		old, absent := to(retrysafe.StateCompleted, rec, later), to(retrysafe.StateCompleted, gone, later)
		stale.Settle, missing.Settle, buried.Settle = &old, &absent, &old
		ended := k.end(stale, missing, buried, other)
		k.want("end with a stale record", ended[0].Err, retrysafe.ErrConflict)
		k.keys().same("the record that End returned", ended[0].Record, now)
		k.want("end with a record that is not there", ended[1].Err, retrysafe.ErrNotFound)
		k.want("burial with a stale record", ended[2].Err, retrysafe.ErrConflict)
		k.want("the end of another", ended[3].Err, nil)
		for _, d := range k.finds("afterwards", held, "stale", "gone", "buried") {
			if d.Tries != 0 {
				k.failf("a refused ending was counted as a try")
			}
		}
		if len(k.dead()) != 0 {
			k.failf("a refused ending buried a message")
		}
		k.keys().unchanged("a refused settlement", now)
		fresh := to(retrysafe.StateCompleted, now, later)
		stale.Settle = &fresh
		k.ends(stale)
	},
}, {
	name:   "message ends under its own shard",
	reason: "An ending under another shard than the message's changes nothing, whichever worker holds that shard, because the message is another worker's, which may be sending it.",
	check: func(k *outboxKit) {
		held := k.all()
		rec := k.keys().create(k.keys().record("handed over"))
		k.enqueue(text("a", "m"))
		d := k.one(held, "m")
		done := to(retrysafe.StateCompleted, rec, later)
		for _, kind := range []outbox.AckKind{outbox.AckDelivered, outbox.AckDead, outbox.AckRetry} {
			e := ending(d, kind)
			e.Settle, e.After = &done, later
			if e.Shard = held[0]; e.Shard.N == d.Shard.N {
				e.Shard = held[1]
			}
			k.end(e) // an error, or as one that is ended
		}
		k.keys().unchanged("an ending under another shard", rec)
		if got := k.finds("afterwards", held, "m")[0]; got.Tries != 0 || len(k.dead()) != 0 {
			k.failf("an ending under another shard was counted as a try, or buried the message")
		}
	},
}, {
	name:   "depth is what waits and what is dead",
	reason: "Depth counts what is committed and not ended, and reports how old it is, because alerts depend on it.",
	needs:  needsGauge,
	check: func(k *outboxKit) {
		held := k.all()
		gauge := k.Outbox.(outbox.DepthReporter)
		depth := func(what string, waiting, dead int) outbox.Depth {
			k.t.Helper()
			d, err := gauge.Depth(k.ctx)
			k.want("Depth", err, nil)
			if d.Waiting != waiting || d.Dead != dead || (d.OldestDead != 0 && dead == 0) || (d.Oldest != 0 && waiting == 0) || d.Oldest < 0 {
				k.failf("%s: %+v, want %d waiting and %d dead", what, d, waiting, dead)
			}
			return d
		}
		depth("empty", 0, 0)
		wait := text("", "kept back")
		wait.Wait = later
		k.enqueue(text("a", "1"), text("a", "2"), wait)
		if !k.OneWriter {
			tx := k.begin()
			k.want("Enqueue", tx.Enqueue(k.ctx, text("", "not committed")), nil)
		}
		depth("three", 3, 0)
		k.eventually("that something has waited", func() bool { return depth("three, later", 3, 0).Oldest >= soon })
		k.ends(ending(k.one(held, "1"), outbox.AckDead))
		d := depth("one buried", 2, 1)
		if l := k.dead()[0]; d.OldestDead > l.Age-l.Died.Sub(l.Enqueued)+tick {
			k.failf("a message that was buried at %v is dead for %v", l.Died, d.OldestDead)
		}
		k.eventually("that something is dead", func() bool { return depth("one buried, later", 2, 1).OldestDead >= soon })
		k.ends(ending(k.one(held, "2"), outbox.AckDelivered))
		if d := depth("one delivered", 1, 1); d.Oldest != 0 {
			k.failf("a message that is kept back has waited for %v", d.Oldest)
		}
		k.enqueue(text("a", "3"))
		k.ends(ending(k.one(held, "3"), outbox.AckDead))
		if d := depth("another one buried", 1, 2); d.OldestDead < soon {
			k.failf("the oldest of two dead letters is dead for %v", d.OldestDead)
		}
	},
}}
