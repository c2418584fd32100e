package webhook

import (
	"context"
	"errors"
	"fmt"

	"github.com/retrysafe/retrysafe"
)

// pageSize is how many records one page of the search holds.
const pageSize = 500

// locate returns the key that the statement is about.
func (in *Intake) locate(ctx context.Context, e *Statement) (retrysafe.Ref, error) {
	if e.Ref.Key != "" {
		return e.Ref, nil
	}
	if in.o.Find == nil {
		return in.search(ctx, e)
	}
	ref, err := in.o.Find(ctx, e.Evidence.ProviderRef)
	switch {
	case errors.Is(err, retrysafe.ErrNotFound):
		return ref, refuse(noSuchKey, nil)
	case err != nil:
		return ref, refuse(storeUnavailable, fmt.Errorf("find: %w", err))
	case ref.Scope == "" || ref.Key == "" || ref.IsSystem() || e.Ref.Scope != "" && e.Ref.Scope != ref.Scope:
		return ref, refuse(notRead, errors.New("find: the result is no key, or a key outside the statement's scope"))
	}
	return ref, nil
}

// search scans the records that the evidence could change for the provider's id. If two
// records have the same id, the event proves nothing about either: they may belong to
// two tenants. So the scan always runs to the end. If MaxSearch stops it earlier, the
// event is refused.
func (in *Intake) search(ctx context.Context, e *Statement) (found retrysafe.Ref, err error) {
	states := []retrysafe.State{retrysafe.StateUnknown}
	if e.Evidence.Finding == retrysafe.FindingHappened {
		states = append(states, retrysafe.StateRetryable)
	}
	for _, state := range states {
		matches, seen := 0, 0
		q := retrysafe.Query{Scope: e.Ref.Scope, States: []retrysafe.State{state}, Limit: pageSize}
		for more := true; more; {
			page, err := step(ctx, in.o.StoreTimeout, func(ctx context.Context) ([]retrysafe.Record, error) { return in.engine.Store().List(ctx, q) })
			if err != nil {
				return found, refuse(storeUnavailable, fmt.Errorf("list: %w", err))
			}
			for i := range page {
				r := &page[i]
				if r.ProviderRef == e.Evidence.ProviderRef && r.Version != 0 && !r.IsSystem() {
					found = r.Ref
					matches++
				}
			}
			seen += len(page)
			if more = len(page) == pageSize; more {
				q.After = page[len(page)-1].Ref
			}
			if more && seen >= in.o.MaxSearch {
				return found, refuse(searchIncomplete, fmt.Errorf("there are more than %d %s records; set Options.Find", seen, state))
			}
		}
		switch {
		case matches > 1:
			return found, refuse(keyAmbiguous, fmt.Errorf("%d records have this provider id; the reader has to return the scope or the key", matches))
		case matches == 1:
			return found, nil
		}
	}
	return found, refuse(noSuchKey, nil)
}
