package storetest

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/outbox"
)

// An outboxKit is what a rule of the outbox works with: steps that must succeed.
type outboxKit struct {
	OutboxHarness
	trial
	open []OutboxTx // to be rolled back when the rule ends
}

// keys returns a kit for the store of records.
func (k *outboxKit) keys() *kit {
	return Harness{Store: k.Store}.kit(k.trial)
}

// node returns the i-th handle on the outbox, modulo their number.
func (k *outboxKit) node(i int) outbox.Store {
	if i %= len(k.Peers) + 1; i > 0 {
		return k.Peers[i-1]
	}
	return k.Outbox
}

func (k *outboxKit) want(step string, got, want error) {
	k.t.Helper()
	k.keys().want(step, got, want)
}

// begin opens a transaction. It is rolled back at the end of the rule if it is still
// open.
func (k *outboxKit) begin() OutboxTx {
	k.t.Helper()
	tx, err := k.Begin(k.ctx)
	if err != nil {
		k.failf("Begin: %v", err)
	}
	k.open = append(k.open, tx)
	return tx
}

func (k *outboxKit) rollback() {
	for _, tx := range k.open {
		_ = tx.Rollback(context.WithoutCancel(k.ctx))
	}
}

// text returns a message that is identified by its payload.
func text(group, payload string) outbox.Message {
	return outbox.Message{Topic: "test", Group: group, Payload: []byte(payload)}
}

// enqueue commits a transaction with messages.
func (k *outboxKit) enqueue(messages ...outbox.Message) {
	k.t.Helper()
	tx := k.begin()
	k.want("Enqueue", tx.Enqueue(k.ctx, messages...), nil)
	k.want("Commit", tx.Commit(k.ctx), nil)
}

// lease renews a worker's lease and returns what it holds.
func (k *outboxKit) lease(worker retrysafe.Owner, term time.Duration) outbox.Lease {
	k.t.Helper()
	held, err := k.Outbox.Lease(k.ctx, worker, term)
	k.want("Lease", err, nil)
	return held
}

// all leases every shard for one worker.
func (k *outboxKit) all() []outbox.Shard {
	k.t.Helper()
	held := k.lease(newOwner(), later)
	if len(held.Shards) != outbox.Shards {
		k.failf("the only worker got %d shards, want all %d", len(held.Shards), outbox.Shards)
	}
	return held.Shards
}

// handOver makes worker from give up its shards and worker to lease them, and returns
// what that holds.
func (k *outboxKit) handOver(from, to retrysafe.Owner) []outbox.Shard {
	k.t.Helper()
	k.lease(from, 0)
	held := k.lease(to, later)
	if len(held.Shards) != outbox.Shards {
		k.failf("the only worker left got %d shards, want all %d", len(held.Shards), outbox.Shards)
	}
	return held.Shards
}

const plenty = 1000

// due reads the messages that may be sent.
func (k *outboxKit) due(shards []outbox.Shard, limit int) []outbox.Delivery {
	k.t.Helper()
	list, err := k.Outbox.Due(k.ctx, shards, limit)
	k.want("Due", err, nil)
	if len(list) > limit {
		k.failf("Due returned %d messages, and %d were asked for", len(list), limit)
	}
	return list
}

// payloads returns the payloads of messages.
func payloads(list []outbox.Delivery) (all []string) {
	for i := range list {
		all = append(all, string(list[i].Payload))
	}
	return all
}

// finds checks that exactly these payloads are due, in any order.
func (k *outboxKit) finds(what string, shards []outbox.Shard, want ...string) []outbox.Delivery {
	k.t.Helper()
	list := k.due(shards, plenty)
	got := payloads(list)
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		k.failf("%s: due are %q, want %q", what, got, want)
	}
	return list
}

// one returns the only due message with a payload.
func (k *outboxKit) one(shards []outbox.Shard, payload string) outbox.Delivery {
	k.t.Helper()
	list := k.due(shards, plenty)
	at := slices.IndexFunc(list, func(d outbox.Delivery) bool { return string(d.Payload) == payload })
	if at < 0 {
		k.failf("%q is not due; due are %q", payload, payloads(list))
	}
	return list[at]
}

// ending returns an end of a delivery.
func ending(d outbox.Delivery, fate outbox.AckKind) outbox.Ack {
	e := outbox.Ack{ID: d.ID, Shard: d.Shard, Group: d.Group, Kind: fate, Tries: d.Tries + 1}
	if fate != outbox.AckDelivered {
		e.Why = "no such account"
	}
	return e
}

// again returns an end after which the message is sent again after a while.
func again(d outbox.Delivery, after time.Duration) outbox.Ack {
	e := ending(d, outbox.AckRetry)
	e.After = after
	return e
}

// end ends deliveries and returns what became of each.
func (k *outboxKit) end(endings ...outbox.Ack) []outbox.AckResult {
	k.t.Helper()
	ended, err := k.Outbox.Ack(k.ctx, endings)
	k.want("End", err, nil)
	if len(ended) != len(endings) {
		k.failf("End of %d returned %d", len(endings), len(ended))
	}
	return ended
}

// ends ends deliveries, none of which may be refused.
func (k *outboxKit) ends(endings ...outbox.Ack) {
	k.t.Helper()
	for i, e := range k.end(endings...) {
		k.want(fmt.Sprintf("end %d of %d", i+1, len(endings)), e.Err, nil)
	}
}

// dead reads the dead letters.
func (k *outboxKit) dead() []outbox.DeadLetter {
	k.t.Helper()
	list, err := k.Outbox.DeadLetters(k.ctx, 0, plenty)
	k.want("Dead", err, nil)
	return list
}

// bury enqueues a message that ends as a dead letter.
func (k *outboxKit) bury(shards []outbox.Shard, m outbox.Message) outbox.DeadLetter {
	k.t.Helper()
	k.enqueue(m)
	d := k.one(shards, string(m.Payload))
	k.ends(ending(d, outbox.AckDead))
	list := k.dead()
	at := slices.IndexFunc(list, func(l outbox.DeadLetter) bool { return l.ID == d.ID })
	if at < 0 {
		k.failf("a buried message is no dead letter")
	}
	return list[at]
}

// eventually waits for a condition that becomes true with the store's clock.
func (k *outboxKit) eventually(what string, ok func() bool) {
	k.t.Helper()
	for !ok() {
		if k.Advance != nil {
			k.Advance(soon)
		}
		select {
		case <-time.After(poll):
		case <-k.ctx.Done():
			k.failf("%s: it does not come", what)
		}
	}
}
