package operator

import (
	"context"
	"fmt"
	"slices"

	"github.com/retrysafe/retrysafe"
)

// A Filter selects records. The zero Filter selects all that are not retrysafe's
// own.
type Filter struct {
	// Scope, if not empty, selects the records of one scope.
	Scope string
	// States, if any, selects records in one of these states.
	States []retrysafe.State
	// Due selects records whose deadline has passed by the store's clock.
	Due bool
	// Dead selects unknown outcomes that nobody will be asked about again.
	Dead bool
	// System shows retrysafe's own records too.
	System bool
	// After continues behind a page: its Next.
	After retrysafe.Ref
	// Limit bounds how many are returned; zero means 100.
	Limit int
}

// A Page is a part of a list, in the store's order. It may be short, even empty,
// where there is more to look at.
type Page struct {
	Records []retrysafe.Record
	// Next is where to go on, if there is More.
	Next retrysafe.Ref
	More bool
}

// Show returns a record as it is stored this very moment. One that cannot be read
// comes as far as it can be, with [retrysafe.ErrUnreadable].
func (d *Desk) Show(ctx context.Context, ref retrysafe.Ref) (retrysafe.Record, error) {
	r, err := d.fresh(ctx, ref)
	if err != nil {
		return r, fmt.Errorf("show %s: %w", retrysafe.HashKey(ref.Key), err)
	}
	return r, nil
}

// maxLooks bounds how many pages of the store one page here is made of.
const maxLooks = 20

// List returns a page of records. Those that cannot be read are shown with Version
// 0, whatever their states, unless only dead ones are asked for.
func (d *Desk) List(ctx context.Context, f Filter) (Page, error) {
	q := retrysafe.Query{Scope: f.Scope, States: f.States, Due: f.Due, After: f.After, Limit: f.Limit}
	size := q.Size()
	q.Limit = max(size, pageSize)
	if f.Dead {
		if len(f.States) > 0 && !slices.Contains(f.States, retrysafe.StateUnknown) {
			return Page{}, nil
		}
		q.States = []retrysafe.State{retrysafe.StateUnknown}
	}
	page := Page{More: true, Next: f.After}
	for range maxLooks {
		list, err := d.list(ctx, q)
		if err != nil {
			return Page{}, fmt.Errorf("list: %w", err)
		}
		for i := range list {
			if len(page.Records) == size {
				return page, nil
			}
			if page.Next = list[i].Ref; f.selects(&list[i]) {
				page.Records = append(page.Records, list[i])
			}
		}
		if len(list) < q.Limit {
			page.More, page.Next = false, retrysafe.Ref{}
			return page, nil
		}
		q.After = page.Next
	}
	return page, nil
}

// selects reports whether a record of the query is one of the filter's.
func (f *Filter) selects(r *retrysafe.Record) bool {
	switch {
	case f.Dead:
		return r.State == retrysafe.StateUnknown && r.Inquiry.Dead
	case r.Version == 0: // its name may be the store's own, but it is somebody's
		return true
	default:
		return f.System || !r.IsSystem()
	}
}

func (d *Desk) list(ctx context.Context, q retrysafe.Query) ([]retrysafe.Record, error) {
	ctx, cancel := context.WithTimeout(ctx, listFactor*d.timeout)
	defer cancel()
	return d.store.List(ctx, q)
}

// listFactor is how much longer than a step a page may take: it may have to look
// at everything.
const listFactor = 20
