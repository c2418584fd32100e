package storetest

import (
	"errors"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/outbox"
)

var leaseRules = []outboxRule{{
	name:   "shards are shared out",
	reason: "Each worker gets its fair share and gives up what is beyond it, because one that keeps everything leaves the others idle, and one that has stopped must hold nothing.",
	check: func(k *outboxKit) {
		a, b, c := newOwner(), newOwner(), newOwner()
		k.holds(k.lease(a, later), outbox.Shards, 1)
		k.holds(k.lease(b, later), 0, 2)
		k.holds(k.lease(a, later), outbox.Shards/2, 2)
		k.holds(k.lease(b, later), outbox.Shards/2, 2)
		third := (outbox.Shards + 2) / 3
		k.holds(k.lease(c, later), 0, 3)
		k.holds(k.lease(a, later), third, 3)
		k.holds(k.lease(b, later), third, 3)
		k.holds(k.lease(c, later), outbox.Shards-2*third, 3)
		k.lease(a, 0)
		k.holds(k.lease(b, later), outbox.Shards/2, 2)
		k.holds(k.lease(c, later), outbox.Shards/2, 2)
	},
}, {
	name:   "shard has one holder",
	reason: "No shard has two holders while their terms last, however many ask at once, because two workers would send one message at the same time and break the order of its group.",
	check: func(k *outboxKit) {
		for range 5 {
			workers := [8]retrysafe.Owner{}
			for i := range workers {
				workers[i] = newOwner()
			}
			var held [len(workers)]outbox.Lease
			race(len(workers), func(i int) (_ retrysafe.Record, err error) {
				held[i], err = k.node(i).Lease(k.ctx, workers[i], later)
				return retrysafe.Record{}, err
			})
			k.apart("after a race", held[:])
			for round := range 3 { // until all workers have their shares
				for i, w := range workers {
					held[i] = k.lease(w, later)
				}
				if round == 2 {
					k.apart("in the end", held[:])
				}
			}
			for _, w := range workers {
				k.lease(w, 0)
			}
		}
	},
}, {
	name:   "epochs grow",
	reason: "A shard that is taken has a higher epoch than ever before, and one that is renewed keeps its own, because the epoch distinguishes a worker that was away for too long from the present one.",
	check: func(k *outboxKit) {
		a, b := newOwner(), newOwner()
		first := k.lease(a, later).Shards
		k.epochs("renewed", first, k.lease(a, later).Shards, func(old, now int64) bool { return old == now })
		second := k.handOver(a, b)
		higher := func(old, now int64) bool { return now > old }
		k.epochs("taken by another", first, second, higher)
		k.epochs("taken back", second, k.handOver(b, a), higher)
		third := k.handOver(a, a)
		k.epochs("given back and taken by the same", second, third, higher)
	},
}, {
	name:   "lease that has ended is taken over",
	reason: "When the term of a worker has ended without a renewal its shards go to others under new epochs, because it may be dead and its messages wait.",
	check: func(k *outboxKit) {
		a, b := newOwner(), newOwner()
		k.enqueue(text("a", "m"))
		old := k.lease(a, soon).Shards
		var held outbox.Lease
		k.eventually("the shards of a worker that is gone", func() bool { held = k.lease(b, later); return len(held.Shards) == outbox.Shards })
		k.epochs("taken over", old, held.Shards, func(old, now int64) bool { return now > old })
		k.finds("by the new worker", held.Shards, "m")
		k.finds("by the old worker", old)
	},
}, {
	name:   "stale epoch reads nothing",
	reason: "Under an epoch that is over nothing is read, because the shard has another worker, which sends its messages.",
	check: func(k *outboxKit) {
		a, b := newOwner(), newOwner()
		old := k.lease(a, later).Shards
		k.enqueue(text("a", "m"), text("", "free"))
		k.finds("by the holder", old, "m", "free")
		held := k.handOver(a, b)
		k.finds("under the old epochs", old)
		k.finds("under the new ones", held, "m", "free")
		mixed := append([]outbox.Shard(nil), held...)
		free := k.one(held, "free")
		for i := range mixed {
			if mixed[i].N != free.Shard.N {
				mixed[i].Epoch--
			}
		}
		for _, d := range k.due(mixed, plenty) {
			if d.Shard != free.Shard {
				k.failf("under a mixture of epochs a message of %v is read", d.Shard)
			}
		}
	},
}, {
	name:   "stale epoch ends nothing",
	reason: "Under an epoch that is over nothing is ended, settled or buried, and others in the same call are not touched by that, because the present worker may be about to send the message.",
	check: func(k *outboxKit) {
		a, b := newOwner(), newOwner()
		old := k.lease(a, later).Shards
		rec := k.keys().create(k.keys().record("handed over"))
		settles := text("s", "settles")
		settles.Settles = &rec
		k.enqueue(text("a", "1"), text("b", "2"), text("c", "3"), settles, text("d", "other"))
		was := k.finds("by the holder", old, "1", "2", "3", "settles", "other")
		held := k.handOver(a, b)
		stale := map[string]outbox.Delivery{}
		for _, d := range was {
			stale[string(d.Payload)] = d
		}
		zombie := ending(stale["settles"], outbox.AckDelivered)
		done := to(retrysafe.StateCompleted, rec, later)
		zombie.Settle = &done
		ended := k.end(ending(stale["1"], outbox.AckDelivered), again(stale["2"], later), ending(stale["3"], outbox.AckDead), zombie,
			ending(k.one(held, "other"), outbox.AckDelivered))
		for i, e := range ended[:4] {
			if !errors.Is(e.Err, outbox.ErrFenced) {
				k.failf("ending %d under an old epoch: %v, want ErrFenced", i+1, e.Err)
			}
		}
		k.want("the ending under the present epoch", ended[4].Err, nil)
		for _, d := range k.finds("by the new worker", held, "1", "2", "3", "settles") {
			if d.Tries != 0 {
				k.failf("a refused ending was counted as a try")
			}
		}
		if len(k.dead()) != 0 {
			k.failf("a refused ending buried a message")
		}
		k.keys().unchanged("an ending under an old epoch", rec)
	},
}}

// apart checks that every shard has exactly one holder.
func (k *outboxKit) apart(when string, held []outbox.Lease) {
	k.t.Helper()
	holder := map[int]int{}
	for i, h := range held {
		for _, s := range h.Shards {
			if other, taken := holder[s.N]; taken {
				k.failf("%s shard %d is held by workers %d and %d", when, s.N, other, i)
			}
			holder[s.N] = i
		}
	}
	if len(holder) != outbox.Shards {
		k.failf("%s %d of %d shards are held", when, len(holder), outbox.Shards)
	}
}

func (k *outboxKit) holds(held outbox.Lease, shards, workers int) {
	k.t.Helper()
	if len(held.Shards) != shards || held.Workers != workers {
		k.failf("one of %d workers holds %d shards and is told of %d workers, want %d shards", workers, len(held.Shards), held.Workers, shards)
	}
}

// epochs compares the epochs of shards before and after.
func (k *outboxKit) epochs(what string, before, after []outbox.Shard, ok func(old, now int64) bool) {
	k.t.Helper()
	was := map[int]int64{}
	for _, s := range before {
		was[s.N] = s.Epoch
	}
	for _, s := range after {
		if !ok(was[s.N], s.Epoch) {
			k.failf("shard %d, %s: the epoch was %d and is %d", s.N, what, was[s.N], s.Epoch)
		}
	}
}
