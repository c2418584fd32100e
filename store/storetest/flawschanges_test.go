package storetest_test

import (
	"context"
	"errors"
	"sync/atomic"

	"github.com/retrysafe/retrysafe"
)

var changeFlaws = []flaw{{
	name:   "an announced swap is announced every other time",
	breaks: []string{"announced swap is told", "no announced swap is lost"},
	bend: func(b *bent) {
		var n atomic.Int32
		b.swap = func(ctx context.Context, w retrysafe.Write) (retrysafe.Record, error) {
			w.Announce = w.Announce && n.Add(1)%2 == 1
			return b.Store.Swap(ctx, w)
		}
	},
}, {
	name:   "every swap is announced",
	breaks: []string{"nothing else is told"},
	only:   true,
	bend: func(b *bent) {
		b.swap = func(ctx context.Context, w retrysafe.Write) (retrysafe.Record, error) {
			w.Announce = true
			return b.Store.Swap(ctx, w)
		}
	},
}, {
	name:   "changes that come together hide each other",
	breaks: []string{"no announced swap is lost"},
	only:   true,
	bend: func(b *bent) {
		b.changes = func(ctx context.Context, cursor string) ([]retrysafe.Ref, string, error) {
			changed, next, err := b.Store.Changes(ctx, cursor)
			return changed[max(len(changed)-1, 0):], next, err
		}
	},
}, {
	name:   "changes begin with the past",
	breaks: []string{"changes begin with the present"},
	bend: func(b *bent) {
		b.changes = func(ctx context.Context, cursor string) ([]retrysafe.Ref, string, error) {
			if cursor == "" {
				cursor = "0"
			}
			return b.Store.Changes(ctx, cursor)
		}
	},
}, {
	name:   "unknown cursor is the present",
	breaks: []string{"unknown cursor is refused"},
	only:   true,
	bend: func(b *bent) {
		b.changes = func(ctx context.Context, cursor string) ([]retrysafe.Ref, string, error) {
			changed, next, err := b.Store.Changes(ctx, cursor)
			if errors.Is(err, retrysafe.ErrChangesLost) {
				return b.Store.Changes(ctx, "")
			}
			return changed, next, err
		}
	},
}}
