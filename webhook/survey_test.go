package webhook_test

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/internal/test/faultstore"
	"github.com/retrysafe/retrysafe/store/memstore"
	"github.com/retrysafe/retrysafe/webhook"
)

const namespace = "the tests"

func derived(ref retrysafe.Ref) []string {
	return []string{retrysafe.DownstreamKey(namespace, ref, "charge"), retrysafe.DownstreamKey(namespace, ref, "refund")}
}

// readDownstream reads reports that have a downstream key in place of the key.
func readDownstream(ctx context.Context, ev webhook.Event) (webhook.Statement, error) {
	e, err := read(ctx, ev)
	var r struct{ Downstream string }
	if err == nil {
		err = json.Unmarshal(ev.Body, &r)
	}
	e.DownstreamKey = r.Downstream
	return e, err
}

// about is a report on a downstream key, for the desk of readDownstream.
func (d *desk) about(id, downstream string, f retrysafe.Finding, status int, word string) {
	d.t.Helper()
	answer := map[retrysafe.Finding]int{retrysafe.FindingHappened: 201, retrysafe.FindingDeclined: 402}[f]
	body := fmt.Appendf(nil, `{"Downstream":%q,"Finding":%d,"Status":%d}`, downstream, f, answer)
	w := d.send(signed(d.t, secret, id, time.Now(), body))
	if got := w.Body.String(); w.Code != status || !hasWord(got, word) {
		d.t.Fatalf("event %s got %d %s; want %d %q", id, w.Code, got, status, word)
	}
}

func hasWord(text, word string) bool {
	var p struct{ Code, Outcome string }
	return json.Unmarshal([]byte(text), &p) == nil && (p.Code == word || p.Outcome == word)
}

func newDownstreamDesk(t testing.TB, s retrysafe.Store, o webhook.Options) *desk {
	t.Helper()
	o.DownstreamKeys = derived
	return newDesk(t, s, readDownstream, &o)
}

var ours = retrysafe.Ref{Scope: scope, Key: key}

func TestKeyIsFoundByItsDownstreamKey(t *testing.T) {
	t.Parallel()
	overStores(t, func(t *testing.T, s retrysafe.Store) {
		d := newDownstreamDesk(t, s, webhook.Options{})
		d.crowd(600)
		d.about("evt-1", derived(ours)[1], retrysafe.FindingHappened, 404, "no-such-key")
		d.put(retrysafe.Record{State: retrysafe.StateUnknown})
		d.about("evt-1", derived(ours)[1], retrysafe.FindingHappened, 200, "settled")
		d.want(retrysafe.StateCompleted, "as reported by evt-1")
	})
}

// An event about a key in flight is never acknowledged, also if it is about a key of
// another process and missing keys are acknowledged.
func TestW57_KeyInFlightIsFoundByItsDownstreamKey(t *testing.T) {
	t.Parallel()
	overStores(t, func(t *testing.T, s retrysafe.Store) {
		d := newDownstreamDesk(t, s, webhook.Options{Missing: webhook.MissingAcknowledge})
		d.put(retrysafe.Record{State: retrysafe.StateInProgress})
		d.about("evt-3", derived(ours)[0], retrysafe.FindingDeclined, 503, "key-in-flight") // first: what was found is remembered
		d.about("evt-1", derived(ours)[0], retrysafe.FindingHappened, 503, "key-in-flight")
		d.about("evt-2", derived(retrysafe.Ref{Scope: scope, Key: "none"})[0], retrysafe.FindingHappened, 200, "acknowledged")
	})
}

// The keys of this process are found without a search, also when they are settled.
func TestObservedKeysAreFoundWithoutASearch(t *testing.T) {
	t.Parallel()
	tenant := ""
	d := newDesk(t, memstore.New(nil), func(ctx context.Context, ev webhook.Event) (webhook.Statement, error) {
		e, err := readDownstream(ctx, ev)
		e.Ref.Scope = tenant
		return e, err
	}, &webhook.Options{DownstreamKeys: derived})
	d.put(retrysafe.Record{State: retrysafe.StateCompleted, Result: &retrysafe.Result{Status: 402}})
	d.about("evt-1", derived(ours)[0], retrysafe.FindingDeclined, 404, "no-such-key")
	d.Observe(retrysafe.Event{Kind: retrysafe.EventReserved, Ref: ours})
	d.Observe(retrysafe.Event{Kind: retrysafe.EventReserved, Ref: retrysafe.Ref{Scope: retrysafe.SystemScope("x"), Key: "1"}})
	for i, kind := range []retrysafe.EventKind{retrysafe.EventAccepted, retrysafe.EventRetried, retrysafe.EventReplayed, retrysafe.EventCompleted} {
		d.Observe(retrysafe.Event{Kind: kind, Ref: retrysafe.Ref{Scope: scope, Key: fmt.Sprint(i)}})
	}
	if n := d.Known(); n != 2*3 {
		t.Errorf("%d downstream keys are remembered", n)
	}
	d.fault.Plan(nil)
	d.about("evt-1", derived(ours)[0], retrysafe.FindingDeclined, 200, "unchanged")
	d.about("evt-2", derived(ours)[0], retrysafe.FindingHappened, 200, "contradicted")
	tenant = scope
	d.about("evt-3", derived(ours)[0], retrysafe.FindingDeclined, 200, "unchanged")
	if n := d.fault.Count(faultstore.List); n != 0 {
		t.Errorf("the store was searched %d times", n)
	}
}

