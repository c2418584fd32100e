package storetest_test

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/outbox"
)

var sendingFlaws = []boxFlaw{{
	name:   "message is there at once",
	breaks: []string{"message shows at commit", "message of a rollback never was"},
	bend: func(b *bentBox) {
		b.bendTx(func(tx *bentBoxTx) {
			tx.enqueue = func(ctx context.Context, m ...outbox.Message) error {
				now, _ := b.store.Begin(ctx)
				return errors.Join(now.Enqueue(ctx, m...), now.Commit(ctx))
			}
		})
	},
}, {
	name:   "rollback commits",
	breaks: []string{"message of a rollback never was"},
	bend: func(b *bentBox) {
		b.bendTx(func(tx *bentBoxTx) { tx.rollback = tx.Tx.Commit })
	},
}, {
	name:   "refused message lets the transaction commit",
	breaks: []string{"refused message poisons the transaction"},
	bend: func(b *bentBox) {
		b.bendTx(func(tx *bentBoxTx) {
			tx.enqueue = func(ctx context.Context, m ...outbox.Message) error {
				for i := range m {
					if err := m[i].Check(); err != nil {
						return err
					}
				}
				return tx.Tx.Enqueue(ctx, m...)
			}
		})
	},
}, {
	name:   "payload is cut",
	breaks: []string{"message comes as it was enqueued", "buried message is kept"},
	bend: func(b *bentBox) {
		b.bendTx(func(tx *bentBoxTx) {
			tx.enqueue = func(ctx context.Context, m ...outbox.Message) error {
				for i := range m {
					m[i].Payload = bytes.TrimRight(m[i].Payload, "\n\xff\xfe")
				}
				return tx.Tx.Enqueue(ctx, m...)
			}
		})
	},
}, {
	name:   "bytes stay the caller's until the commit",
	breaks: []string{"message comes as it was enqueued"},
	bend: func(b *bentBox) {
		b.bendTx(func(tx *bentBoxTx) {
			var held []outbox.Message
			tx.enqueue = func(_ context.Context, m ...outbox.Message) error { held = append(held, m...); return nil }
			tx.commit = func(ctx context.Context) error { return errors.Join(tx.Tx.Enqueue(ctx, held...), tx.Tx.Commit(ctx)) }
		})
	},
}, {
	name:   "key is drawn at each read",
	breaks: []string{"message comes as it was enqueued"},
	bend: func(b *bentBox) {
		b.bendDue(func(_ []outbox.Shard, list []outbox.Delivery) []outbox.Delivery {
			for i := range list {
				if len(list[i].Key) == 32 {
					list[i].Key = ""
					list[i].Message = list[i].Prepared(context.Background())
				}
			}
			return list
		})
	},
}, {
	name:   "cursor over ids",
	breaks: []string{"late commit is found"},
	bend: func(b *bentBox) {
		var last int64
		b.bendEnd(func(e *outbox.Ack) { last = max(last, e.ID) })
		b.bendDue(func(_ []outbox.Shard, list []outbox.Delivery) []outbox.Delivery {
			return slices.DeleteFunc(list, func(d outbox.Delivery) bool { return d.ID <= last && d.Tries == 0 })
		})
	},
}, {
	name:   "newest first",
	breaks: []string{"groups keep their order", "failed message comes again"},
	bend: func(b *bentBox) {
		b.bendDue(func(_ []outbox.Shard, list []outbox.Delivery) []outbox.Delivery {
			slices.Reverse(list)
			return list
		})
	},
}, {
	name:   "group overtakes its head",
	breaks: []string{"failed head holds up its group"},
	bend: func(b *bentBox) {
		b.bendEnd(func(e *outbox.Ack) { // a head that waits is behind the others
			if e.Kind == outbox.AckRetry && e.After == time.Hour {
				e.Kind = outbox.AckDead
			}
		})
	},
}, {
	name:   "failed head stops everything",
	breaks: []string{"failed head does not hold up other groups"},
	bend: func(b *bentBox) {
		stopped := false
		b.bendEnd(func(e *outbox.Ack) { stopped = stopped || e.Kind == outbox.AckRetry })
		b.bendDue(func(_ []outbox.Shard, list []outbox.Delivery) []outbox.Delivery {
			if stopped {
				return nil
			}
			return list
		})
	},
}, {
	name:   "failed message is lost",
	breaks: []string{"failed message comes again"},
	bend: func(b *bentBox) {
		b.bendEnd(func(e *outbox.Ack) {
			if e.Kind == outbox.AckRetry {
				e.Kind = outbox.AckDelivered
			}
		})
	},
}, {
	name:   "message waits a thousandth of its time",
	breaks: []string{"failed message comes again"},
	bend: func(b *bentBox) {
		b.bendEnd(func(e *outbox.Ack) {
			if e.Kind == outbox.AckRetry && e.After == time.Minute {
				e.After /= 1000
			}
		})
	},
}, {
	name:   "each acknowledgement counts as a try",
	breaks: []string{"retry that is stored twice counts once"},
	bend: func(b *bentBox) {
		acks := map[int64]int{}
		b.bendEnd(func(e *outbox.Ack) {
			acks[e.ID]++
			e.Tries = acks[e.ID]
		})
	},
}, {
	name:   "wait is not kept",
	breaks: []string{"message with a wait is not due early"},
	bend: func(b *bentBox) {
		b.bendTx(func(tx *bentBoxTx) {
			tx.enqueue = func(ctx context.Context, m ...outbox.Message) error {
				for i := range m {
					m[i].Wait = 0
				}
				return tx.Tx.Enqueue(ctx, m...)
			}
		})
	},
}, {
	name:   "every shard is read",
	breaks: []string{"only the shards asked for are read"},
	bend: func(b *bentBox) {
		epochs := map[int]int64{}
		due := b.due
		b.due = func(ctx context.Context, shards []outbox.Shard, limit int) ([]outbox.Delivery, error) {
			var all []outbox.Shard
			for _, s := range shards {
				epochs[s.N] = s.Epoch
			}
			for n := range outbox.Shards {
				all = append(all, outbox.Shard{N: n, Epoch: max(epochs[n], 1)})
			}
			return due(ctx, all, limit)
		}
	},
}, {
	name:   "unreadable message fails the read",
	breaks: []string{"unreadable message is shown as one"},
	bend: func(b *bentBox) {
		due := b.due
		b.due = func(ctx context.Context, shards []outbox.Shard, limit int) ([]outbox.Delivery, error) {
			list, err := due(ctx, shards, limit)
			for i := range list {
				if list[i].Err != nil {
					return nil, list[i].Err
				}
			}
			return list, err
		}
	},
}, {
	name:   "unreadable message is passed over",
	breaks: []string{"unreadable message is shown as one"},
	bend: func(b *bentBox) {
		b.bendDue(func(_ []outbox.Shard, list []outbox.Delivery) []outbox.Delivery {
			return slices.DeleteFunc(list, func(d outbox.Delivery) bool { return d.Err != nil })
		})
	},
}}

