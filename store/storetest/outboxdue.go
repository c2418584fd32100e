package storetest

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/retrysafe/retrysafe/outbox"
)

var dueRules = []outboxRule{{
	name:   "groups keep their order",
	reason: "Messages of one group are read in the order in which they were enqueued, whatever else is between them and however few are asked for, because their receiver applies one after the other.",
	check: func(k *outboxKit) {
		held := k.all()
		for n := range 12 {
			k.enqueue(text("a", fmt.Sprint("a", n)), text("", fmt.Sprint("-", n)), text("b", fmt.Sprint("b", n)), text("a", fmt.Sprint("a", n, "+")))
		}
		var seen []string
		last := map[string]int64{}
		for {
			list := k.due(held, 7)
			if len(list) == 0 {
				break
			}
			for _, d := range list {
				if d.Group != "" && d.ID <= last[d.Group] {
					k.failf("group %q: message %d came behind %d", d.Group, d.ID, last[d.Group])
				}
				last[d.Group] = d.ID
				seen = append(seen, string(d.Payload))
				k.ends(ending(d, outbox.AckDelivered))
			}
		}
		for _, group := range []string{"a", "b"} {
			var want []string
			for n := range 12 {
				if want = append(want, fmt.Sprint(group, n)); group == "a" {
					want = append(want, fmt.Sprint(group, n, "+"))
				}
			}
			got := slices.DeleteFunc(slices.Clone(seen), func(p string) bool { return !strings.HasPrefix(p, group) })
			if !slices.Equal(got, want) {
				k.failf("group %q came as %q", group, got)
			}
		}
		if len(seen) != 48 {
			k.failf("%d of 48 messages came", len(seen))
		}
	},
}, {
	name:   "failed head holds up its group",
	reason: "While the first message of a group waits to be sent again none behind it is read, also one that is enqueued meanwhile, because the others would overtake it.",
	check: func(k *outboxKit) {
		held := k.all()
		k.enqueue(text("a", "a1"), text("a", "a2"))
		k.ends(again(k.one(held, "a1"), later))
		k.finds("behind a head that waits", held)
		k.enqueue(text("a", "a3"))
		k.finds("enqueued behind a head that waits", held)
	},
}, {
	name:   "failed head does not hold up other groups",
	reason: "While a message waits to be sent again all other groups and those without one are read, because one receiver that fails must not stop the rest.",
	check: func(k *outboxKit) {
		held := k.all()
		k.enqueue(text("a", "a1"), text("", "free 1"), text("a", "a2"), text("b", "b1"), text("", "free 2"), text("b", "b2"))
		k.ends(again(k.one(held, "a1"), later), again(k.one(held, "free 1"), later))
		k.finds("beside those that wait", held, "b1", "free 2", "b2")
	},
}, {
	name:   "failed message comes again",
	reason: "A message that is to be sent again comes when its time has come, first of its group and with its tries counted, because otherwise it is lost or overtaken.",
	check: func(k *outboxKit) {
		held := k.all()
		k.enqueue(text("a", "a1"), text("a", "a2"), text("", "free"), text("", "in a minute"))
		k.ends(again(k.one(held, "a1"), 3*soon), again(k.one(held, "free"), 3*soon), again(k.one(held, "in a minute"), time.Minute))
		began := time.Now()
		var list []outbox.Delivery
		k.eventually("what was to be sent again", func() bool { // a thousandth of a minute is over by then
			list = k.due(held, plenty)
			return len(list) >= 3 && time.Since(began) > 3*soon
		})
		if got := payloads(list); slices.Contains(got, "in a minute") {
			k.failf("%v after its end a message comes that is to wait a minute: %q", 3*soon, got)
		}
		tries := map[string]int{}
		for _, d := range list {
			tries[string(d.Payload)] = d.Tries
		}
		if tries["a1"] != 1 || tries["free"] != 1 || tries["a2"] != 0 {
			k.failf("tries are %v", tries)
		}
		if got := slices.DeleteFunc(payloads(list), func(p string) bool { return p == "free" }); !slices.Equal(got, []string{"a1", "a2"}) {
			k.failf("the group comes as %q", got)
		}
	},
}, {
	name:   "retry that is stored twice counts once",
	reason: "An AckRetry that is stored again, because its reply was lost, counts as the one try that it acknowledges, because otherwise a message that was sent once becomes a dead letter.",
	check: func(k *outboxKit) {
		held := k.all()
		k.enqueue(text("a", "a1"), text("", "free"))
		for _, payload := range []string{"a1", "free"} {
			d := k.one(held, payload)
			k.ends(again(d, soon))
			k.ends(again(d, soon))
		}
		for want := 1; want <= 2; want++ {
			var list []outbox.Delivery
			k.eventually("what was to be sent again", func() bool { list = k.due(held, plenty); return len(list) == 2 })
			for _, d := range list {
				if d.Tries != want {
					k.failf("%q was sent %d times and has %d tries", d.Payload, want, d.Tries)
				}
				k.ends(again(d, soon))
			}
		}
	},
}, {
	name:   "only the shards asked for are read",
	reason: "A read returns messages of the shards that it names and no others, because those have workers of their own.",
	check: func(k *outboxKit) {
		held := k.all()
		want := map[int]int{}
		for n := range 50 {
			m := text(fmt.Sprint("group ", n), "m")
			want[m.Shard()]++
			k.enqueue(m)
		}
		for _, s := range held {
			list := k.due([]outbox.Shard{s}, plenty)
			for _, d := range list {
				if d.Shard != s {
					k.failf("a message of shard %v is read from %v", d.Shard, s)
				}
			}
			if len(list) != want[s.N] {
				k.failf("shard %d: %d messages are read, want %d", s.N, len(list), want[s.N])
			}
		}
		if list := k.due(nil, plenty); len(list) != 0 {
			k.failf("%d messages are read of no shards", len(list))
		}
	},
}, {
	name:   "unreadable message is shown as one",
	reason: "A message that cannot be read comes with an error, its id and its shard, and all others come as ever, because it is to be buried and not to stop the rest.",
	needs:  needsDamage,
	check: func(k *outboxKit) {
		held := k.all()
		k.enqueue(text("a", "a1"), text("a", "a2"), text("b", "b1"), text("", "free"))
		bad := k.one(held, "a1")
		if err := k.Damage(bad.ID); err != nil {
			k.failf("Damage: %v", err)
		}
		list := k.due(held, plenty)
		at := slices.IndexFunc(list, func(d outbox.Delivery) bool { return d.ID == bad.ID })
		if at < 0 || list[at].Err == nil || list[at].Shard != bad.Shard {
			k.failf("the damaged one is not among %q, or says nothing of it", payloads(list))
		}
		shown := list[at]
		if shown.Group != "" && shown.Group != "a" {
			k.failf("the damaged one is of group %q", shown.Group)
		}
		got := payloads(slices.Delete(list, at, at+1))
		for _, want := range []string{"b1", "free"} {
			if !slices.Contains(got, want) {
				k.failf("beside a damaged message only %q came", got)
			}
		}
		k.ends(ending(shown, outbox.AckDead))
		k.finds("after it was buried", held, "a2", "b1", "free")
		letters := k.dead()
		if len(letters) != 1 || letters[0].ID != bad.ID || letters[0].Err == nil {
			k.failf("the dead letters are %+v", letters)
		}
	},
}}