// An event that its reader has limited to one tenant does not settle the key of another
// one, also if the process remembers that key.
func TestW73_RememberedKeyOfAnotherTenant(t *testing.T) {
	t.Parallel()
	limited := func(ctx context.Context, ev webhook.Event) (webhook.Statement, error) {
		e, err := readDownstream(ctx, ev)
		e.Ref.Scope = "tenant-2"
		return e, err
	}
	d := newDesk(t, memstore.New(nil), limited, &webhook.Options{DownstreamKeys: derived})
	d.put(retrysafe.Record{State: retrysafe.StateUnknown})
	d.Observe(retrysafe.Event{Kind: retrysafe.EventReserved, Ref: ours})
	d.about("evt-1", derived(ours)[0], retrysafe.FindingHappened, 404, "no-such-key")
	d.want(retrysafe.StateUnknown, "")
}

// What is remembered of keys is bounded, and what was forgotten is searched for.
func TestKnownKeysAreBounded(t *testing.T) {
	t.Parallel()
	d := newDownstreamDesk(t, memstore.New(nil), webhook.Options{})
	d.put(retrysafe.Record{State: retrysafe.StateUnknown})
	d.Observe(retrysafe.Event{Kind: retrysafe.EventReserved, Ref: ours})
	for i := range 70_000 {
		if i == 20_000 { // by now, the first one is in the older generation
			settled := retrysafe.Ref{Scope: scope, Key: "0"} // no search would find it
			d.put(retrysafe.Record{Ref: settled, State: retrysafe.StateCompleted, Result: &retrysafe.Result{Status: 201}})
			d.about("evt-0", derived(settled)[0], retrysafe.FindingHappened, 200, "unchanged")
		}
		d.Observe(retrysafe.Event{Kind: retrysafe.EventReserved, Ref: retrysafe.Ref{Scope: scope, Key: fmt.Sprint(i)}})
	}
	if n := d.Known(); n > 2<<15 {
		t.Errorf("%d keys are remembered", n)
	}
	d.about("evt-1", derived(ours)[0], retrysafe.FindingHappened, 200, "settled")
}

// Events that arrive together share a listing of the store, and each gets its own key.
func TestSearchesAreShared(t *testing.T) {
	t.Parallel()
	const many = 100
	d := newDownstreamDesk(t, memstore.New(nil), webhook.Options{})
	refs := make([]retrysafe.Ref, many)
	for i := range refs {
		refs[i] = retrysafe.Ref{Scope: scope, Key: fmt.Sprint("order-", i)}
		d.put(retrysafe.Record{Ref: refs[i], State: retrysafe.StateUnknown})
	}
	d.crowd(2000)
	var all sync.WaitGroup
	for i, ref := range refs {
		all.Go(func() { d.about(fmt.Sprint("evt-", i), derived(ref)[0], retrysafe.FindingHappened, 200, "settled") })
	}
	all.Wait()
	for i, ref := range refs {
		r, err := d.store.Load(t.Context(), ref)
		if err != nil || r.State != retrysafe.StateCompleted || string(r.Result.Body) != fmt.Sprint("as reported by evt-", i) {
			t.Errorf("%d is %+v, %v", i, r, err)
		}
	}
	if n := d.fault.Count(faultstore.List); n >= 5*many {
		t.Errorf("%d pages were listed for %d events over 5 pages", n, many)
	}
}

// listing is a store that calls a function before it lists.
type listing struct {
	retrysafe.Store
	before func()
}

