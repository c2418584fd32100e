package gateway

import (
	"context"
	"errors"
	"time"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/gateway/admission"
)

// A pacedStore lets the steps of requests wait for a turn of their consumer; see
// [admission.Budget.BeginStep]. Steps that belong to no request wait for none.
type pacedStore struct {
	retrysafe.Store
	budget *admission.Budget
}

// A countingStore is a pacedStore over a store that can count.
type countingStore struct {
	pacedStore
	retrysafe.Counter
}

func (g *Gateway) paced(s retrysafe.Store) retrysafe.Store {
	p := pacedStore{s, g.budget}
	if c, ok := s.(retrysafe.Counter); ok {
		return countingStore{p, c}
	}
	return p
}

// begin waits for the turn of the request whose step it is.
func (s pacedStore) begin(ctx context.Context) (of admission.Consumer, end bool) {
	x := proxiedOf(ctx)
	if x == nil {
		return of, false
	}
	return x.consumer, s.budget.BeginStep(x.consumer)
}

// Create implements [retrysafe.Store].
func (s pacedStore) Create(ctx context.Context, w retrysafe.Write) (retrysafe.Record, error) {
	if of, end := s.begin(ctx); end {
		defer s.budget.EndStep(of)
	}
	return s.Store.Create(ctx, w)
}

// settleTurn is how long a large answer waits to be stored at most. Its attempt sends no
// heartbeat any more, and the step has a deadline of its own.
const settleTurn = 250 * time.Millisecond

// Swap implements [retrysafe.Swapper]. A large answer is stored by a turn for large work.
func (s pacedStore) Swap(ctx context.Context, w retrysafe.Write) (retrysafe.Record, error) {
	if x := proxiedOf(ctx); x != nil && w.Result != nil && len(w.Result.Body) > largeAnswer {
		defer s.budget.Turn(x.consumer, int64(len(w.Result.Body)), settleTurn)()
		return s.Store.Swap(ctx, w)
	}
	if of, end := s.begin(ctx); end {
		defer s.budget.EndStep(of)
	}
	return s.Store.Swap(ctx, w)
}

// Load implements [retrysafe.Store].
func (s pacedStore) Load(ctx context.Context, ref retrysafe.Ref) (retrysafe.Record, error) {
	if of, end := s.begin(ctx); end {
		defer s.budget.EndStep(of)
	}
	return s.Store.Load(ctx, ref)
}

// Changes implements [retrysafe.ChangeFeed] if the store below does.
func (s pacedStore) Changes(ctx context.Context, cursor string) ([]retrysafe.Ref, string, error) {
	if feed, ok := s.Store.(retrysafe.ChangeFeed); ok {
		return feed.Changes(ctx, cursor)
	}
	return nil, "", errors.ErrUnsupported
}
