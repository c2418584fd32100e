package storetest_test

import (
	"context"
	"slices"
	"strings"

	"github.com/retrysafe/retrysafe"
)

var inquiryFlaws = []flaw{{
	name:   "notes must be UTF-8",
	breaks: []string{"notes are kept", "swap takes the notes it is given"},
	only:   true,
	bend: func(b *bent) {
		b.see = onNotes(func(n *retrysafe.Note) { n.Text = strings.ToValidUTF8(n.Text, "?") })
	},
}, {
	name:   "the ID of a note is lost",
	breaks: []string{"notes are kept", "swap takes the notes it is given"},
	bend: func(b *bent) {
		b.see = onNotes(func(n *retrysafe.Note) { n.ID = "" })
	},
}, {
	name:   "dispute is forgotten",
	breaks: []string{"notes are kept", "swap takes the notes it is given"},
	only:   true,
	bend: func(b *bent) {
		b.see = func(_ string, r *retrysafe.Record) { r.Inquiry.Disputed = false }
	},
}, {
	name:   "who noted it is cut at a zero byte",
	breaks: []string{"notes are kept", "swap takes the notes it is given"},
	only:   true,
	bend: func(b *bent) {
		b.see = onNotes(func(n *retrysafe.Note) { n.By, _, _ = strings.Cut(n.By, "\x00") })
	},
}, {
	name:   "notes are cut at 8 KiB",
	breaks: []string{"notes are kept", "swap takes the notes it is given"},
	only:   true,
	bend: func(b *bent) {
		b.see = func(_ string, r *retrysafe.Record) {
			size := 0
			for i, n := range r.Inquiry.Notes {
				if size += len(n.By) + len(n.Text); size > 8<<10 {
					r.Inquiry.Notes = r.Inquiry.Notes[:i]
					return
				}
			}
		}
	},
}, {
	name:   "create starts without an inquiry",
	breaks: []string{"notes are kept"},
	bend: func(b *bent) {
		b.create = func(ctx context.Context, w retrysafe.Write) (retrysafe.Record, error) {
			w.Inquiry = retrysafe.Inquiry{}
			return b.Store.Create(ctx, w)
		}
	},
}, {
	name:   "list leaves the notes out",
	breaks: []string{"notes are kept"},
	bend: func(b *bent) {
		b.see = func(method string, r *retrysafe.Record) {
			if method == "list" {
				r.Inquiry.Notes = nil
			}
		}
	},
}, {
	name:   "dead is forgotten without notes",
	breaks: []string{"notes are kept", "swap takes the notes it is given"},
	only:   true,
	bend: func(b *bent) {
		b.see = func(_ string, r *retrysafe.Record) { r.Inquiry.Dead = r.Inquiry.Dead && len(r.Inquiry.Notes) > 0 }
	},
}, {
	name:   "swap without notes keeps the stored ones",
	breaks: []string{"swap takes the notes it is given"},
	only:   true,
	bend: func(b *bent) {
		b.swap = func(ctx context.Context, w retrysafe.Write) (retrysafe.Record, error) {
			if old, _ := b.Store.Load(ctx, w.Ref); w.Inquiry.IsZero() {
				w.Inquiry = old.Inquiry
			}
			return b.Store.Swap(ctx, w)
		}
	},
}, {
	name:   "claim drops the notes",
	breaks: []string{"swap takes the notes it is given"},
	bend: func(b *bent) {
		b.swap = func(ctx context.Context, w retrysafe.Write) (retrysafe.Record, error) {
			if w.Overwrite {
				w.Inquiry = retrysafe.Inquiry{}
			}
			return b.Store.Swap(ctx, w)
		}
	},
}, {
	name:   "an answer kept as planned keeps the deadline of its lease",
	breaks: []string{"ordinary terms hold"},
	only:   true,
	bend: func(b *bent) {
		b.swap = func(ctx context.Context, w retrysafe.Write) (retrysafe.Record, error) {
			if old, _ := b.Store.Load(ctx, w.Ref); w.Term == w.Retain {
				w.Term = old.Deadline.Sub(old.ReadAt)
			}
			return b.Store.Swap(ctx, w)
		}
	},
}, {
	name:   "an answer kept as planned loses its notes",
	breaks: []string{"ordinary terms hold"},
	only:   true,
	bend: func(b *bent) {
		b.swap = func(ctx context.Context, w retrysafe.Write) (retrysafe.Record, error) {
			if w.Term == w.Retain && w.State == retrysafe.StateCompleted {
				w.Inquiry.Notes = nil
			}
			return b.Store.Swap(ctx, w)
		}
	},
}, {
	name:   "empty request is none",
	breaks: []string{"accepted work waits for a worker"},
	only:   true,
	bend: func(b *bent) {
		b.see = func(_ string, r *retrysafe.Record) {
			if len(r.Request) == 0 {
				r.Request = nil
			}
		}
	},
}, {
	name:   "accepted work is listed when it is due",
	breaks: []string{"accepted work waits for a worker", "list filters"},
	bend: func(b *bent) {
		b.list = func(ctx context.Context, q retrysafe.Query) ([]retrysafe.Record, error) {
			got, err := b.Store.List(ctx, q)
			return slices.DeleteFunc(got, func(r retrysafe.Record) bool {
				return r.State == retrysafe.StateAccepted && !r.Due()
			}), err
		}
	},
}, {
	name:   "accepted work counts as tried",
	breaks: []string{"accepted work waits for a worker"},
	bend: func(b *bent) {
		b.see = func(_ string, r *retrysafe.Record) { r.Attempt = max(r.Attempt, 1) }
	},
}}

// onNotes changes a copy of every note that the store returns.
func onNotes(change func(*retrysafe.Note)) func(string, *retrysafe.Record) {
	return func(_ string, r *retrysafe.Record) {
		r.Inquiry.Notes = slices.Clone(r.Inquiry.Notes)
		for i := range r.Inquiry.Notes {
			change(&r.Inquiry.Notes[i])
		}
	}
}
