package memstore

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/outbox"
)

// keep keeps the receipt of a delivered message, if the worker asks for one.
func (b *Outbox) keep(l *letter, e *outbox.Ack, now time.Time) {
	if e.Keep <= 0 || e.Message == nil {
		return
	}
	r := outbox.KeptReceipt{ID: e.ID, Topic: e.Message.Topic, Key: e.Message.Key, ProviderRef: l.ProviderRef, Delivered: now, Expires: now.Add(e.Keep)}
	if e.Message.Settles != nil {
		r.Settled = e.Message.Settles.Ref
	}
	b.kept[r.ID] = r
}

// Receipts implements [outbox.ReceiptKeeper].
func (b *Outbox) Receipts(ctx context.Context, q outbox.ReceiptQuery) (list []outbox.KeptReceipt, err error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	now := b.s.now()
	for _, id := range slices.Sorted(maps.Keys(b.kept)) {
		r := b.kept[id]
		if id > q.After && r.Expires.After(now) && len(list) < q.Limit &&
			(q.ProviderRef == "" || q.ProviderRef == r.ProviderRef) && (q.Settled == retrysafe.Ref{} || q.Settled == r.Settled) {
			list = append(list, r)
		}
	}
	return list, nil
}

// ForgetReceipts implements [outbox.ReceiptKeeper].
func (b *Outbox) ForgetReceipts(ctx context.Context, settled retrysafe.Ref) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	maps.DeleteFunc(b.kept, func(_ int64, r outbox.KeptReceipt) bool { return r.Settled == settled && settled != retrysafe.Ref{} })
	return nil
}

// purge deletes receipts that have expired, at most limit.
func (b *Outbox) purge(limit int) (deleted int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := b.s.now()
	for id, r := range b.kept {
		if deleted >= limit {
			break
		}
		if !r.Expires.After(now) {
			delete(b.kept, id)
			deleted++
		}
	}
	return deleted
}
