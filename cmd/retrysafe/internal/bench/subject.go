package bench

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/storeurl"
)

// A database is what the bare loop works on: the store's own database, by the same driver.
// All methods but close may be called concurrently.
type database interface {
	// insert stores the row of the key with a number, durably.
	insert(ctx context.Context, n int64) error
	// update stores the answer in that row, durably.
	update(ctx context.Context, n int64) error
	// roundTrip asks the server for nothing.
	roundTrip(ctx context.Context) error
	// close removes what is not removed with the sandbox.
	close(ctx context.Context) error
}

// transactionFunc runs a call whose effect is one row, in one commit.
type transactionFunc func(ctx context.Context, c retrysafe.Call) (retrysafe.Outcome, error)

// A subject is the open store that is measured.
type subject struct {
	plan      *Plan
	opened    *storeurl.Opened
	engine    *retrysafe.Engine
	db        database
	oneCommit transactionFunc // nil: the store joins no transactions

	next  atomic.Int64     // the number of the last key
	stock []retrysafe.Call // completed
}

const (
	// patience is how long a call waits for the store before it counts as failed. It is
	// longer than a program would wait, so that a slow store is measured.
	patience = 5 * time.Second
	// probeLasts and probeMost bound how long and how often one row is committed by one
	// client, and a round trip made.
	probeLasts = 500 * time.Millisecond
	probeMost  = 300
	// stockSize is how many keys are completed for replays.
	stockSize = 200
)

// answer is what every operation answers: 200 bytes and two headers.
var answer = retrysafe.Result{
	Status: http.StatusCreated,
	Header: map[string][]string{"Content-Type": {"application/json"}, "Location": {"/payments/1"}},
	Body:   fmt.Appendf(nil, `{"id":"pay_%0187d"}`, 1),
}

func open(ctx context.Context, url string, plan *Plan) (_ *subject, err error) {
	at, err := storeurl.Parse(url)
	if err != nil {
		return nil, err
	}
	if url, err = withConnections(&at, url); err != nil {
		return nil, err
	}
	s := &subject{plan: plan}
	if s.opened, err = storeurl.Open(ctx, url, nil); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			_ = s.opened.Close() // the first error says more
		}
	}()
	if s.engine, err = retrysafe.New(s.opened.Store, &retrysafe.Options{StoreTimeout: patience, SettleTimeout: patience}); err != nil {
		return nil, err
	}
	joined, err := s.engine.With(retrysafe.Policy{Effects: retrysafe.EffectsInTx})
	if err != nil {
		return nil, err
	}
	s.db, s.oneCommit, err = openDatabase(ctx, s.opened.Store, &at, joined)
	return s, err
}

// close waits for what is under way and closes the store.
func (s *subject) close(ctx context.Context) error {
	ctx = context.WithoutCancel(ctx)
	drain, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	_ = s.engine.Drain(drain) // an answer that is not stored by then is removed with the others
	ctx, cancel = context.WithTimeout(ctx, time.Minute)
	defer cancel()
	return errors.Join(s.db.close(ctx), s.opened.Close())
}

// keyOf returns the key with a number. Keys are as long as a UUID, and like those their order
// says nothing of when they are used: an index grows everywhere.
func keyOf(n int64) string { return fmt.Sprintf("%016x-%019d", uint64(n)*0x9e3779b97f4a7c15, n) }

// newCall returns the call with a number.
func newCall(n int64) retrysafe.Call {
	return retrysafe.Call{
		Ref: retrysafe.Ref{Scope: "bench", Key: keyOf(n)}, Operation: "POST /payments", Fingerprint: retrysafe.Fingerprint{Alg: 1, Sum: [32]byte{1}},
	}
}

// operation returns what a client does again and again.
func (s *subject) operation(l Load) func(context.Context) error {
	switch l {
	case Bare:
		return func(ctx context.Context) error {
			n := s.next.Add(1)
			if err := s.db.insert(ctx, n); err != nil {
				return err
			}
			return s.db.update(ctx, n)
		}
	case OneCommit:
		return func(ctx context.Context) error { return expect(false)(s.oneCommit(ctx, newCall(s.next.Add(1)))) }
	case Replay:
		return func(ctx context.Context) error {
			c := s.stock[s.next.Add(1)%int64(len(s.stock))]
			return expect(true)(s.do(ctx, c))
		}
	default:
		return func(ctx context.Context) error { return expect(false)(s.do(ctx, newCall(s.next.Add(1)))) }
	}
}

func (s *subject) do(ctx context.Context, c retrysafe.Call) (retrysafe.Outcome, error) {
	return s.engine.Do(ctx, c, func(context.Context, *retrysafe.Execution) (retrysafe.Result, error) { return answer, nil })
}

// expect returns an error unless an answer is a replay, or is none.
func expect(replayed bool) func(retrysafe.Outcome, error) error {
	return func(out retrysafe.Outcome, err error) error {
		if err == nil && out.Replayed != replayed {
			return fmt.Errorf("the answer is a replay: %t, want %t; the figures would be wrong", out.Replayed, replayed)
		}
		return err
	}
}

// probe measures what a load consists of: a round trip, and the commit of one row.
func (s *subject) probe(ctx context.Context, report *Report) (err error) {
	if report.RoundTripSeconds, err = alone(ctx, s.db.roundTrip); err != nil {
		return fmt.Errorf("measure the round trip: %w", err)
	}
	report.CommitSeconds, err = alone(ctx, func(ctx context.Context) error { return s.db.insert(ctx, s.next.Add(1)) })
	if err != nil {
		return fmt.Errorf("measure a commit: %w", err)
	}
	return nil
}

// alone returns the median time of a step, in seconds, that one client repeats.
func alone(ctx context.Context, step func(context.Context) error) (seconds float64, err error) {
	var all []time.Duration
	if err := step(ctx); err != nil { // it may connect
		return 0, err
	}
	for began := time.Now(); len(all) < probeMost && (len(all) < 3 || time.Since(began) < probeLasts); {
		start := time.Now()
		if err := step(ctx); err != nil {
			return 0, err
		}
		all = append(all, time.Since(start))
	}
	slices.Sort(all)
	return all[len(all)/2].Seconds(), nil
}

// stockUp completes keys for replays.
func (s *subject) stockUp(ctx context.Context) error {
	for range stockSize {
		s.stock = append(s.stock, newCall(s.next.Add(1)))
	}
	var next atomic.Int64
	errs := make([]error, Connections)
	var all sync.WaitGroup
	for i := range errs {
		all.Go(func() {
			for n := next.Add(1) - 1; n < stockSize && errs[i] == nil; n = next.Add(1) - 1 {
				errs[i] = expect(false)(s.do(ctx, s.stock[n]))
			}
		})
	}
	all.Wait()
	if err := cmp.Or(errs...); err != nil {
		return fmt.Errorf("complete keys for replays: %w", err)
	}
	return nil
}
