// Package export reads our side of a ledger from a store: the operations that have succeeded, and those whose outcome is
// not known, each with the id that the other side knows it by and the fields to compare.
package export

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/ledger"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/printable"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/terminal"
)

// Options say which records are exported, and what of them.
type Options struct {
	// Operations are the names of the operations, as records have them.
	Operations []string
	// ID is what the other side knows a payment by. The zero Value is the key.
	ID Value
	// Fields are what is compared, by name.
	Fields map[string]Value
	// Answered takes the time at which the answer was stored as that of the payment, instead of that of the key's first
	// request.
	Answered bool
	// Since and Until bound the times; zero is no bound.
	Since, Until time.Time
	// Namespace and Call are those that downstream keys are derived from. See [retrysafe.DownstreamKey].
	Namespace, Call string
}

const (
	// mostRecords is how many records are listed at once, and mostBytes how many bytes of answers and requests they may
	// have before fewer are.
	mostRecords = 1000
	mostBytes   = 8 << 20
	// listTimeout bounds one page.
	listTimeout = time.Minute
)

// listed are the states that an export has. A retryable record is proven not to have happened.
var listed = []retrysafe.State{
	retrysafe.StateAccepted, retrysafe.StateInProgress, retrysafe.StateCompleted, retrysafe.StateUnknown, retrysafe.StateExpired,
}

// Records returns our side: a row for each operation that has an answer with a status of 2xx, and a row that says so for
// each whose outcome is not known, or not any more. An operation that was declined or is proven not to have happened
// has no row. An answer without an id has a row that says so.
func Records(ctx context.Context, s retrysafe.Store, o Options) ledger.Source {
	return func(yield func(ledger.Entry, error) bool) {
		q := retrysafe.Query{States: listed, Limit: mostRecords / 10}
		for {
			page, err := list(ctx, s, q)
			if err != nil {
				yield(ledger.Entry{}, fmt.Errorf("list the records of the store: %w", err))
				return
			}
			for i := range page {
				if e, ok := o.entry(&page[i]); ok && !yield(e, nil) {
					return
				}
			}
			if len(page) < q.Size() {
				return
			}
			q.After, q.Limit = page[len(page)-1].Ref, nextLimit(page)
		}
	}
}

func list(ctx context.Context, s retrysafe.Store, q retrysafe.Query) ([]retrysafe.Record, error) {
	ctx, cancel := context.WithTimeout(ctx, listTimeout)
	defer cancel()
	return s.List(ctx, q)
}

// nextLimit returns how many records the next page may have, by the size of those of the last one.
func nextLimit(page []retrysafe.Record) int {
	bytes := 1
	for i := range page {
		if page[i].Result != nil {
			bytes += len(page[i].Result.Body)
		}
		bytes += len(page[i].Request) + len(page[i].Checkpoint.Data)
	}
	return max(10, min(mostRecords, mostBytes*len(page)/bytes))
}

// entry returns the row of a record, and whether it has one.
func (o *Options) entry(r *retrysafe.Record) (ledger.Entry, bool) {
	switch {
	case r.IsSystem():
		return ledger.Entry{}, false
	case !r.Readable():
		return ledger.Entry{ID: name(r.Ref), Record: name(r.Ref), Unknown: "unreadable", Unidentified: true},
			r.Version == 0 || slices.Contains(o.Operations, r.Operation)
	case !slices.Contains(o.Operations, r.Operation):
		return ledger.Entry{}, false
	}
	e := ledger.Entry{Time: r.CreatedAt, Record: name(r.Ref)}
	if o.Answered && r.State == retrysafe.StateCompleted {
		e.Time = r.UpdatedAt
	}
	if !o.Since.IsZero() && e.Time.Before(o.Since) || !o.Until.IsZero() && !e.Time.Before(o.Until) {
		return ledger.Entry{}, false
	}
	switch {
	case r.State != retrysafe.StateCompleted:
		e.Unknown = r.State.String()
	case r.Result.Status < 200 || r.Result.Status > 299:
		return ledger.Entry{}, false
	}
	read := reading{Record: r, o: o}
	id, ok := read.text(o.ID)
	if !ok || id == "" {
		id, e.Unidentified = e.Record, true
	}
	e.ID = id
	if len(o.Fields) > 0 && e.Unknown == "" {
		e.Fields = make(map[string]string, len(o.Fields))
		for name, v := range o.Fields {
			e.Fields[name] = read.field(v)
		}
	}
	return e, true
}

// name returns the name of a record as two words of a command line.
func name(ref retrysafe.Ref) string {
	return terminal.ShellWord(printable.Name(ref.Scope)) + " " + terminal.ShellWord(printable.Name(ref.Key))
}
