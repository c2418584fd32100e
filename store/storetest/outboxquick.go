package storetest

import (
	"fmt"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/retrysafe/retrysafe/outbox"
)

func needsQuick(h OutboxHarness) string {
	if _, ok := h.Outbox.(outbox.QuickReader); !ok {
		return "the outbox has no quick read"
	}
	return ""
}

func needsNotifier(h OutboxHarness) string {
	if _, ok := h.Outbox.(outbox.CommitNotifier); !ok {
		return "the outbox tells of no commits"
	}
	return ""
}

// needsQuickAndOvertaking: the rule is about a quick read, and a transaction that commits
// behind a later one.
func needsQuickAndOvertaking(h OutboxHarness) string {
	if why := needsQuick(h); why != "" {
		return why
	}
	return needsOvertaking(h)
}

// quick reads quickly what is due and not known.
func (k *outboxKit) quick(shards []outbox.Shard, known []outbox.Delivery, limit int) (list []outbox.Delivery, all bool) {
	k.t.Helper()
	ids := make([]int64, len(known))
	for i := range known {
		ids[i] = known[i].ID
	}
	list, all, err := k.Outbox.(outbox.QuickReader).DueExcept(k.ctx, shards, ids, limit)
	k.want("DueExcept", err, nil)
	if len(list) > limit {
		k.failf("DueExcept returned %d messages, and %d were asked for", len(list), limit)
	}
	for i := range list {
		if slices.Contains(ids, list[i].ID) {
			k.failf("DueExcept returned message %d, which is known", list[i].ID)
		}
		if i > 0 && list[i].ID <= list[i-1].ID {
			k.failf("DueExcept returned message %d behind %d", list[i].ID, list[i-1].ID)
		}
	}
	return list, all
}

