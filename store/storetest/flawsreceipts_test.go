package storetest_test

import (
	"context"
	"time"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/outbox"
)

// A greedyStore purges more than its limit.
type greedyStore struct{ retrysafe.Store }

func (s greedyStore) Purge(ctx context.Context, limit int) (int, error) {
	return s.Store.Purge(ctx, limit+1)
}

// A hoarder purges nothing.
type hoarder struct{ retrysafe.Store }

func (hoarder) Purge(context.Context, int) (int, error) { return 0, nil }

const (
	leavesReceipt   = "delivered message leaves its receipt"
	oneStep         = "receipt is stored with the end of its message"
	receiptsFound   = "receipts are found"
	receiptExpires  = "receipt expires"
	receiptsForgets = "forgotten receipts are gone"
)

var receiptFlaws = []boxFlaw{{
	name:   "receipt is not kept",
	breaks: []string{leavesReceipt, oneStep, receiptsFound, receiptsForgets},
	bend:   func(b *bentBox) { b.bendEnd(func(e *outbox.Ack) { e.Keep = 0 }) },
}, {
	name:   "receipt without being asked for",
	breaks: []string{leavesReceipt},
	bend: func(b *bentBox) {
		b.bendEnd(func(e *outbox.Ack) { e.Keep, e.Message = time.Hour, &outbox.Message{} })
	},
}, {
	name:   "receipt without the key of its message",
	breaks: []string{leavesReceipt},
	bend: func(b *bentBox) {
		b.bendEnd(func(e *outbox.Ack) {
			if e.Message != nil {
				m := *e.Message
				m.Key = ""
				e.Message = &m
			}
		})
	},
}, {
	name:   "receipt without the key that it settled",
	breaks: []string{leavesReceipt, receiptsFound, receiptsForgets},
	bend: func(b *bentBox) {
		b.bendEnd(func(e *outbox.Ack) {
			if e.Message != nil {
				m := *e.Message
				m.Settles = nil
				e.Message = &m
			}
		})
	},
}, {
	name:   "receipt of a refused end",
	breaks: []string{oneStep},
	bend: func(b *bentBox) {
		var refused []outbox.KeptReceipt
		b.end = func(ctx context.Context, endings []outbox.Ack) ([]outbox.AckResult, error) {
			all, err := b.Outbox.Ack(ctx, endings)
			for i, e := range endings {
				if all[i].Err != nil && e.Keep > 0 {
					refused = append(refused, outbox.KeptReceipt{ID: e.ID})
				}
			}
			return all, err
		}
		b.listed = func(ctx context.Context, q outbox.ReceiptQuery) ([]outbox.KeptReceipt, error) {
			list, err := b.Outbox.Receipts(ctx, q)
			return append(list, refused...), err
		}
	},
}, {
	name:   "repeated end writes its receipt anew",
	breaks: []string{oneStep},
	bend: func(b *bentBox) {
		last := map[int64]string{}
		b.bendEnd(func(e *outbox.Ack) { last[e.ID] = e.ProviderRef })
		b.listed = func(ctx context.Context, q outbox.ReceiptQuery) ([]outbox.KeptReceipt, error) {
			list, err := b.Outbox.Receipts(ctx, q)
			for i := range list {
				list[i].ProviderRef = last[list[i].ID]
			}
			return list, err
		}
	},
}, {
	name:   "receiver's name of an earlier try is lost",
	breaks: []string{leavesReceipt},
	bend: func(b *bentBox) {
		b.bendEnd(func(e *outbox.Ack) {
			if e.Kind == outbox.AckRetry {
				e.ProviderRef = ""
			}
		})
	},
}, {
	name:   "receiver's name of the first try stays",
	breaks: []string{leavesReceipt, "buried message is kept"},
	bend: func(b *bentBox) {
		first := map[int64]string{}
		b.bendEnd(func(e *outbox.Ack) {
			if was := first[e.ID]; was != "" && e.ProviderRef != "" {
				e.ProviderRef = was
			} else if e.ProviderRef != "" {
				first[e.ID] = e.ProviderRef
			}
		})
	},
}, {
	name:   "receipts of one name are those of all",
	breaks: []string{receiptsFound},
	bend: func(b *bentBox) {
		b.listed = func(ctx context.Context, q outbox.ReceiptQuery) ([]outbox.KeptReceipt, error) {
			q.ProviderRef = ""
			return b.Outbox.Receipts(ctx, q)
		}
	},
}, {
	name:   "page of receipts begins with the last one",
	breaks: []string{receiptsFound},
	bend: func(b *bentBox) {
		b.listed = func(ctx context.Context, q outbox.ReceiptQuery) ([]outbox.KeptReceipt, error) {
			q.After--
			return b.Outbox.Receipts(ctx, q)
		}
	},
}, {
	name:   "receipts are kept for ever",
	breaks: []string{leavesReceipt, receiptExpires},
	bend: func(b *bentBox) {
		b.bendEnd(func(e *outbox.Ack) { e.Keep = 100 * 365 * 24 * e.Keep })
	},
}, {
	name:   "purge leaves receipts",
	breaks: []string{receiptExpires},
	bend:   func(b *bentBox) { b.keys = hoarder{b.store} },
}, {
	name:   "purge exceeds its limit",
	breaks: []string{receiptExpires},
	bend:   func(b *bentBox) { b.keys = greedyStore{b.store} },
}, {
	name:   "receipts are not forgotten",
	breaks: []string{receiptsForgets},
	bend:   func(b *bentBox) { b.forget = func(context.Context, retrysafe.Ref) error { return nil } },
}}