var leaseFlaws = []boxFlaw{{
	name:   "first worker keeps everything",
	breaks: []string{"shards are shared out"},
	bend: func(b *bentBox) {
		var first retrysafe.Owner
		var held outbox.Lease
		b.lease = func(ctx context.Context, w retrysafe.Owner, term time.Duration) (outbox.Lease, error) {
			if first.IsZero() {
				first = w
			}
			if w != first || term == 0 {
				return b.Outbox.Lease(ctx, w, term)
			}
			if held.Shards == nil {
				held, _ = b.Outbox.Lease(ctx, w, term)
			}
			return held, nil
		}
	},
}, {
	name:   "shards are held by all who ask",
	breaks: []string{"shard has one holder", "shards are shared out"},
	bend: func(b *bentBox) {
		b.lease = func(ctx context.Context, w retrysafe.Owner, term time.Duration) (held outbox.Lease, err error) {
			if term > 0 {
				held.Workers = 1
				for n := range outbox.Shards {
					held.Shards = append(held.Shards, outbox.Shard{N: n, Epoch: 1})
				}
			}
			return held, nil
		}
	},
}, {
	name:   "epochs stand still",
	breaks: []string{"epochs grow", "lease that has ended is taken over"},
	bend: func(b *bentBox) {
		b.lease = func(ctx context.Context, w retrysafe.Owner, term time.Duration) (outbox.Lease, error) {
			held, err := b.Outbox.Lease(ctx, w, term)
			for i := range held.Shards {
				held.Shards[i].Epoch = 1
			}
			return held, err
		}
	},
}, {
	name:   "lease lasts for ever",
	breaks: []string{"lease that has ended is taken over"},
	bend: func(b *bentBox) {
		b.lease = func(ctx context.Context, w retrysafe.Owner, term time.Duration) (outbox.Lease, error) {
			if term > 0 {
				term = 1000 * time.Hour
			}
			return b.Outbox.Lease(ctx, w, term)
		}
	},
}, {
	name:   "epoch is not looked at when reading",
	breaks: []string{"stale epoch reads nothing", "lease that has ended is taken over"},
	bend: func(b *bentBox) {
		due := b.due
		b.due = func(ctx context.Context, shards []outbox.Shard, limit int) ([]outbox.Delivery, error) {
			shards = slices.Clone(shards)
			for i, s := range shards {
				shards[i] = b.under(ctx, outbox.Ack{Shard: s}).Shard
			}
			return due(ctx, shards, limit)
		}
	},
}, {
	name:   "epoch is not looked at when ending",
	breaks: []string{"stale epoch ends nothing"},
	bend: func(b *bentBox) {
		b.bendEnd(func(e *outbox.Ack) { *e = b.under(context.Background(), *e) })
	},
}, {
	name:   "one stale epoch refuses the whole call",
	breaks: []string{"stale epoch ends nothing"},
	bend: func(b *bentBox) {
		b.end = func(ctx context.Context, endings []outbox.Ack) ([]outbox.AckResult, error) {
			for _, e := range endings {
				if b.under(ctx, e).Shard != e.Shard {
					all := make([]outbox.AckResult, len(endings))
					for i := range all {
						all[i].Err = outbox.ErrFenced
					}
					return all, nil
				}
			}
			return b.Outbox.Ack(ctx, endings)
		}
	},
}}

