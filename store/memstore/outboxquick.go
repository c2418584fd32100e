package memstore

import (
	"context"
	"slices"

	"github.com/retrysafe/retrysafe/outbox"
)

// DueExcept implements [outbox.QuickReader]. It leaves out groups in which a message has
// failed.
func (b *Outbox) DueExcept(ctx context.Context, shards []outbox.Shard, known []int64, limit int) (list []outbox.Delivery, all bool, err error) {
	due, err := b.Due(ctx, shards, limit+len(known))
	if err != nil {
		return nil, false, err
	}
	failed := make(map[string]bool)
	for i := range due {
		if due[i].Tries > 0 && due[i].Group != "" {
			failed[due[i].Group] = true
		}
	}
	known = slices.Sorted(slices.Values(known))
	for _, d := range due {
		if _, here := slices.BinarySearch(known, d.ID); !here && !failed[d.Group] && len(list) < limit {
			list = append(list, d)
		}
	}
	return list, len(failed) == 0, nil
}

// NotifyCommits implements [outbox.CommitNotifier].
func (b *Outbox) NotifyCommits(wake func()) (stop func()) {
	key := new(byte)
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.wake == nil {
		b.wake = make(map[*byte]func())
	}
	b.wake[key] = wake
	return func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		delete(b.wake, key)
	}
}
