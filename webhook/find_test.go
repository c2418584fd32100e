package webhook_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/internal/test/faultstore"
	"github.com/retrysafe/retrysafe/store/memstore"
	"github.com/retrysafe/retrysafe/webhook"
)

// paid reports on a provider's id.
func paid(id string) report {
	return report{ProviderRef: id, Finding: retrysafe.FindingHappened, Status: 201}
}

func refused(id string) report {
	return report{ProviderRef: id, Finding: retrysafe.FindingDeclined, Status: 402}
}

// crowd stores unknown outcomes that no event is about.
func (d *desk) crowd(n int) {
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() {
			_, err := d.store.Create(d.t.Context(), retrysafe.Write{Term: time.Hour, Record: retrysafe.Record{
				Ref:   retrysafe.Ref{Scope: "tenant-9", Key: fmt.Sprint(i)},
				State: retrysafe.StateUnknown, Version: retrysafe.RecordVersion, Owner: retrysafe.Owner{1, byte(i), byte(i >> 8)},
				Attempt: 1, ProviderRef: fmt.Sprint("other-", i), Retain: time.Hour,
			}})
			if err != nil {
				d.t.Error(err)
			}
		})
	}
	all.Wait()
}

func TestKeyIsFoundByTheProvidersID(t *testing.T) {
	t.Parallel()
	overStores(t, func(t *testing.T, s retrysafe.Store) {
		d := newDesk(t, s, nil, nil)
		d.crowd(1100) // several pages
		d.deliver("evt-1", paid("pay-1"), 404, "no-such-key")
		d.put(retrysafe.Record{State: retrysafe.StateUnknown, ProviderRef: "pay-1"})
		d.put(retrysafe.Record{Ref: retrysafe.Ref{Scope: scope, Key: "zz, of no provider's id"}, State: retrysafe.StateUnknown})
		d.deliver("evt-1", paid("pay-1"), 200, "settled")
		d.want(retrysafe.StateCompleted, "as reported by evt-1")
		accepted := retrysafe.Ref{Scope: scope, Key: "accepted"}
		d.put(retrysafe.Record{Ref: accepted, State: retrysafe.StateAccepted, ProviderRef: "pay-3"})
		d.deliver("evt-3", refused("pay-3"), 503, "key-in-flight")
		d.put(retrysafe.Record{Ref: retrysafe.Ref{Scope: scope, Key: "another"}, State: retrysafe.StateUnknown, ProviderRef: "pay-2"})
		d.deliver("evt-2", refused("pay-2"), 200, "settled")
	})
}

// A record at the end of a page is one record: no search reads it twice.
func TestRecordAtTheEndOfAPageIsFoundOnce(t *testing.T) {
	t.Parallel()
	d := newDesk(t, memstore.New(nil), nil, nil)
	d.crowd(499)
	last := retrysafe.Ref{Scope: "tenant-99", Key: key}
	d.put(retrysafe.Record{Ref: last, State: retrysafe.StateUnknown, ProviderRef: "pay-1"})
	d.put(retrysafe.Record{Ref: retrysafe.Ref{Scope: "tenant-999", Key: key}, State: retrysafe.StateUnknown, ProviderRef: "pay-2"})
	d.deliver("evt-1", paid("pay-1"), 200, "settled")
	if r, err := d.store.Load(t.Context(), last); err != nil || r.State != retrysafe.StateCompleted {
		t.Errorf("it is %s, %v", r.State, err)
	}
}

// Also by its id, success after Retryable is an alarm, and anything else is nothing.
func TestW57_RetryableIsFoundByTheProvidersID(t *testing.T) {
	t.Parallel()
	overStores(t, func(t *testing.T, s retrysafe.Store) {
		d := newDesk(t, s, nil, nil)
		d.put(retrysafe.Record{State: retrysafe.StateRetryable, ProviderRef: "pay-1"})
		d.deliver("evt-1", refused("pay-1"), 404, "no-such-key")
		d.deliver("evt-2", paid("pay-1"), 200, "contradicted")
		d.want(retrysafe.StateUnknown, "")
		d.saw(retrysafe.EventContradicted)
	})
}

