package storetest

import (
	"fmt"
	"slices"
	"time"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/outbox"
)

func needsReceipts(h OutboxHarness) string {
	if _, ok := h.Outbox.(outbox.ReceiptKeeper); !ok {
		return "the outbox keeps no receipts"
	}
	return ""
}

// kept returns an end of a delivery that leaves a receipt for a while.
func kept(d outbox.Delivery, keep time.Duration, providerRef string) outbox.Ack {
	e := ending(d, outbox.AckDelivered)
	e.Keep, e.Message, e.ProviderRef = keep, &d.Message, providerRef
	return e
}

// receipts reads receipts.
func (k *outboxKit) receipts(q outbox.ReceiptQuery) []outbox.KeptReceipt {
	k.t.Helper()
	if q.Limit == 0 {
		q.Limit = plenty
	}
	list, err := k.Outbox.(outbox.ReceiptKeeper).Receipts(k.ctx, q)
	k.want("Receipts", err, nil)
	if len(list) > q.Limit {
		k.failf("Receipts returned %d, and %d were asked for", len(list), q.Limit)
	}
	return list
}

// refsOf returns the receivers' names in receipts.
func refsOf(list []outbox.KeptReceipt) (refs []string) {
	for i := range list {
		refs = append(refs, list[i].ProviderRef)
	}
	return refs
}

// hasReceipts checks that exactly the receipts with these receivers' names are there, in
// this order.
func (k *outboxKit) hasReceipts(what string, q outbox.ReceiptQuery, want ...string) []outbox.KeptReceipt {
	k.t.Helper()
	list := k.receipts(q)
	if got := refsOf(list); !slices.Equal(got, want) {
		k.failf("%s: the receipts are %q, want %q", what, got, want)
	}
	return list
}

// settling enqueues a message that settles a key, and returns both.
func (k *outboxKit) settling(shards []outbox.Shard, key string) (outbox.Delivery, retrysafe.Record) {
	k.t.Helper()
	rec := k.keys().create(k.keys().record(key))
	m := text("", key)
	m.Settles = &rec
	k.enqueue(m)
	return k.one(shards, key), rec
}

