package storetest_test

import (
	"context"

	"github.com/retrysafe/retrysafe/outbox"
)

// bendFailing lets bend change every message that is listed as failing.
func (b *bentBox) bendFailing(bend func(*outbox.DeadLetter)) {
	failing := b.failing
	b.failing = func(ctx context.Context, after int64, limit int) ([]outbox.DeadLetter, error) {
		list, err := failing(ctx, after, limit)
		for i := range list {
			bend(&list[i])
		}
		return list, err
	}
}

const (
	lettersAge   = "letters are as old as their messages"
	failingOrder = "failing messages are listed in order"
	lastName     = "letter has the last name of its effect"
	sharedLimit  = "records and receipts share the limit of a purge"
)

var failingFlaws = []boxFlaw{{
	name:   "letter has no age",
	breaks: []string{lettersAge},
	bend:   func(b *bentBox) { b.bendDead(func(l *outbox.DeadLetter) { l.Age = 0 }) },
}, {
	name:   "age of a letter begins with its death",
	breaks: []string{lettersAge},
	bend:   func(b *bentBox) { b.bendDead(func(l *outbox.DeadLetter) { l.Age -= l.Died.Sub(l.Enqueued) }) },
}, {
	name:   "failing message has no age",
	breaks: []string{lettersAge},
	bend:   func(b *bentBox) { b.bendFailing(func(l *outbox.DeadLetter) { l.Age = 0 }) },
}, {
	name:   "page of failing messages begins with the last one",
	breaks: []string{failingOrder},
	bend: func(b *bentBox) {
		failing := b.failing
		b.failing = func(ctx context.Context, after int64, limit int) ([]outbox.DeadLetter, error) {
			return failing(ctx, after-1, limit)
		}
	},
}, {
	name:   "messages that are due are listed as failing",
	breaks: []string{failingOrder},
	bend: func(b *bentBox) {
		due := map[int64]outbox.Delivery{}
		b.bendDue(func(_ []outbox.Shard, list []outbox.Delivery) []outbox.Delivery {
			for i := range list {
				due[list[i].ID] = list[i]
			}
			return list
		})
		failing := b.failing
		b.failing = func(ctx context.Context, after int64, limit int) ([]outbox.DeadLetter, error) {
			list, err := failing(ctx, after, limit)
			if len(list) < limit {
				for id, d := range due {
					if id > after {
						return append(list, outbox.DeadLetter{Delivery: d}), err
					}
				}
			}
			return list, err
		}
	},
}, {
	name:   "name that is given with a skip is lost",
	breaks: []string{lastName},
	bend: func(b *bentBox) {
		b.skip = func(ctx context.Context, s outbox.SkipRequest) (outbox.AckResult, error) {
			s.ProviderRef = ""
			return b.Outbox.Skip(ctx, s)
		}
	},
}, {
	name:   "name of a try before the redrive is lost",
	breaks: []string{lastName},
	bend: func(b *bentBox) {
		redriven := false
		b.dispose = func(ctx context.Context, d outbox.Disposal) error {
			redriven = d.Redrive
			return b.Outbox.Dispose(ctx, d)
		}
		b.bendDead(func(l *outbox.DeadLetter) {
			if redriven {
				l.ProviderRef = ""
			}
		})
	},
}, {
	name:   "purge has a limit for records and one for receipts",
	breaks: []string{sharedLimit},
	bend:   func(b *bentBox) { b.keys = twiceStore{b.store} },
}}

// A twiceStore purges up to its limit twice.
type twiceStore struct{ storeOnly }

func (s twiceStore) Purge(ctx context.Context, limit int) (int, error) {
	first, err := s.storeOnly.Purge(ctx, limit)
	if err != nil {
		return first, err
	}
	second, err := s.storeOnly.Purge(ctx, limit)
	return first + second, err
}
