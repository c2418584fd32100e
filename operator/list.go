package operator

import (
	"context"
	"fmt"
	"iter"
	"slices"
	"time"

	"github.com/retrysafe/retrysafe"
)

// A Filter selects records. The zero Filter selects all but retrysafe's own.
type Filter struct {
	// Scope, if not empty, selects the records of one scope.
	Scope string
	// Tenant, if not empty, selects the records of one tenant: those of the scope with
	// its name, and of the scopes that a guard narrows to one of its principals or
	// operations.
	Tenant string
	// Operation and Reason, if not empty, select records with this operation and this
	// reason, without the parts of a reason that differ from attempt to attempt. In both
	// an asterisk stands for any text.
	Operation, Reason string
	// Status, if not zero, selects records whose last attempt failed with this status of
	// the service: where there is no answer, Record.Reason has it.
	Status int
	// Since and Until, if not zero, select records that were created since and before.
	Since, Until time.Time
	written      bool // Since and Until are about the last write instead
	// States, if any, selects records in one of these states.
	States []retrysafe.State
	// Due selects records whose deadline has passed by the store's clock.
	Due bool
	// Dead selects dead letters: unknown outcomes that the reconciler has given up.
	Dead bool
	// System includes retrysafe's own records.
	System bool
	// After is the Next of the page before.
	After retrysafe.Ref
	// Limit bounds how many are returned; zero means 100.
	Limit int
}

// A Page is a part of a list, in the store's order. It may be short, even empty,
// although there is more.
type Page struct {
	Records []retrysafe.Record
	// Next is the After of the next page, if there is More.
	Next retrysafe.Ref
	More bool
}

// Show returns a record as it is stored now. If it cannot be read, Show returns the
// readable part of it and [retrysafe.ErrUnreadable].
func (d *Service) Show(ctx context.Context, ref retrysafe.Ref) (retrysafe.Record, error) {
	r, err := d.fresh(ctx, ref)
	if err != nil {
		return r, fmt.Errorf("show %s: %w", retrysafe.HashKey(ref.Key), err)
	}
	return r, nil
}

// maxLooks bounds how many pages of the store are read for one Page.
const maxLooks = 20

// List returns a page of records. Unreadable records are included with Version 0,
// whatever States says, unless the filter asks for something that only a readable
// record tells. If ctx has a deadline, the page ends before it with what was found by then.
func (d *Service) List(ctx context.Context, f Filter) (Page, error) {
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
	began := time.Now()
	for looks := range maxLooks {
		if looks > 0 && isShort(ctx, time.Since(began)/time.Duration(looks)) {
			return page, nil
		}
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

// isShort reports whether the time of ctx may be over before another look at the store has
// ended, if looks take as long as they did so far.
func isShort(ctx context.Context, look time.Duration) bool {
	end, ok := ctx.Deadline()
	return ok && time.Until(end) < 2*look
}

// selects reports whether a record of the query is one of the filter's.
func (f *Filter) selects(r *retrysafe.Record) bool {
	switch {
	case !f.content(r):
		return false
	case f.Dead:
		return r.State == retrysafe.StateUnknown && r.Inquiry.Dead
	case r.Version == 0: // unreadable: its scope may not be the real one, so it is always shown
		return true
	default:
		return f.System || !r.IsSystem()
	}
}

func (d *Service) list(ctx context.Context, q retrysafe.Query) ([]retrysafe.Record, error) {
	ctx, cancel := context.WithTimeout(ctx, listFactor*d.timeout)
	defer cancel()
	return d.store.List(ctx, q)
}

// listFactor is how much longer than one store operation a list may take: it may have
// to read the whole table.
const listFactor = 20

// pages returns all records of the filter's scope and states, page by page. Of the filter
// only what a store's query selects is applied.
func (d *Service) pages(ctx context.Context, f Filter) iter.Seq2[[]retrysafe.Record, error] {
	return func(yield func([]retrysafe.Record, error) bool) {
		q := retrysafe.Query{Scope: f.Scope, States: f.States, Due: f.Due, Limit: pageSize}
		for {
			err := ctx.Err()
			var list []retrysafe.Record
			if err == nil {
				list, err = d.list(ctx, q)
			}
			if !yield(list, err) || err != nil || len(list) < q.Limit {
				return
			}
			q.After, q.Limit = list[len(list)-1].Ref, nextPage(list)
		}
	}
}

// nextPage returns how many records to list next, by how large those of the page before
// are. Large pages are faster: for each page of unknown outcomes PostgreSQL reads and
// sorts all of them.
func nextPage(list []retrysafe.Record) int {
	const memory = 32 << 20
	size := 0
	for i := range list {
		size += 1 << 10
		size += len(list[i].Request) + len(list[i].Checkpoint.Data)
		if list[i].Result != nil {
			size += len(list[i].Result.Body)
		}
	}
	return min(max(memory/(size/len(list)), pageSize), retrysafe.MaxList)
}
