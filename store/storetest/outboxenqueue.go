package storetest

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/retrysafe/retrysafe/outbox"
)

var enqueueRules = []outboxRule{{
	name:   "message shows at commit",
	reason: "A message is visible to no worker before its transaction commits and to all workers after it, with all others of the transaction, because an effect must not go out for a write that may never be committed.",
	check: func(k *outboxKit) {
		held := k.all()
		tx := k.begin()
		k.want("Enqueue", tx.Enqueue(k.ctx, text("a", "1"), text("", "2")), nil)
		k.want("Enqueue", tx.Enqueue(k.ctx, text("a", "3")), nil)
		k.finds("before the commit", held)
		k.want("Commit", tx.Commit(k.ctx), nil)
		k.finds("after the commit", held, "1", "2", "3")
		for i := range k.Peers {
			if list, err := k.node(i+1).Due(k.ctx, held, plenty); err != nil || len(list) != 3 {
				k.failf("another node finds %q, %v", payloads(list), err)
			}
		}
	},
}, {
	name:   "message with a wait is not due early",
	reason: "A message is kept back for as long as it asks, and comes then, because its effect is meant for that time.",
	check: func(k *outboxKit) {
		held := k.all()
		wait, never := text("", "soon"), text("", "later")
		wait.Wait, never.Wait = soon, later
		k.enqueue(never, text("", "now"), wait)
		if got := payloads(k.due(held, plenty)); !slices.Contains(got, "now") || slices.Contains(got, "later") {
			k.failf("due at first are %q", got)
		}
		k.eventually("what was kept back", func() bool { return slices.Contains(payloads(k.due(held, plenty)), "soon") })
		k.finds("after a while", held, "now", "soon")
	},
}, {
	name:   "message of a rollback never was",
	reason: "A message whose transaction is rolled back is never found, because the writes that it reports did not happen.",
	check: func(k *outboxKit) {
		held := k.all()
		tx := k.begin()
		k.want("Enqueue", tx.Enqueue(k.ctx, text("a", "no"), text("", "neither")), nil)
		k.want("Rollback", tx.Rollback(k.ctx), nil)
		k.finds("after the rollback", held)
		k.enqueue(text("a", "yes"))
		k.finds("after another commit", held, "yes")
	},
}, {
	name:   "refused message poisons the transaction",
	reason: "After an Enqueue that was refused the transaction cannot commit, even if its caller ignores the error, because a write without its message is an effect that never happens.",
	check: func(k *outboxKit) {
		held := k.all()
		tx := k.begin()
		k.want("Enqueue", tx.Enqueue(k.ctx, text("a", "before")), nil)
		if err := tx.Enqueue(k.ctx, text("a", "beside"), outbox.Message{}); !errors.Is(err, outbox.ErrMessage) {
			k.failf("Enqueue of a message without a topic: %v, want ErrMessage", err)
		}
		_ = tx.Enqueue(k.ctx, text("a", "after"))
		if tx.Commit(k.ctx) == nil {
			k.failf("the transaction committed without one of its messages")
		}
		_ = tx.Rollback(k.ctx)
		k.finds("after the commit that failed", held)
	},
}, {
	name:   "message comes as it was enqueued",
	reason: "A message has the same bytes and the same key each time it is read, those of the moment of Enqueue, because the receiver recognises a repetition by them.",
	check: func(k *outboxKit) {
		held := k.all()
		rec := k.keys().create(k.keys().record("handed over"))
		for _, t := range []*time.Time{&rec.Deadline, &rec.CreatedAt, &rec.UpdatedAt} {
			*t = t.Truncate(time.Microsecond) // as records are encoded
		}
		messages := []outbox.Message{
			{Topic: "t", Group: "groups may be \x01\xff", Key: "k-1", Header: map[string]string{"A": "1", "b": "\n\xfe", "": ""}, Payload: []byte("0\x00\xff\n")},
			{Topic: strings.Repeat("t", 255), Group: strings.Repeat("g", 255), Key: strings.Repeat("k", 255), Payload: bytes.Repeat([]byte{0, 0xfe}, 1<<19)},
			{Topic: "none", Payload: []byte{}},
			{Topic: "settles", Payload: []byte("s"), Settles: &rec},
		}
		tx := k.begin()
		mine := outbox.Message{Topic: "buffer", Header: map[string]string{"A": "then"}, Payload: []byte("then")}
		k.want("Enqueue", tx.Enqueue(k.ctx, append(messages, mine)...), nil)
		copy(mine.Payload, "now!") // the caller may change it after Enqueue
		mine.Header["A"] = "now"
		k.want("Commit", tx.Commit(k.ctx), nil)
		mine.Payload, mine.Header = []byte("then"), map[string]string{"A": "then"}

		keys := map[int64]string{}
		list := k.due(held, plenty)
		if len(list) != len(messages)+1 {
			k.failf("%d of %d messages are due", len(list), len(messages)+1)
		}
		for i, want := range append(messages, mine) { // the ids of one transaction grow
			got := &list[i]
			if d := k.differs(&got.Message, &want); d != "" {
				k.failf("message %d of a transaction: %s", i+1, d)
			}
			if got.Shard.N != got.Message.Shard() || got.Tries != 0 || got.Enqueued.IsZero() || got.Age < 0 {
				k.failf("message %d of a transaction: shard %d, tries %d, enqueued %v, age %v", i+1, got.Shard.N, got.Tries, got.Enqueued, got.Age)
			}
			keys[got.ID] = got.Key
			k.ends(again(*got, 0))
		}
		for _, d := range k.due(held, plenty) {
			if d.Key != keys[d.ID] {
				k.failf("it is sent again under the key %q, and the first time was %q", d.Key, keys[d.ID])
			}
		}
	},
}, {
	name:   "late commit is found",
	reason: "A message is found however late its transaction commits, also when later ones have been delivered long since, because ids are given out before the commit and a worker that looks only at higher ones would lose it.",
	needs:  needsOvertaking,
	check: func(k *outboxKit) {
		held := k.all()
		for n := range 3 {
			slow := k.begin()
			k.want("Enqueue", slow.Enqueue(k.ctx, text("slow", fmt.Sprint("slow ", n)), text("", fmt.Sprint("free ", n))), nil)
			k.enqueue(text("fast", fmt.Sprint("fast ", n)))
			list := k.finds("beside an open transaction", held, fmt.Sprint("fast ", n))
			k.ends(ending(list[0], outbox.AckDelivered))
			k.want("Commit", slow.Commit(k.ctx), nil)
			for _, d := range k.finds("after a late commit", held, fmt.Sprint("slow ", n), fmt.Sprint("free ", n)) {
				k.ends(ending(d, outbox.AckDelivered))
			}
		}
	},
}}

// differs describes the fields in which a message is not what was enqueued.
func (k *outboxKit) differs(got, want *outbox.Message) string {
	switch {
	case got.Topic != want.Topic:
		return fmt.Sprintf("topic %q, want %q", got.Topic, want.Topic)
	case got.Group != want.Group:
		return fmt.Sprintf("group %q, want %q", got.Group, want.Group)
	case got.Key == "", want.Key != "" && got.Key != want.Key:
		return fmt.Sprintf("key %q, want %q", got.Key, want.Key)
	case !maps.Equal(got.Header, want.Header):
		return fmt.Sprintf("header %q, want %q", got.Header, want.Header)
	case !bytes.Equal(got.Payload, want.Payload):
		return fmt.Sprintf("payload of %d bytes, want %d", len(got.Payload), len(want.Payload))
	case (got.Settles == nil) != (want.Settles == nil):
		return "the record that it settles is not what it was"
	case want.Settles != nil:
		return diff(*got.Settles, *want.Settles)
	}
	return ""
}