// The same id in two tenants is evidence about neither, unless the event says whose
// it is.
func TestW73_ProvidersIDOfTwoTenants(t *testing.T) {
	t.Parallel()
	overStores(t, func(t *testing.T, s retrysafe.Store) {
		d := newDesk(t, s, nil, nil)
		d.put(retrysafe.Record{State: retrysafe.StateUnknown, ProviderRef: "pay-1"})
		theirs := retrysafe.Ref{Scope: "tenant-2", Key: key}
		d.put(retrysafe.Record{Ref: theirs, State: retrysafe.StateUnknown, ProviderRef: "pay-1"})
		d.deliver("evt-1", paid("pay-1"), 409, "key-ambiguous")
		d.want(retrysafe.StateUnknown, "")
		event := paid("pay-1")
		event.Scope = scope
		d.deliver("evt-1", event, 200, "settled")
		d.want(retrysafe.StateCompleted, "as reported by evt-1")
		if r, err := s.Load(t.Context(), theirs); err != nil || r.State != retrysafe.StateUnknown {
			t.Errorf("the other tenant's key is %s, %v", r.State, err)
		}
	})
}

// A search that may not go on does not say that there is no such key.
func TestSearchIsBounded(t *testing.T) {
	t.Parallel()
	d := newDesk(t, memstore.New(nil), nil, &webhook.Options{MaxSearch: 1000})
	d.crowd(1100)
	d.deliver("evt-1", paid("pay-1"), 503, "search-incomplete")
	d.put(retrysafe.Record{State: retrysafe.StateUnknown, ProviderRef: "pay-1"})
	event := paid("pay-1")
	event.Scope = scope
	d.deliver("evt-1", event, 200, "settled") // one tenant's are few enough
	d.put(retrysafe.Record{Ref: retrysafe.Ref{Scope: scope, Key: "another"}, State: retrysafe.StateUnknown, ProviderRef: "pay-2"})
	newDesk(t, d.store, nil, &webhook.Options{MaxSearch: 1001}).deliver("evt-2", paid("pay-2"), 200, "settled") // nothing is left behind the last page
}

func TestKeyIsFoundByATableOfYours(t *testing.T) {
	t.Parallel()
	table := map[string]retrysafe.Ref{
		"pay-1": {Scope: scope, Key: key},
		"pay-2": {Scope: scope},
		"pay-3": {Scope: retrysafe.SystemScope("webhook/test"), Key: "evt-0"},
		"pay-4": {Key: key},
	}
	d := newDesk(t, memstore.New(nil), nil, &webhook.Options{
		Find: func(_ context.Context, id string) (retrysafe.Ref, error) {
			if id == "down" {
				return retrysafe.Ref{}, errors.New("the database is down")
			}
			ref, ok := table[id]
			if !ok {
				return ref, fmt.Errorf("find payment: %w", retrysafe.ErrNotFound)
			}
			return ref, nil
		},
	})
	d.put(retrysafe.Record{State: retrysafe.StateUnknown})
	d.deliver("evt-0", paid("pay-0"), 404, "no-such-key")
	d.deliver("evt-1", paid("down"), 503, "store-unavailable")
	d.deliver("evt-2", paid("pay-2"), 500, "event-not-read")
	d.deliver("evt-3", paid("pay-3"), 500, "event-not-read")
	d.deliver("evt-3", paid("pay-4"), 500, "event-not-read")
	event := paid("pay-1")
	event.Scope = "tenant-2"
	d.deliver("evt-4", event, 500, "event-not-read")
	d.want(retrysafe.StateUnknown, "")
	d.deliver("evt-5", paid("pay-1"), 200, "settled")
	if r := d.want(retrysafe.StateCompleted, "as reported by evt-5"); r.ProviderRef != "pay-1" {
		t.Errorf("the provider's id is %q", r.ProviderRef)
	}
	if n := d.fault.Count(faultstore.List); n != 0 {
		t.Errorf("records were searched %d times", n)
	}
}

func TestSearchSurvivesTheStore(t *testing.T) {
	t.Parallel()
	d := newDesk(t, memstore.New(nil), nil, nil)
	d.put(retrysafe.Record{State: retrysafe.StateUnknown, ProviderRef: "pay-1"})
	d.fault.Plan(faultstore.FailOnce(faultstore.List, 1, faultstore.LoseRequest))
	d.deliver("evt-1", paid("pay-1"), 503, "store-unavailable")
	d.deliver("evt-1", paid("pay-1"), 200, "settled")
}