var endingFlaws = []boxFlaw{{
	name:   "ending takes all before it",
	breaks: []string{"delivered message is gone"},
	bend: func(b *bentBox) {
		b.end = func(ctx context.Context, endings []outbox.Ack) ([]outbox.AckResult, error) {
			for _, e := range endings {
				for id := range e.ID {
					for n := range outbox.Shards {
						b.Outbox.Ack(ctx, []outbox.Ack{b.under(ctx, outbox.Ack{ID: id, Shard: outbox.Shard{N: n}, Kind: outbox.AckDelivered})})
					}
				}
			}
			return b.Outbox.Ack(ctx, endings)
		}
	},
}, {
	name:   "ending what is ended is refused",
	breaks: []string{"ending twice is ending once"},
	bend: func(b *bentBox) {
		ended := map[int64]bool{}
		b.end = func(ctx context.Context, endings []outbox.Ack) ([]outbox.AckResult, error) {
			all, err := b.Outbox.Ack(ctx, endings)
			for i, e := range endings {
				if ended[e.ID] {
					all[i].Err = retrysafe.ErrNotFound
				}
				ended[e.ID] = e.Kind != outbox.AckRetry
			}
			return all, err
		}
	},
}, {
	name:   "key is not settled",
	breaks: []string{"message settles its key as it ends"},
	bend:   func(b *bentBox) { b.bendEnd(func(e *outbox.Ack) { e.Settle = nil }) },
}, {
	name:   "settlement compares the record's own revision",
	breaks: []string{"message settles its key as it ends"},
	bend: func(b *bentBox) {
		b.bendEnd(func(e *outbox.Ack) {
			if e.Settle != nil {
				w := *e.Settle
				w.Expect = w.Fence()
				e.Settle = &w
			}
		})
	},
}, {
	name:   "refused settlement ends the message",
	breaks: []string{"refused settlement leaves the message"},
	bend: func(b *bentBox) {
		b.end = func(ctx context.Context, endings []outbox.Ack) ([]outbox.AckResult, error) {
			all, err := b.Outbox.Ack(ctx, endings)
			for i, e := range endings {
				if all[i].Err != nil {
					e.Settle = nil
					b.Outbox.Ack(ctx, []outbox.Ack{e})
				}
			}
			return all, err
		}
	},
}, {
	name:   "refused settlement refuses the whole call",
	breaks: []string{"refused settlement leaves the message"},
	bend: func(b *bentBox) {
		b.end = func(ctx context.Context, endings []outbox.Ack) ([]outbox.AckResult, error) {
			for _, e := range endings {
				if e.Settle == nil {
					continue
				}
				if now, err := b.store.Load(ctx, e.Settle.Ref); err != nil || now.Revision != e.Settle.Expect.Revision {
					all := make([]outbox.AckResult, len(endings))
					for i := range all {
						all[i] = outbox.AckResult{Err: retrysafe.ErrConflict, Record: now}
					}
					return all, nil
				}
			}
			return b.Outbox.Ack(ctx, endings)
		}
	},
}, {
	name:   "any shard of the worker's ends a message",
	breaks: []string{"message ends under its own shard"},
	bend: func(b *bentBox) {
		shard := map[int64]outbox.Shard{}
		b.bendDue(func(_ []outbox.Shard, list []outbox.Delivery) []outbox.Delivery {
			for i := range list {
				shard[list[i].ID] = list[i].Shard
			}
			return list
		})
		b.bendEnd(func(e *outbox.Ack) { e.Shard = shard[e.ID] })
	},
}, {
	name:   "depth counts what is ended",
	breaks: []string{"depth is what waits and what is dead"},
	bend: func(b *bentBox) {
		ended := 0
		b.bendEnd(func(*outbox.Ack) { ended++ })
		b.depth = func(ctx context.Context) (outbox.Depth, error) {
			d, err := b.Outbox.Depth(ctx)
			d.Waiting += ended
			return d, err
		}
	},
}}

