package webhook

import (
	"context"
	"errors"
	"fmt"

	"github.com/retrysafe/retrysafe"
)

// locate returns the key that the statement is about.
func (in *Intake) locate(ctx context.Context, e *Statement) (retrysafe.Ref, error) {
	switch {
	case e.Ref.Key != "":
		return e.Ref, nil
	case e.DownstreamKey != "" && in.o.DownstreamKeys == nil:
		return e.Ref, refuse(notRead, errors.New("the statement has a downstream key, and Options.DownstreamKeys is not set"))
	case e.DownstreamKey == "" && in.o.Find != nil:
		return in.lookUp(ctx, e)
	}
	if ref, ok := in.known.find(e.DownstreamKey); ok && (e.Ref.Scope == "" || e.Ref.Scope == ref.Scope) {
		return ref, nil
	}
	return in.search(ctx, e)
}

// lookUp asks the user's table.
func (in *Intake) lookUp(ctx context.Context, e *Statement) (retrysafe.Ref, error) {
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

// search searches the store. Most events that have to be searched for are about an
// unknown outcome, and stores find those without reading other records. The second
// survey may have to read all records. It takes place if the event would be acknowledged
// without it, although its key may be in flight, or may contradict a retryable record.
// It also lists what the first one does: a record may change its state between the two.
func (in *Intake) search(ctx context.Context, e *Statement) (retrysafe.Ref, error) {
	happened := e.Evidence.Finding == retrysafe.FindingHappened
	surveys := []*survey{in.unknown}
	if happened || in.o.Missing == MissingAcknowledge {
		surveys = append(surveys, in.unsettled)
	}
	for _, s := range surveys {
		q := &question{scope: e.Ref.Scope, downstream: e.DownstreamKey, providerRef: e.Evidence.ProviderRef, happened: happened}
		if err := s.ask(ctx, in, q); err != nil {
			return retrysafe.Ref{}, err
		}
		switch {
		case q.matches > 1:
			return q.found, refuse(keyAmbiguous, fmt.Errorf("%d records have this provider id; the reader has to return the scope or the key", q.matches))
		case q.matches == 1:
			return q.found, nil
		}
	}
	return retrysafe.Ref{}, refuse(noSuchKey, nil)
}