// Of the names that a statement has for its key, the key itself comes before the
// downstream key, and that before the provider's id.
func TestKeyOfAStatementWithManyNames(t *testing.T) {
	t.Parallel()
	other := retrysafe.Ref{Scope: scope, Key: "another"}
	statement := webhook.Statement{Evidence: retrysafe.Evidence{ProviderRef: "pay-1", Finding: retrysafe.FindingHappened, Result: retrysafe.Result{Status: 201}}}
	d := newDesk(t, memstore.New(nil), func(context.Context, webhook.Event) (webhook.Statement, error) { return statement, nil }, &webhook.Options{
		DownstreamKeys: derived,
		Find:           func(context.Context, string) (retrysafe.Ref, error) { return other, nil },
	})
	d.put(retrysafe.Record{State: retrysafe.StateUnknown})
	d.put(retrysafe.Record{Ref: other, State: retrysafe.StateUnknown})
	statement.DownstreamKey = derived(ours)[0]
	d.deliver("evt-1", report{}, 200, "settled")
	d.want(retrysafe.StateCompleted, "")
	statement.Ref, statement.DownstreamKey = ours, derived(other)[0]
	d.deliver("evt-2", report{}, 200, "unchanged")
	if r, err := d.store.Load(t.Context(), other); err != nil || r.State != retrysafe.StateUnknown {
		t.Errorf("the other key is %s, %v", r.State, err)
	}
}

// failing is a store whose listings fail, the first one when all events are there.
type failing struct {
	retrysafe.Store
	together func()
}

func (s failing) List(context.Context, retrysafe.Query) ([]retrysafe.Record, error) {
	s.together()
	return nil, errors.New("the store is down")
}

// A listing that fails proves of no key that it does not exist, also to the events that
// waited for the listing of another one.
func TestFailedSearchMissesNoKey(t *testing.T) {
	t.Parallel()
	const many = 32
	var d *desk
	d = newDesk(t, failing{memstore.New(nil), sync.OnceFunc(func() {
		for d.reads.Load() < many && t.Context().Err() == nil {
			time.Sleep(time.Millisecond)
		}
	})}, nil, nil)
	var all sync.WaitGroup
	for i := range many {
		all.Go(func() { d.deliver(fmt.Sprint("evt-", i), refused("pay-1"), 503, "store-unavailable") }) // one search: of unknown outcomes
	}
	all.Wait()
}

// slow is a store whose listings take their time.
type slow struct {
	retrysafe.Store
	takes time.Duration
}

func (s slow) List(ctx context.Context, q retrysafe.Query) ([]retrysafe.Record, error) {
	select {
	case <-time.After(s.takes):
		return s.Store.List(ctx, q)
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// A listing answers all events that wait for it. It does not end with the time of the one
// that lists, which may have waited for long before.
func TestSearchOutlivesTheEventThatBeganIt(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newDesk(t, slow{memstore.New(nil), 14 * time.Second}, nil, nil)
		d.put(retrysafe.Record{State: retrysafe.StateUnknown, ProviderRef: "pay-1"})
		var all sync.WaitGroup
		for id, r := range map[string]report{"first": refused("pay-8"), "second": refused("pay-9")} {
			all.Go(func() { d.send(signed(t, secret, id, time.Now(), r.body())) })
		}
		time.Sleep(20 * time.Second) // one of them has listed, and the other one is about to
		d.deliver("third", refused("pay-1"), 200, "settled")
		all.Wait()
	})
}

// An event that gives up its search, because those of other tenants take too long, leaves the
// other events that wait where they are. The store rests between two searches.
func TestSearchThatIsGivenUpLeavesTheOthers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const search = 11 * time.Second
		d := newDesk(t, slow{memstore.New(nil), search}, nil, nil)
		d.put(retrysafe.Record{State: retrysafe.StateUnknown, ProviderRef: "pay-1"})
		in := func(tenant string) report {
			r := refused("pay-1")
			r.Scope = tenant
			return r
		}
		began := time.Now()
		var all sync.WaitGroup
		all.Go(func() { d.deliver("first", in("a"), 404, "no-such-key") })
		synctest.Wait() // it lists
		all.Go(func() { d.deliver("second", in("b"), 404, "no-such-key") })
		synctest.Wait() // it is the next one
		all.Go(func() { d.deliver("third", in("c"), 503, "search-incomplete") })
		time.Sleep(29 * time.Second)
		d.deliver("fourth", in(scope), 200, "settled")
		if took := time.Since(began); took != 5*search {
			t.Errorf("three searches took %v, want %v, with a pause of the same length between two", took, 5*search)
		}
		all.Wait()
	})
}