var quickRules = []outboxRule{{
	name:   "quick reads find everything",
	reason: "Where no message has failed, quick reads return all messages as they were enqueued, each group in its order, also if there are many, and say that nothing is left out, because a worker reads with nothing else then.",
	needs:  needsQuick,
	check: func(k *outboxKit) {
		held := k.all()
		var want []string
		for n := range 40 {
			var batch []outbox.Message
			for g := range 5 {
				payload := fmt.Sprint(g, " ", n)
				group := []string{"", "a", "b", "c", "d"}[g]
				batch, want = append(batch, text(group, payload)), append(want, payload)
			}
			k.enqueue(batch...)
		}
		var known []outbox.Delivery
		for len(known) < len(want) {
			list, all := k.quick(held, known, 30)
			if len(list) == 0 || !all {
				k.failf("%d of %d messages are found, then %d more; all of them: %t", len(known), len(want), len(list), all)
			}
			known = append(known, list...)
		}
		if list, all := k.quick(held, known, 30); len(list) > 0 || !all {
			k.failf("%d messages are found although all are known; all of them: %t", len(list), all)
		}
		if got := payloads(known); !slices.Equal(got, want) {
			k.failf("the messages come as %q", got)
		}
		read := k.due(held, plenty)
		for i := range known {
			at := slices.IndexFunc(read, func(d outbox.Delivery) bool { return d.ID == known[i].ID })
			if at < 0 || read[at].Shard != known[i].Shard || read[at].Key != known[i].Key || !read[at].Enqueued.Equal(known[i].Enqueued) {
				k.failf("message %d comes as %+v", known[i].ID, known[i])
			}
		}
	},
}, {
	name:   "quick reads find large messages",
	reason: "A quick read returns large messages like others, as they were enqueued and under the epochs of their shards, because what comes under another epoch is never acknowledged.",
	needs:  needsQuick,
	check: func(k *outboxKit) {
		held := k.all()
		var want []string
		for _, group := range []string{"", "a", "b"} {
			large := group + strings.Repeat("x", 200<<10)
			want = append(want, large)
			k.enqueue(text(group, large))
		}
		list, _ := k.quick(held, nil, plenty)
		if !slices.Equal(payloads(list), want) {
			k.failf("%d of %d large messages come as they were enqueued", len(list), len(want))
		}
		for _, d := range list {
			if !slices.Contains(held, d.Shard) {
				k.failf("a large message comes under %v, and %v are held", d.Shard, held)
			}
		}
	},
}, {
	name:   "quick reads keep the order behind a failure",
	reason: "A quick read returns no message of a group before another that waits to be sent again or is due again, and says if it has left out one that is due, because the receiver would get them in another order, or the worker would not look for it.",
	needs:  needsQuick,
	check: func(k *outboxKit) {
		held := k.all()
		k.enqueue(text("a", "a1"), text("", "free"), text("a", "a2"), text("b", "b1"))
		k.ends(again(k.one(held, "a1"), soon))
		k.enqueue(text("a", "a3"), text("c", "c1"))
		k.ends(again(k.one(held, "c1"), later))
		k.enqueue(text("c", "c2"))
		if list, _ := k.quick(held, nil, plenty); slices.ContainsFunc(list, func(d outbox.Delivery) bool { return d.Group == "c" }) {
			k.failf("while c1 waits come %q", payloads(list))
		}
		if list, _ := k.quick(held, nil, plenty); slices.ContainsFunc(list, func(d outbox.Delivery) bool { return d.Group == "a" && d.Tries == 0 && list[0].Tries == 0 }) {
			k.failf("behind a1, which waits, come %q", payloads(list))
		}
		k.eventually("what was to be sent again", func() bool { return len(k.due(held, plenty)) == 5 })
		list, all := k.quick(held, nil, plenty)
		group := slices.DeleteFunc(payloads(list), func(p string) bool { return p[0] != 'a' })
		if len(group) > 0 && group[0] != "a1" || all && len(list) != 5 {
			k.failf("a1 is due again, and %q come; all of them: %t", payloads(list), all)
		}
	},
}, {
	name:   "quick reads find late commits",
	reason: "A message that commits behind others with higher ids is found by the next quick read, because the worker has no other way to it.",
	needs:  needsQuickAndOvertaking,
	check: func(k *outboxKit) {
		held := k.all()
		late := k.begin()
		k.want("Enqueue", late.Enqueue(k.ctx, text("a", "late")), nil)
		k.enqueue(text("b", "early"))
		known, _ := k.quick(held, nil, plenty)
		if got := payloads(known); !slices.Equal(got, []string{"early"}) {
			k.failf("before the late one commits %q come", got)
		}
		k.want("Commit", late.Commit(k.ctx), nil)
		k.enqueue(text("a", "behind it"))
		if list, _ := k.quick(held, known, plenty); !slices.Equal(payloads(list), []string{"late", "behind it"}) {
			k.failf("after the late one has committed %q come", payloads(list))
		}
	},
}, {
	name:   "quick reads keep to the lease",
	reason: "A quick read returns messages of the shards that it names, under the epochs that it names, and none that is kept back, because the others are not this worker's, or not yet.",
	needs:  needsQuick,
	check: func(k *outboxKit) {
		first, second := newOwner(), newOwner()
		old := k.lease(first, later).Shards
		wait := text("", "kept back")
		wait.Wait = later
		k.enqueue(wait)
		for n := range 50 {
			k.enqueue(text(fmt.Sprint("group ", n), "m"))
		}
		held := k.handOver(first, second)
		if list, _ := k.quick(old, nil, plenty); len(list) > 0 {
			k.failf("%d messages come under epochs that have ended", len(list))
		}
		some := held[:outbox.Shards/2]
		list, _ := k.quick(some, nil, plenty)
		for _, d := range list {
			if !slices.Contains(some, d.Shard) {
				k.failf("a message of shard %v is read from %v", d.Shard, some)
			}
		}
		rest, _ := k.quick(held[outbox.Shards/2:], nil, plenty)
		if len(list)+len(rest) != 50 {
			k.failf("%d messages come from half of the shards and %d from the others, want 50", len(list), len(rest))
		}
	},
}}

var notifyRules = []outboxRule{{
	name:   "commit wakes workers",
	reason: "A store that says when messages were committed says so after the commit of a transaction with messages, until it is told to stop, because a worker that waits for it would read too early, or for nothing.",
	needs:  needsNotifier,
	check: func(k *outboxKit) {
		var woken atomic.Int64
		stop := k.Outbox.(outbox.CommitNotifier).NotifyCommits(func() { woken.Add(1) })
		tx := k.begin()
		k.want("Enqueue", tx.Enqueue(k.ctx, text("a", "a1")), nil)
		if n := woken.Load(); n != 0 {
			k.failf("woken %d times before the commit", n)
		}
		k.want("Commit", tx.Commit(k.ctx), nil)
		before := woken.Load()
		if before == 0 {
			k.failf("not woken by the commit")
		}
		stop()
		k.enqueue(text("a", "a2"))
		if n := woken.Load(); n != before {
			k.failf("woken after it was stopped")
		}
	},
}}
