package memstore

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/outbox"
)

var _ outbox.Skipper = (*Outbox)(nil)

// Failing implements [outbox.Skipper].
func (b *Outbox) Failing(ctx context.Context, after int64, limit int) (list []outbox.DeadLetter, err error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	now := b.s.now()
	for _, id := range slices.Sorted(maps.Keys(b.waiting)) {
		l := b.waiting[id].DeadLetter
		if id <= after || len(list) >= limit || l.Tries == 0 || !b.waiting[id].due.After(now) {
			continue
		}
		l.Age, l.Revision = now.Sub(l.Enqueued), int64(l.Tries)
		list = append(list, l)
	}
	return list, nil
}

// Skip implements [outbox.Skipper].
func (b *Outbox) Skip(ctx context.Context, s outbox.SkipRequest) (ended outbox.AckResult, err error) {
	if err := ctx.Err(); err != nil {
		return outbox.AckResult{}, err
	}
	var refused error
	ended.Record, ended.Err = b.settling(ctx, s.Settle, func() error {
		l, there := b.waiting[s.ID]
		switch {
		case !there:
			refused = fmt.Errorf("message %d: %w", s.ID, retrysafe.ErrNotFound)
		case l.Tries != s.Tries || l.Tries == 0 || !l.due.After(b.s.now()):
			refused = fmt.Errorf("message %d: %w", s.ID, retrysafe.ErrConflict)
		}
		return refused
	}, func() {
		l := b.waiting[s.ID]
		delete(b.waiting, s.ID)
		l.Why, l.ProviderRef, l.Died, l.Revision = s.Why, cmp.Or(s.ProviderRef, l.ProviderRef), b.s.now(), l.Revision+1
		b.dead[s.ID] = l
	})
	if refused != nil {
		return outbox.AckResult{}, refused
	}
	return ended, nil
}
