package storetest

import (
	"errors"
	"fmt"
	"slices"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/outbox"
)

// failing lists messages that wait to be sent again.
func (k *outboxKit) failing(after int64, limit int) []outbox.DeadLetter {
	k.t.Helper()
	list, err := k.Outbox.(outbox.Skipper).Failing(k.ctx, after, limit)
	k.want("Failing", err, nil)
	if len(list) > limit {
		k.failf("Failing returned %d messages, and %d were asked for", len(list), limit)
	}
	return list
}

var failingRules = []outboxRule{{
	name:   "letters are as old as their messages",
	reason: "A dead letter, and a message that waits to be sent again, has its age since it was enqueued, because a letter that is older than the memory of its receiver is not sent again.",
	check: func(k *outboxKit) {
		held := k.all()
		k.enqueue(text("a", "buried"), text("b", "waits"))
		k.eventually("some time", func() bool { return k.one(held, "buried").Age >= 3*soon && k.one(held, "waits").Age >= 3*soon })
		buried, waits := k.one(held, "buried"), k.one(held, "waits")
		k.ends(ending(buried, outbox.AckDead), again(waits, later))
		if l := k.dead()[0]; l.Age < buried.Age || !l.Enqueued.Equal(buried.Enqueued) {
			k.failf("a message that was %v old when it was buried is a letter that is %v old", buried.Age, l.Age)
		}
		if needsSkipper(k.OutboxHarness) != "" {
			return
		}
		if list := k.failing(0, plenty); len(list) != 1 || list[0].Age < waits.Age || !list[0].Enqueued.Equal(waits.Enqueued) {
			k.failf("a message that was %v old when it failed is listed as %+v", waits.Age, list)
		}
	},
}, {
	name:   "failing messages are listed in order",
	reason: "Messages that have failed and wait are listed in the order of their ids, page by page, and no others are, because an operator skips what is on the list, and a worker may be sending any other message.",
	needs:  needsSkipper,
	check: func(k *outboxKit) {
		held := k.all()
		var want, got []int64
		for n := range 5 {
			payload := fmt.Sprint("m", n)
			k.enqueue(text(fmt.Sprint("group ", n%2), payload), text("", "free "+payload))
			d := k.one(held, "free "+payload)
			k.ends(again(d, later))
			want = append(want, d.ID)
		}
		wait := text("", "kept back")
		wait.Wait = later
		k.enqueue(wait, text("", "due again"), text("", "delivered"), text("", "dead"))
		k.ends(again(k.one(held, "due again"), 0), ending(k.one(held, "delivered"), outbox.AckDelivered), ending(k.one(held, "dead"), outbox.AckDead))
		for after := int64(0); len(got) <= len(want); {
			page := k.failing(after, 2)
			if len(page) == 0 {
				break
			}
			for i := range page {
				got = append(got, page[i].ID)
			}
			after = page[len(page)-1].ID
		}
		if !slices.Equal(got, want) {
			k.failf("listed are %v, want %v", got, want)
		}
		if one := k.failing(want[2]-1, 1); len(one) != 1 || one[0].ID != want[2] {
			k.failf("behind message %d comes %+v, want message %d", want[2]-1, one, want[2])
		}
	},
}, {
	name:   "letter has the last name of its effect",
	reason: "A skipped message has the receiver's name that was given with the skip, or the last one before it, also after it was sent again, because an operator looks for the effect by that name.",
	needs:  needsSkipper,
	check: func(k *outboxKit) {
		held := k.all()
		skipper := k.Outbox.(outbox.Skipper)
		k.enqueue(text("a", "m"))
		for n, c := range []struct{ failed, skipped, want string }{{"ch_1", "ch_2", "ch_2"}, {"", "", "ch_2"}, {"ch_3", "", "ch_3"}} {
			failed := again(k.one(held, "m"), later)
			failed.ProviderRef = c.failed
			k.ends(failed)
			ended, err := skipper.Skip(k.ctx, outbox.SkipRequest{ID: failed.ID, Tries: failed.Tries, Why: "skipped", ProviderRef: c.skipped})
			k.want("Skip", errors.Join(err, ended.Err), nil)
			list := k.dead()
			if len(list) != 1 || list[0].ProviderRef != c.want || list[0].Revision == 0 {
				k.failf("skipped for the %d. time, the letters are %+v, want one with the name %q", n+1, list, c.want)
			}
			k.want("Dispose", k.Outbox.Dispose(k.ctx, outbox.Disposal{ID: list[0].ID, Revision: list[0].Revision, Redrive: true}), nil)
		}
	},
}, {
	name:   "records and receipts share the limit of a purge",
	reason: "One purge deletes records and receipts together up to its limit and counts both, because its caller goes in small steps and stops when one deletes less.",
	needs:  needsReceipts,
	check: func(k *outboxKit) {
		held := k.all()
		for i := range 3 {
			k.enqueue(text("", fmt.Sprint("m", i)))
			k.ends(kept(k.one(held, fmt.Sprint("m", i)), soon, "short"))
			last := k.keys().create(in(retrysafe.StateCompleted, k.keys().record(fmt.Sprint("k", i)), soon))
			k.eventually("that a record is due", func() bool {
				r, err := k.Store.Load(k.ctx, last.Ref)
				k.want("Load", err, nil)
				return r.Due()
			})
		}
		k.eventually("that receipts expire", func() bool { return len(k.receipts(outbox.ReceiptQuery{})) == 0 })
		for _, want := range []int{4, 2, 0} {
			if n, err := k.Store.Purge(k.ctx, 4); err != nil || n != want {
				k.failf("Purge with limit 4: got %d, %v, want %d", n, err, want)
			}
		}
	},
}}
