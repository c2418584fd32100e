package webhook

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/retrysafe/retrysafe"
)

// pageSize is how many records one page of a survey holds.
const pageSize = 500

// A question asks which record has a provider's id or a downstream key.
type question struct {
	scope       string // of the records in question; empty: of all
	downstream  string // empty: providerRef is asked for
	providerRef string
	happened    bool // the evidence says so, and contradicts a retryable record

	found   retrysafe.Ref
	matches int
	err     error
	done    chan struct{} // closed when the fields above are final
}

// isAbout reports whether the question is about a record that has these downstream keys.
func (q *question) isAbout(r *retrysafe.Record, downstream []string) bool {
	if q.downstream != "" {
		return slices.Contains(downstream, q.downstream)
	}
	return r.ProviderRef == q.providerRef && (r.State != retrysafe.StateRetryable || q.happened)
}

// A survey answers questions by listing records of some states. All questions that wait
// when a listing begins are answered by it, so a burst of events costs one listing, and
// no question is answered by a listing that began before it was asked. One of the
// callers lists, and the others wait for it.
type survey struct {
	states []retrysafe.State
	// rest is how long the store is left alone after a listing, in multiples of the
	// time that the listing took.
	rest int

	turn chan struct{} // held by the caller that lists
	free time.Time     // when the next listing may begin; for the holder of turn

	mu      sync.Mutex
	waiting []*question
}

func newSurvey(rest int, states ...retrysafe.State) *survey {
	return &survey{states: states, rest: rest, turn: make(chan struct{}, 1)}
}

// ask waits for the answer of q. It gives up when ctx ends.
func (s *survey) ask(ctx context.Context, in *Intake, q *question) error {
	q.done = make(chan struct{})
	s.mu.Lock()
	s.waiting = append(s.waiting, q)
	s.mu.Unlock()
	select {
	case <-q.done:
		return q.err
	case <-ctx.Done():
		return s.withdraw(ctx, q)
	case s.turn <- struct{}{}:
	}
	defer func() { <-s.turn }()
	select {
	case <-q.done: // by the caller that had the turn before
		return q.err
	default:
	}
	select {
	case <-ctx.Done():
		return s.withdraw(ctx, q)
	case <-time.After(time.Until(s.free)):
	}
	began := time.Now()
	all := s.take(q.scope)
	err := s.list(ctx, in, all)
	s.free = time.Now().Add(time.Duration(s.rest) * time.Since(began))
	for _, one := range all {
		one.err = err
		close(one.done)
	}
	return err
}

// take returns the questions about one scope that no listing has been begun for.
func (s *survey) take(scope string) (all []*question) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.waiting = slices.DeleteFunc(s.waiting, func(q *question) bool {
		if q.scope == scope {
			all = append(all, q)
		}
		return q.scope == scope
	})
	return all
}

// withdraw forgets a question whose caller has given up.
func (s *survey) withdraw(ctx context.Context, q *question) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.waiting = slices.DeleteFunc(s.waiting, func(other *question) bool { return other == q })
	return refuse(searchIncomplete, context.Cause(ctx))
}

// list compares each record with the questions. It does not end with the request of its
// caller, because other requests wait for it too. If two records match, the event proves
// nothing about either: they may belong to two tenants. So it always lists to the end;
// if MaxSearch stops it earlier, there is no answer.
func (s *survey) list(ctx context.Context, in *Intake, all []*question) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), maxRun)
	defer cancel()
	query := retrysafe.Query{Scope: all[0].scope, States: s.states, Limit: pageSize}
	for seen, more := 0, true; more; {
		page, err := step(ctx, in.o.StoreTimeout, func(ctx context.Context) ([]retrysafe.Record, error) { return in.engine.Store().List(ctx, query) })
		if err != nil {
			return refuse(storeUnavailable, fmt.Errorf("list: %w", err))
		}
		for i := range page {
			in.compare(&page[i], all)
		}
		seen += len(page)
		if more = len(page) == pageSize; more {
			query.After = page[len(page)-1].Ref
		}
		if more && seen >= in.o.MaxSearch {
			return refuse(searchIncomplete, fmt.Errorf("there are more than %d records to search; let the event carry the key itself, or set Options.Find or a larger MaxSearch", seen))
		}
	}
	return nil
}

// compare compares a record with the questions, and remembers its downstream keys.
func (in *Intake) compare(r *retrysafe.Record, all []*question) {
	if r.Version == 0 || r.IsSystem() {
		return
	}
	var downstream []string
	if in.o.DownstreamKeys != nil {
		downstream = in.o.DownstreamKeys(r.Ref)
		for _, d := range downstream {
			in.known.add(d, r.Ref)
		}
	}
	for _, q := range all {
		if q.isAbout(r, downstream) {
			q.found = r.Ref
			q.matches++
		}
	}
}