var letterFlaws = []boxFlaw{{
	name:   "redriven letter has no name of its effect",
	breaks: []string{"receiver's name and tries are not lost"},
	bend: func(b *bentBox) {
		b.bendDead(func(l *outbox.DeadLetter) {
			if l.Tries == 1 {
				l.ProviderRef = ""
			}
		})
	},
}, {
	name:   "failing messages have one page",
	breaks: []string{"skipped message lets its group go on"},
	bend: func(b *bentBox) {
		b.failing = func(ctx context.Context, _ int64, limit int) ([]outbox.DeadLetter, error) {
			return b.Outbox.Failing(ctx, 0, limit)
		}
	},
}, {
	name:   "depth counts from the enqueueing",
	breaks: []string{"depth is what waits and what is dead"},
	bend: func(b *bentBox) {
		b.depth = func(ctx context.Context) (outbox.Depth, error) {
			d, err := b.Outbox.Depth(ctx)
			if list, _ := b.Outbox.DeadLetters(ctx, 0, 1); len(list) > 0 {
				d.OldestDead = list[0].Age
			}
			return d, err
		}
	},
}, {
	name:   "buried message is dropped",
	breaks: []string{"buried message is kept", "skipped message lets its group go on"},
	bend: func(b *bentBox) {
		b.dead = func(context.Context, int64, int) ([]outbox.DeadLetter, error) { return nil, nil }
	},
}, {
	name:   "provider's name is forgotten",
	breaks: []string{"buried message is kept", "skipped message lets its group go on"},
	bend:   func(b *bentBox) { b.bendDead(func(l *outbox.DeadLetter) { l.ProviderRef = "" }) },
}, {
	name:   "page begins with the last one",
	breaks: []string{"dead letters are listed in order"},
	bend: func(b *bentBox) {
		dead := b.dead
		b.dead = func(ctx context.Context, after int64, limit int) ([]outbox.DeadLetter, error) {
			return dead(ctx, after-1, limit)
		}
	},
}, {
	name:   "revision is not compared",
	breaks: []string{"disposal needs the letter as it was seen"},
	bend: func(b *bentBox) {
		b.dispose = func(ctx context.Context, d outbox.Disposal) error {
			d.Revision = 1
			return b.Outbox.Dispose(ctx, d)
		}
	},
}, {
	name:   "redriven letter is younger",
	breaks: []string{"redriven letter goes behind its group"},
	bend: func(b *bentBox) {
		redriven := false
		b.dispose = func(ctx context.Context, d outbox.Disposal) error {
			redriven = d.Redrive
			return b.Outbox.Dispose(ctx, d)
		}
		b.bendDue(func(_ []outbox.Shard, list []outbox.Delivery) []outbox.Delivery {
			for i := range list {
				if redriven && string(list[i].Payload) == "a1" {
					list[i].Enqueued, list[i].Age = b.clock(), 0
				}
			}
			return list
		})
	},
}, {
	name:   "redriven letter comes first",
	breaks: []string{"redriven letter goes behind its group"},
	bend: func(b *bentBox) {
		redriven := false
		b.dispose = func(ctx context.Context, d outbox.Disposal) error {
			redriven = d.Redrive
			return b.Outbox.Dispose(ctx, d)
		}
		b.bendDue(func(_ []outbox.Shard, list []outbox.Delivery) []outbox.Delivery {
			if at := slices.IndexFunc(list, func(d outbox.Delivery) bool { return string(d.Payload) == "a1" }); redriven && at > 0 {
				list[0], list[at] = list[at], list[0]
			}
			return list
		})
	},
}, {
	name:   "dropped letter is sent",
	breaks: []string{"dropped letter is gone"},
	bend: func(b *bentBox) {
		b.dispose = func(ctx context.Context, d outbox.Disposal) error {
			d.Redrive = true
			return b.Outbox.Dispose(ctx, d)
		}
	},
}, {
	name:   "skip does nothing",
	breaks: []string{"skipped message lets its group go on", "skip needs a message that waits as it was seen"},
	bend: func(b *bentBox) {
		b.skip = func(context.Context, outbox.SkipRequest) (outbox.AckResult, error) { return outbox.AckResult{}, nil }
	},
}, {
	name:   "skip does not compare",
	breaks: []string{"skip needs a message that waits as it was seen"},
	bend: func(b *bentBox) {
		b.skip = func(ctx context.Context, s outbox.SkipRequest) (outbox.AckResult, error) {
			list, _ := b.Outbox.Failing(ctx, s.ID-1, 1)
			if len(list) == 1 && list[0].ID == s.ID {
				s.Tries = list[0].Tries
			}
			return b.Outbox.Skip(ctx, s)
		}
	},
}}
