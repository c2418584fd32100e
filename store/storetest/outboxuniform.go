package storetest

import (
	"errors"
	"fmt"
	"slices"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/outbox"
)

// manyEndings is how many messages one call ends: more than a statement of a store may
// take at once, and no power of two.
const manyEndings = 67

var uniformEndRules = []outboxRule{{
	name:   "endings of one kind are fenced",
	reason: "A call whose endings are all of one kind ends exactly the messages whose shards are held under their epochs, because a statement for such a call is held to the rules of a mixed one.",
	check: func(k *outboxKit) {
		holder := newOwner()
		held := k.lease(holder, later).Shards
		for _, fate := range uniformEnds {
			kind := fate.name
			messages := make([]outbox.Message, manyEndings)
			records := make(map[string]retrysafe.Record)
			for i := range messages {
				name := fmt.Sprintf("%s %d", kind, i)
				messages[i] = text(fmt.Sprintf("group %d", i%9), name)
				if i%3 == 0 || fate.kind == outbox.AckRetry { // a message to be sent again holds up its group
					messages[i].Group = ""
				}
				if fate.settles && i < 5 {
					rec := k.keys().create(k.keys().record(name))
					messages[i].Settles = &rec
					records[name] = rec
				}
			}
			if fate.settles {
				messages = messages[:5]
			}
			k.enqueue(messages...)
			stale := k.due(held, plenty)
			if len(stale) != len(messages) {
				k.failf("%s: %d of %d messages are due", kind, len(stale), len(messages))
			}
			next := newOwner()
			held = k.handOver(holder, next)
			holder = next
			k.fenced(kind, k.end(k.endAll(stale, fate)...))
			now := k.due(held, plenty)
			if len(now) != len(messages) {
				k.failf("%s under an old epoch: %d of %d messages are left", kind, len(now), len(messages))
			}
			for i := range now {
				if now[i].Tries != 0 {
					k.failf("%s: a refused ending was counted as a try", kind)
				}
			}
			for _, rec := range records {
				k.keys().unchanged(kind+" under an old epoch", rec)
			}

			// Half of one call is under the present epochs, the other half is not.
			half := len(now) / 2
			both := slices.Concat(k.endAll(now[:half], fate), k.endAll(old(now[half:]), fate))
			ended := k.end(both...)
			for _, e := range ended[:half] {
				k.want(kind+" beside endings under an old epoch", e.Err, nil)
			}
			k.fenced(kind+" beside endings under the present epoch", ended[half:])
			left := k.due(held, plenty)
			if len(left) != len(now)-half {
				k.failf("%s: %d messages were to be left, and %d are", kind, len(now)-half, len(left))
			}
			k.ends(k.endAll(left, fate)...)
			k.finds(kind+" of all", held)
			dead := 0
			if fate.kind == outbox.AckDead {
				dead = len(messages)
			}
			if got := len(k.dead()); got != dead {
				k.failf("%s of all: %d dead letters, want %d", kind, got, dead)
			}
			for _, l := range k.dead() {
				k.want("Dispose", k.Outbox.Dispose(k.ctx, outbox.Disposal{ID: l.ID, Revision: l.Revision}), nil)
			}
		}
	},
}}

// uniformEnd is a way in which all messages of a call end.
type uniformEnd struct {
	name    string
	kind    outbox.AckKind
	settles bool
}

var uniformEnds = []uniformEnd{
	{name: "delivery", kind: outbox.AckDelivered},
	{name: "delivery with its key", kind: outbox.AckDelivered, settles: true},
	{name: "retry", kind: outbox.AckRetry},
	{name: "dead letter", kind: outbox.AckDead},
	{name: "dead letter with its key", kind: outbox.AckDead, settles: true},
}

// endAll returns the endings of deliveries, all in one way.
func (k *outboxKit) endAll(list []outbox.Delivery, way uniformEnd) []outbox.Ack {
	all := make([]outbox.Ack, len(list))
	for i := range list {
		all[i] = ending(list[i], way.kind)
		all[i].After = later
		if s := list[i].Settles; way.settles && s != nil {
			done := to(retrysafe.StateCompleted, *s, later)
			all[i].Settle = &done
		}
	}
	return all
}

// old returns deliveries as a worker knows them that has held their shards before.
func old(list []outbox.Delivery) []outbox.Delivery {
	list = slices.Clone(list)
	for i := range list {
		list[i].Shard.Epoch--
	}
	return list
}

// fenced checks that all endings were refused.
func (k *outboxKit) fenced(what string, ended []outbox.AckResult) {
	k.t.Helper()
	for i, e := range ended {
		if !errors.Is(e.Err, outbox.ErrFenced) {
			k.failf("%s: ending %d under an old epoch: %v, want ErrFenced", what, i+1, e.Err)
		}
	}
}
