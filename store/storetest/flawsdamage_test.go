package storetest_test

import (
	"context"
	"errors"

	"github.com/retrysafe/retrysafe"
)

// unreadableBut returns a bend by which one step gets err from a damaged record.
func unreadableBut(step string, err error) func(*bent) {
	return func(b *bent) {
		b.unreadable = func(s string) error {
			if s == step {
				return err
			}
			return retrysafe.ErrUnreadable
		}
	}
}

var damageFlaws = []flaw{{
	name:   "load takes damage for a free key",
	breaks: []string{"damaged record is refused", "damaged record is refused in a transaction", "purge goes on behind damaged records"},
	only:   true,
	bend:   unreadableBut("load", retrysafe.ErrNotFound),
}, {
	name:   "create takes damage for a record",
	breaks: []string{"damaged record is refused"},
	only:   true,
	bend:   unreadableBut("create", retrysafe.ErrExists),
}, {
	name:   "swap takes damage for a free key",
	breaks: []string{"damaged record is refused"},
	only:   true,
	bend:   unreadableBut("swap", retrysafe.ErrNotFound),
}, {
	name:   "swap does not look at what it leaves",
	breaks: []string{"damaged record is refused"},
	only:   true,
	bend:   unreadableBut("swap", nil),
}, {
	name:   "damage is an error of its own",
	breaks: []string{"damaged record is refused", "damaged record is refused in a transaction", "purge goes on behind damaged records"},
	only:   true,
	bend: func(b *bent) {
		b.unreadable = func(string) error { return errors.New("checksum does not match") }
	},
}, {
	name:   "reserve takes damage for a free key",
	breaks: []string{"damaged record is refused in a transaction"},
	only:   true,
	bend:   unreadableBut("reserve", retrysafe.ErrNotFound),
}, {
	name:   "swap of a damaged record lets the transaction commit",
	breaks: []string{"damaged record is refused in a transaction"},
	only:   true,
	bend:   unreadableBut("swap in a transaction", errNotPoisoned),
}, {
	name:   "create of a damaged key lets the transaction commit",
	breaks: []string{"damaged record is refused in a transaction"},
	only:   true,
	bend:   unreadableBut("create in a transaction", errNotPoisoned),
}, {
	name:   "list leaves damaged records out",
	breaks: []string{"damaged record is listed"},
	only:   true,
	bend: func(b *bent) {
		b.show = func(r retrysafe.Record) (retrysafe.Record, bool) { return r, false }
	},
}, {
	name:   "list shows a damaged record as if it were whole",
	breaks: []string{"damaged record is listed"},
	only:   true,
	bend: func(b *bent) {
		b.show = func(r retrysafe.Record) (retrysafe.Record, bool) { return r, true }
	},
}, {
	name:   "damaged records share one ref",
	breaks: []string{"damaged record is listed"},
	only:   true,
	bend: func(b *bent) {
		b.show = func(r retrysafe.Record) (retrysafe.Record, bool) {
			return retrysafe.Record{Ref: damagedRef(retrysafe.Ref{}), ReadAt: r.ReadAt}, true
		}
	},
}, {
	name:   "list ends at a damaged record",
	breaks: []string{"damaged record is listed"},
	only:   true,
	bend: func(b *bent) {
		b.list = func(ctx context.Context, q retrysafe.Query) ([]retrysafe.Record, error) {
			got, err := b.Store.List(ctx, q)
			for i, r := range got {
				if b.isDamaged(r.Ref) {
					return got[:i+1], err
				}
			}
			return got, err
		}
	},
}, {
	name:   "purge deletes what it cannot read",
	breaks: []string{"purge goes on behind damaged records"},
	only:   true,
	bend: func(b *bent) {
		b.purge = func(ctx context.Context, limit int) (int, error) {
			b.makeDue(ctx, retrysafe.Query{}, func(r retrysafe.Record) bool { return b.isDamaged(r.Ref) })
			return b.Store.Purge(ctx, limit)
		}
	},
}, {
	name:   "purge stops at a damaged record",
	breaks: []string{"purge goes on behind damaged records"},
	only:   true,
	bend: func(b *bent) {
		b.purge = func(ctx context.Context, limit int) (int, error) {
			due, _ := b.Store.List(ctx, retrysafe.Query{Due: true})
			for _, r := range due {
				if b.isDamaged(r.Ref) {
					return 0, retrysafe.ErrUnreadable
				}
			}
			return b.Store.Purge(ctx, limit)
		}
	},
}}
