package operator

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/retrysafe/retrysafe"
)

// An AuditFilter selects entries of the audit. The zero filter selects all but those of
// the single records of a batch, for which the entry of the batch stands.
type AuditFilter struct {
	// ID, if not empty, selects the action with this ID, and nothing else counts. Then
	// only its entry is read.
	ID string
	// By and Verb, if not empty, select the actions of one operator and of one verb.
	By, Verb string
	// Ref, if not zero, selects the actions on one record.
	Ref retrysafe.Ref
	// Batch, if not empty, selects the actions on the single records of one batch.
	Batch string
	// Since and Before, if not zero, select by the time of an action's first try. To
	// get the next page, set Before to the At of the last entry.
	Since, Before time.Time
	// Limit is how many are returned; zero means 100. Entries of the same moment as the
	// last of them come too, because the next page, by Before, begins behind that moment:
	// a batch over a store that commits many steps at once has many of one moment.
	Limit int
}

// Audit returns the actions of operators, refused ones included, the newest first. It
// reads the whole audit and holds about twice as many entries in memory as it returns.
func (d *Service) Audit(ctx context.Context, f AuditFilter) ([]Entry, error) {
	if f.ID != "" {
		return d.auditOne(ctx, f.ID)
	}
	size := retrysafe.Query{Limit: f.Limit}.Size()
	q := retrysafe.Query{Scope: auditScope, Limit: pageSize}
	var found []Entry
	room := 2 * size
	for {
		list, err := d.list(ctx, q)
		if err != nil {
			return nil, fmt.Errorf("audit: %w", err)
		}
		for i := range list {
			if e := entryOf(&list[i]); f.selects(&e) {
				found = append(found, e)
			}
			if len(found) >= room {
				found = newest(found, size)
				room = len(found) + size
			}
		}
		if len(list) < q.Limit {
			return newest(found, size), nil
		}
		q.After = list[len(list)-1].Ref
	}
}

// auditOne returns the entry of one action, or nothing if there is none.
func (d *Service) auditOne(ctx context.Context, id string) ([]Entry, error) {
	r, err := d.fresh(ctx, retrysafe.Ref{Scope: auditScope, Key: id})
	switch {
	case errors.Is(err, retrysafe.ErrNotFound):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("audit: %w", err)
	}
	return []Entry{entryOf(&r)}, nil
}

// newest returns the last n entries and all of the same moment as the first of them, the
// newest first.
func newest(all []Entry, n int) []Entry {
	slices.SortFunc(all, func(a, b Entry) int { return cmp.Or(b.At.Compare(a.At), cmp.Compare(a.ID, b.ID)) })
	n = min(n, len(all))
	for 0 < n && n < len(all) && all[n].At.Equal(all[n-1].At) {
		n++
	}
	return all[:n]
}

func (f *AuditFilter) selects(e *Entry) bool {
	return (f.By == "" || f.By == e.By) && (f.Verb == "" || f.Verb == e.Verb) &&
		(f.Ref == retrysafe.Ref{} || f.Ref == e.Ref) && (f.Batch == e.Batch || f.Batch == "" && f.Ref != retrysafe.Ref{}) &&
		(f.Since.IsZero() || !e.At.Before(f.Since)) && (f.Before.IsZero() || e.At.Before(f.Before))
}

// entryOf returns the entry in a record of the audit. For an action whose end is not
// stored yet it is the request.
func entryOf(r *retrysafe.Record) Entry {
	var e Entry
	data := r.Checkpoint.Data
	if r.Result != nil {
		data = r.Result.Body
	}
	if err := json.Unmarshal(data, &e); err != nil { // the action has stored nothing yet, or the entry cannot be read
		e = Entry{Outcome: StatusOpen}
	}
	if r.Result == nil {
		e.Text = r.Reason
	}
	e.ID, e.At, e.Attempt = r.Key, r.CreatedAt, r.Attempt
	return e
}