func (s listing) List(ctx context.Context, q retrysafe.Query) ([]retrysafe.Record, error) {
	s.before()
	return s.Store.List(ctx, q)
}

// Searches of different tenants that wait together: each is answered by a listing of its
// own scope, and not by that of another one.
func TestW73_SearchesOfManyTenants(t *testing.T) {
	t.Parallel()
	const tenants, events = 6, 4
	var d *desk
	together := sync.OnceFunc(func() { // the first listing waits until all events are there
		for d.reads.Load() < tenants*events && t.Context().Err() == nil {
			time.Sleep(time.Millisecond)
		}
	})
	d = newDesk(t, listing{memstore.New(nil), together}, nil, nil)
	var all sync.WaitGroup
	for i := range tenants * events {
		ref := retrysafe.Ref{Scope: fmt.Sprint("tenant-", i%tenants), Key: fmt.Sprint("order-", i)}
		d.put(retrysafe.Record{Ref: ref, State: retrysafe.StateUnknown, ProviderRef: fmt.Sprint("pay-", i/tenants)}) // the same ids in each
		all.Go(func() {
			event := paid(fmt.Sprint("pay-", i/tenants))
			event.Scope = ref.Scope
			d.deliver(fmt.Sprint("evt-", i), event, 200, "settled")
			if r, err := d.store.Load(t.Context(), ref); err != nil || r.State != retrysafe.StateCompleted {
				t.Errorf("%v is %s, %v", ref, r.State, err)
			}
		})
	}
	all.Wait()
}

// A caller that gives up takes no search from others, and a search that fails fails
// for the events that waited for it only.
func TestSearchOutlivesItsCaller(t *testing.T) {
	t.Parallel()
	d := newDownstreamDesk(t, memstore.New(nil), webhook.Options{})
	d.put(retrysafe.Record{State: retrysafe.StateUnknown})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	body := fmt.Appendf(nil, `{"Downstream":%q}`, derived(ours)[0])
	if w := d.send(signed(t, secret, "evt-1", time.Now(), body).WithContext(ctx)); w.Code < 500 {
		t.Errorf("a caller that has gone gets %d", w.Code)
	}
	d.fault.Plan(faultstore.FailOnce(faultstore.List, 1, faultstore.LoseRequest))
	d.about("evt-2", derived(ours)[0], retrysafe.FindingHappened, 503, "store-unavailable")
	d.about("evt-2", derived(ours)[0], retrysafe.FindingHappened, 200, "settled")
}

// An event about another operation than those of the webhook changes nothing.
func TestEventsOfOtherOperationsAreRefused(t *testing.T) {
	t.Parallel()
	d := newDesk(t, memstore.New(nil), nil, &webhook.Options{Operations: []string{"POST /refunds"}})
	d.put(retrysafe.Record{State: retrysafe.StateUnknown})
	d.deliver("evt-1", happened(), 500, "event-not-read")
	d.want(retrysafe.StateUnknown, "")
	own := newDesk(t, d.store, nil, &webhook.Options{Operations: []string{"POST /refunds", "POST /payments"}})
	own.deliver("evt-1", happened(), 200, "settled")
}

// What a reader says about an event that it cannot use.
func TestReadersRefusals(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		err     error
		missing webhook.MissingPolicy
		status  int
		word    string
	}{
		{webhook.ErrUnmatched, 0, 500, "event-unmatched"},
		{retrysafe.ErrNotFound, webhook.MissingRetry, 404, "no-such-key"},
		{retrysafe.ErrNotFound, webhook.MissingAcknowledge, 200, "acknowledged"},
	} {
		d := newDesk(t, memstore.New(nil), func(context.Context, webhook.Event) (webhook.Statement, error) {
			return webhook.Statement{}, fmt.Errorf("read: %w", c.err)
		}, &webhook.Options{Missing: c.missing})
		d.deliver("evt-1", happened(), c.status, c.word)
		if state, _ := d.remembered("evt-1"); (state == retrysafe.StateCompleted) != (c.status == 200) {
			t.Errorf("%v: the event is %s", c.err, state)
		}
		for word, n := range d.Counts() {
			if (word == c.word) != (n == 1) || n > 1 {
				t.Errorf("%v is counted %d times as %s", c.err, n, word)
			}
		}
	}
	d := newDesk(t, memstore.New(nil), readDownstream, nil)
	d.Observe(retrysafe.Event{Kind: retrysafe.EventReserved, Ref: ours}) // it is told, and derives nothing
	d.about("evt-1", derived(ours)[0], retrysafe.FindingHappened, 500, "event-not-read")
}
