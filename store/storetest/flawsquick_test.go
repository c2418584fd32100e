package storetest_test

import (
	"context"
	"slices"

	"github.com/retrysafe/retrysafe/outbox"
)

// bendQuick lets bend change what every quick read returns.
func (b *bentBox) bendQuick(bend func(known []int64, list []outbox.Delivery, all bool) ([]outbox.Delivery, bool)) {
	quick := b.quick
	b.quick = func(ctx context.Context, shards []outbox.Shard, known []int64, limit int) ([]outbox.Delivery, bool, error) {
		list, all, err := quick(ctx, shards, known, limit)
		list, all = bend(known, list, all)
		return list, all, err
	}
}

var quickFlaws = []boxFlaw{{
	name:   "quick read forgets messages without a group",
	breaks: []string{"quick reads find everything"},
	bend: func(b *bentBox) {
		b.bendQuick(func(_ []int64, list []outbox.Delivery, all bool) ([]outbox.Delivery, bool) {
			return slices.DeleteFunc(list, func(d outbox.Delivery) bool { return d.Group == "" }), all
		})
	},
}, {
	name:   "quick read returns what is known",
	breaks: []string{"quick reads find everything"},
	bend: func(b *bentBox) {
		b.quick = func(ctx context.Context, shards []outbox.Shard, _ []int64, limit int) ([]outbox.Delivery, bool, error) {
			return b.Outbox.DueExcept(ctx, shards, nil, limit)
		}
	},
}, {
	name:   "quick read forgets the epochs of large messages",
	breaks: []string{"quick reads find large messages"},
	bend: func(b *bentBox) {
		b.bendQuick(func(_ []int64, list []outbox.Delivery, all bool) ([]outbox.Delivery, bool) {
			for i := range list {
				if len(list[i].Payload) > 64<<10 {
					list[i].Shard.Epoch = 0
				}
			}
			return list, all
		})
	},
}, {
	name:   "quick read has a cursor",
	breaks: []string{"quick reads find late commits"},
	bend: func(b *bentBox) {
		b.bendQuick(func(known []int64, list []outbox.Delivery, all bool) ([]outbox.Delivery, bool) {
			if len(known) == 0 {
				return list, all
			}
			return slices.DeleteFunc(list, func(d outbox.Delivery) bool { return d.ID < slices.Max(known) }), all
		})
	},
}, {
	name:   "quick read goes past a failure",
	breaks: []string{"quick reads keep the order behind a failure"},
	bend: func(b *bentBox) {
		b.quick = func(ctx context.Context, shards []outbox.Shard, known []int64, limit int) ([]outbox.Delivery, bool, error) {
			list, err := b.Outbox.Due(ctx, shards, limit+len(known))
			return slices.DeleteFunc(list, func(d outbox.Delivery) bool { return d.Tries > 0 || slices.Contains(known, d.ID) }), true, err
		}
	},
}, {
	name:   "quick read says that nothing is left out",
	breaks: []string{"quick reads keep the order behind a failure"},
	bend: func(b *bentBox) {
		b.bendQuick(func(_ []int64, list []outbox.Delivery, _ bool) ([]outbox.Delivery, bool) { return list, true })
	},
}, {
	name:   "quick read asks for no epoch",
	breaks: []string{"quick reads keep to the lease"},
	bend: func(b *bentBox) {
		quick := b.quick
		b.quick = func(ctx context.Context, shards []outbox.Shard, known []int64, limit int) ([]outbox.Delivery, bool, error) {
			shards = slices.Clone(shards)
			for i := range shards {
				shards[i] = b.under(ctx, outbox.Ack{Shard: shards[i]}).Shard
			}
			return quick(ctx, shards, known, limit)
		}
	},
}, {
	name:   "commit wakes no worker",
	breaks: []string{"commit wakes workers"},
	bend:   func(b *bentBox) { b.notify = func(func()) func() { return func() {} } },
}, {
	name:   "workers are woken for ever",
	breaks: []string{"commit wakes workers"},
	bend: func(b *bentBox) {
		b.notify = func(wake func()) func() {
			b.Outbox.NotifyCommits(wake)
			return func() {}
		}
	},
}}