var receiptRules = []outboxRule{{
	name:   "delivered message leaves its receipt",
	reason: "If its end asks for a receipt, a delivered message leaves one with all that was given, byte for byte, and a message that ends in another way or without asking leaves none, because a receipt proves a delivery.",
	needs:  needsReceipts,
	check: func(k *outboxKit) {
		held := k.all()
		odd := outbox.Message{Topic: "t\xff", Group: "g", Key: "k\x80ü", Payload: []byte("odd")}
		k.enqueue(odd, text("a", "unasked"), text("b", "again"), text("c", "dead"))
		first := again(k.one(held, "odd"), 0)
		first.ProviderRef = "ch_\xfe"
		k.ends(first)
		d := k.one(held, "odd")
		more, dead := kept(k.one(held, "again"), later, "no"), kept(k.one(held, "dead"), later, "no")
		more.Kind, more.After, dead.Kind = outbox.AckRetry, later, outbox.AckDead
		k.ends(kept(d, later, ""), ending(k.one(held, "unasked"), outbox.AckDelivered), more, dead)
		r := k.hasReceipts("after one end that asks", outbox.ReceiptQuery{}, "ch_\xfe")[0]
		if r.ID != d.ID || r.Topic != odd.Topic || r.Key != odd.Key || r.Settled != (retrysafe.Ref{}) {
			k.failf("the receipt is %+v, of the message %+v", r, odd)
		}
		if r.Delivered.Before(d.Enqueued) || !r.Expires.Equal(r.Delivered.Add(later)) {
			k.failf("the receipt is from %v until %v, of a message of %v", r.Delivered, r.Expires, d.Enqueued)
		}
		rec := k.keys().create(k.keys().record("key"))
		m := text("", "settles")
		m.Settles = &rec
		k.enqueue(m)
		done := to(retrysafe.StateCompleted, rec, later)
		failed := again(k.one(held, "settles"), 0)
		failed.ProviderRef = "ch_1" // the last name that was given counts
		k.ends(failed)
		e := kept(k.one(held, "settles"), later, "ch_2")
		e.Settle = &done
		k.ends(e)
		if r := k.hasReceipts("of the key", outbox.ReceiptQuery{Settled: rec.Ref}, "ch_2")[0]; r.Settled != rec.Ref {
			k.failf("the receipt is of %v, want %v", r.Settled, rec.Ref)
		}
	},
}, {
	name:   "receipt is stored with the end of its message",
	reason: "An end that is refused leaves no receipt, one that is repeated leaves the first, and no message ends without the receipt that was asked for, because both are one step.",
	needs:  needsReceipts,
	check: func(k *outboxKit) {
		keeper := newOwner()
		held := k.lease(keeper, later).Shards
		messages := make([]outbox.Message, manyEndings)
		var refs []string
		for i := range messages {
			messages[i] = text("", fmt.Sprint("m", i))
			refs = append(refs, fmt.Sprint("ref of m", i))
		}
		k.enqueue(messages...)
		all := func(list []outbox.Delivery) (acks []outbox.Ack) {
			for _, d := range list {
				acks = append(acks, kept(d, later, "ref of "+string(d.Payload)))
			}
			return acks
		}
		stale := all(k.due(held, plenty))
		held = k.handOver(keeper, newOwner())
		k.fenced("with receipts", k.end(stale...))
		k.hasReceipts("after ends under an old epoch", outbox.ReceiptQuery{})
		now := all(k.due(held, plenty))
		k.ends(now...)
		k.finds("afterwards", held)
		before := k.receipts(outbox.ReceiptQuery{})
		got := refsOf(before)
		slices.Sort(got)
		slices.Sort(refs)
		if !slices.Equal(got, refs) {
			k.failf("%d messages have left the receipts %q", len(refs), got)
		}
		for i := range now {
			now[i].ProviderRef = "another"
		}
		k.ends(now...)
		if after := k.receipts(outbox.ReceiptQuery{}); !slices.EqualFunc(before, after, sameReceipt) {
			k.failf("an end that was repeated has changed a receipt: %+v, then %+v", before, after)
		}

		d, rec := k.settling(held, "handed over")
		old := to(retrysafe.StateCompleted, rec, later)
		k.keys().swap(rec.Update()) // its owner renews the lease
		e := kept(d, later, "refused")
		e.Settle = &old
		k.want("end with a stale record", k.end(e)[0].Err, retrysafe.ErrConflict)
		k.hasReceipts("after a settlement that was refused", outbox.ReceiptQuery{Settled: rec.Ref})
	},
}, {
	name:   "receipts are found",
	reason: "Receipts are found by the receiver's name for the effect and by the key, and listed in the order of their ids page by page, because a provider knows only its own name.",
	needs:  needsReceipts,
	check: func(k *outboxKit) {
		held := k.all()
		var first, second retrysafe.Record
		for i, ref := range []string{"ch_1", "ch_2", "", "ch_1", "ch_3"} {
			d, rec := k.settling(held, fmt.Sprint("key ", i))
			switch i {
			case 0:
				first = rec
			case 1:
				second = rec
			case 3: // another message of the first key
				d.Settles = &first
			}
			k.ends(kept(d, later, ref))
		}
		k.enqueue(text("", "without a key"))
		k.ends(kept(k.one(held, "without a key"), later, "ch_2"))
		all := k.hasReceipts("all", outbox.ReceiptQuery{}, "ch_1", "ch_2", "", "ch_1", "ch_3", "ch_2")
		k.hasReceipts("by the receiver's name", outbox.ReceiptQuery{ProviderRef: "ch_1"}, "ch_1", "ch_1")
		k.hasReceipts("by a name that is not there", outbox.ReceiptQuery{ProviderRef: "ch"})
		k.hasReceipts("by key", outbox.ReceiptQuery{Settled: first.Ref}, "ch_1", "ch_1")
		k.hasReceipts("by key and name", outbox.ReceiptQuery{Settled: second.Ref, ProviderRef: "ch_2"}, "ch_2")
		k.hasReceipts("by key and another name", outbox.ReceiptQuery{Settled: second.Ref, ProviderRef: "ch_1"})
		k.hasReceipts("by the key of another scope", outbox.ReceiptQuery{Settled: retrysafe.Ref{Scope: "other", Key: first.Key}})
		k.hasReceipts("the first page", outbox.ReceiptQuery{Limit: 2}, "ch_1", "ch_2")
		k.hasReceipts("the next page", outbox.ReceiptQuery{Limit: 2, After: all[1].ID}, "", "ch_1")
		k.hasReceipts("a page of one name", outbox.ReceiptQuery{ProviderRef: "ch_1", After: all[0].ID}, "ch_1")
		k.hasReceipts("a page of one key", outbox.ReceiptQuery{Settled: first.Ref, Limit: 1}, "ch_1")
		none, err := k.Outbox.(outbox.ReceiptKeeper).Receipts(k.ctx, outbox.ReceiptQuery{})
		k.want("Receipts without a limit", err, nil)
		if len(none) > 0 {
			k.failf("a limit of zero returned %d receipts", len(none))
		}
	},
}, {
	name:   "receipt expires",
	reason: "A receipt that has expired is in no list, and a purge deletes it, never more than its limit and never one that has not expired, because it may name a person and is kept no longer than was said.",
	needs:  needsReceipts,
	check: func(k *outboxKit) {
		held := k.all()
		for i := range 5 {
			k.enqueue(text("", fmt.Sprint("m", i)))
			k.ends(kept(k.one(held, fmt.Sprint("m", i)), soon, "short"))
		}
		d, rec := k.settling(held, "kept")
		k.ends(kept(d, later, "long"))
		k.eventually("that receipts expire", func() bool { return len(k.receipts(outbox.ReceiptQuery{})) == 1 })
		k.hasReceipts("by an expired name", outbox.ReceiptQuery{ProviderRef: "short"})
		for _, step := range []struct{ limit, deleted int }{{2, 2}, {plenty, 3}, {plenty, 0}} {
			n, err := k.Store.Purge(k.ctx, step.limit)
			k.want("Purge", err, nil)
			if n != step.deleted {
				k.failf("Purge of %d has deleted %d, want %d", step.limit, n, step.deleted)
			}
		}
		k.hasReceipts("after the purge", outbox.ReceiptQuery{}, "long")
		k.hasReceipts("of a key after the purge", outbox.ReceiptQuery{Settled: rec.Ref}, "long")
	},
}, {
	name:   "forgotten receipts are gone",
	reason: "The receipts of a key are deleted when that is asked for, those of others and of none stay, and to ask again is no error, because content that has to be erased may be in them.",
	needs:  needsReceipts,
	check: func(k *outboxKit) {
		held := k.all()
		first, rec := k.settling(held, "to be erased")
		second, _ := k.settling(held, "the same key")
		other, kept2 := k.settling(held, "another")
		second.Settles = &rec
		k.enqueue(text("", "without a key"))
		k.ends(kept(first, later, "1"), kept(second, later, "2"), kept(other, later, "3"), kept(k.one(held, "without a key"), later, "4"))
		keeper := k.Outbox.(outbox.ReceiptKeeper)
		for range 2 {
			k.want("ForgetReceipts", keeper.ForgetReceipts(k.ctx, rec.Ref), nil)
			k.hasReceipts("after those of a key were forgotten", outbox.ReceiptQuery{}, "3", "4")
		}
		k.want("ForgetReceipts of no key", keeper.ForgetReceipts(k.ctx, retrysafe.Ref{}), nil)
		k.hasReceipts("after those of no key were forgotten", outbox.ReceiptQuery{}, "3", "4")
		k.hasReceipts("of another key", outbox.ReceiptQuery{Settled: kept2.Ref}, "3")
	},
}}

func sameReceipt(a, b outbox.KeptReceipt) bool {
	return a.ID == b.ID && a.Topic == b.Topic && a.Key == b.Key && a.Settled == b.Settled && a.ProviderRef == b.ProviderRef &&
		a.Delivered.Equal(b.Delivered) && a.Expires.Equal(b.Expires)
}
