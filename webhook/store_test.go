package webhook_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/internal/test/faultstore"
	"github.com/retrysafe/retrysafe/store/memstore"
	"github.com/retrysafe/retrysafe/webhook"
)

// stubborn is a store that has its own answer to steps on the key of the tests.
type stubborn struct {
	retrysafe.Store
	load, swap error
}

func (s stubborn) Load(ctx context.Context, ref retrysafe.Ref) (retrysafe.Record, error) {
	if ref.Key == key && s.load != nil {
		return retrysafe.Record{}, s.load
	}
	return s.Store.Load(ctx, ref)
}

func (s stubborn) Swap(ctx context.Context, w retrysafe.Write) (retrysafe.Record, error) {
	if w.Key == key && s.swap != nil {
		stored, _ := s.Store.Load(ctx, w.Ref)
		return stored, s.swap
	}
	return s.Store.Swap(ctx, w)
}

// Whatever the store says, the key stays as it is and the event comes again.
func TestStoresAnswersAreHeard(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		load, swap error
		status     int
		code       string
	}{
		{load: retrysafe.ErrUnreadable, status: 503, code: "record-unreadable"},
		{swap: retrysafe.ErrBusy, status: 503, code: "key-in-flight"},
		{swap: retrysafe.ErrNotFound, status: 404, code: "no-such-key"},
		{swap: retrysafe.ErrConflict, status: 503, code: "key-in-flight"}, // it moves for ever
		{swap: context.DeadlineExceeded, status: 503, code: "store-unavailable"},
	} {
		d := newDesk(t, stubborn{memstore.New(nil), c.load, c.swap}, nil, nil)
		before := d.put(retrysafe.Record{State: retrysafe.StateUnknown})
		d.deliver("evt-1", happened(), c.status, c.code)
		after, err := d.store.(stubborn).Store.Load(t.Context(), before.Ref)
		if err != nil || after.Revision != before.Revision {
			t.Errorf("%s: the key was written, %v", c.code, err)
		}
		if state, _ := d.remembered("evt-1"); state == retrysafe.StateCompleted {
			t.Errorf("%s: the event is remembered as done", c.code)
		}
		d.saw()
	}
}

// An alarm is raised once for each event, also if the record keeps changing.
func TestAlarmIsRaisedOnce(t *testing.T) {
	t.Parallel()
	d := newDesk(t, stubborn{memstore.New(nil), nil, retrysafe.ErrConflict}, nil, nil)
	d.put(retrysafe.Record{State: retrysafe.StateRetryable})
	d.deliver("evt-1", happened(), 503, "key-in-flight")
	d.saw(retrysafe.EventContradicted)
}

// An event that cannot be remembered is not read: it might be done twice in a row
// for ever.
func TestEventIsReservedFirst(t *testing.T) {
	t.Parallel()
	d := newDesk(t, memstore.New(nil), nil, nil)
	d.put(retrysafe.Record{State: retrysafe.StateUnknown})
	d.fault.Plan(faultstore.FailAll(faultstore.LoseRequest))
	d.deliver("evt-1", happened(), 503, "store-unavailable")
	if d.reads.Load() != 0 {
		t.Error("it was read")
	}
	d.want(retrysafe.StateUnknown, "")
}

// Another delivery of the event is at work, or its record cannot be read.
func TestEventOfAnotherDelivery(t *testing.T) {
	t.Parallel()
	d := newDesk(t, memstore.New(nil), nil, nil)
	ref := retrysafe.Ref{Scope: retrysafe.SystemScope("webhook/test"), Key: "evt-1"}
	r := d.put(retrysafe.Record{Ref: ref, State: retrysafe.StateInProgress}).Update()
	ctx, cancel := context.WithTimeout(t.Context(), time.Second) // the provider does not wait for longer
	defer cancel()
	w := d.send(signed(t, secret, "evt-1", time.Now(), happened().body()).WithContext(ctx))
	if w.Code != 503 || !hasWord(w.Body.String(), "event-in-flight") || d.reads.Load() != 0 {
		t.Errorf("it got %d %s and was read %d times", w.Code, w.Body, d.reads.Load())
	}
	r.Version, r.Term = retrysafe.RecordVersion+1, time.Hour
	_, err := d.store.Swap(t.Context(), r)
	must(t, err)
	w = d.deliver("evt-1", happened(), 503, "record-unreadable")
	if after := w.Header().Get("Retry-After"); after != "60" { // the engine's, and not the default
		t.Errorf("Retry-After is %q", after)
	}
	if d.reads.Load() != 0 {
		t.Error("it was read")
	}
}

// An event costs four steps of the store, a redelivery one.
func TestStepsOfAnEvent(t *testing.T) {
	t.Parallel()
	d := newDesk(t, memstore.New(nil), nil, nil)
	d.put(retrysafe.Record{State: retrysafe.StateUnknown})
	count := func() (n [4]int) {
		for i, op := range []faultstore.Op{faultstore.Create, faultstore.Load, faultstore.Swap, faultstore.List} {
			n[i] = d.fault.Count(op)
		}
		return n
	}
	d.deliver("evt-1", happened(), 200, "settled")
	if got, want := count(), [4]int{1, 1, 2, 0}; got != want {
		t.Errorf("the event took %v creates, loads, swaps and lists; want %v", got, want)
	}
	d.fault.Plan(nil)
	d.deliver("evt-1", happened(), 200, "settled")
	if got, want := count(), [4]int{1, 0, 0, 0}; got != want {
		t.Errorf("the redelivery took %v; want %v", got, want)
	}
}

// A delivery whose process has crashed leaves the event to the next delivery.
func TestEventOfACrashedProcessIsProcessed(t *testing.T) {
	t.Parallel()
	event := retrysafe.Ref{Scope: retrysafe.SystemScope("webhook/test"), Key: "evt-1"}
	var atWork retrysafe.Record
	var first *desk
	first = newDesk(t, memstore.New(nil), func(ctx context.Context, ev webhook.Event) (s webhook.Statement, err error) {
		atWork, err = first.store.Load(ctx, event)
		return s, errors.Join(err, webhook.ErrIgnore)
	}, nil)
	first.deliver("evt-1", happened(), 200, "ignored")
	d := newDesk(t, memstore.New(nil), nil, nil)
	d.put(retrysafe.Record{State: retrysafe.StateUnknown})
	atWork.Revision = 0
	_, err := d.store.Create(t.Context(), retrysafe.Write{Record: atWork, Term: time.Nanosecond})
	must(t, err)
	d.deliver("evt-1", happened(), 200, "settled")
}

// A delivery that arrives while another one of its event is processed waits for the
// answer of that one.
func TestEventInFlightIsWaitedFor(t *testing.T) {
	t.Parallel()
	var d *desk
	d = newDesk(t, memstore.New(nil), func(ctx context.Context, ev webhook.Event) (webhook.Statement, error) {
		for d.fault.Count(faultstore.Create) < 2 && t.Context().Err() == nil { // the second delivery has asked the store
			time.Sleep(time.Millisecond)
		}
		return read(ctx, ev)
	}, nil)
	d.put(retrysafe.Record{State: retrysafe.StateUnknown})
	var both sync.WaitGroup
	for range 2 {
		both.Go(func() { d.deliver("evt-1", happened(), 200, "settled") })
	}
	both.Wait()
	if n := d.reads.Load(); n != 1 {
		t.Errorf("the event was read %d times", n)
	}
}

// schemeFunc is a scheme of a user's.
type schemeFunc func(http.Header, []byte) (webhook.Event, error)

func (f schemeFunc) Verify(h http.Header, body []byte) (webhook.Event, error) { return f(h, body) }

// A scheme of a user's: an error that the intake does not know refuses the event, an event
// without an id is malformed, and the reader gets what the scheme and the request say.
func TestSchemeOfAUser(t *testing.T) {
	t.Parallel()
	at := time.Unix(1_600_000_000, 0)
	var event webhook.Event
	var wrong error
	var got webhook.Event
	d := newDesk(t, memstore.New(nil), nil, nil)
	intake, err := webhook.New("custom", d.engine, schemeFunc(func(http.Header, []byte) (webhook.Event, error) { return event, wrong }),
		func(_ context.Context, ev webhook.Event) (webhook.Statement, error) {
			got = ev
			return webhook.Statement{}, webhook.ErrIgnore
		}, nil)
	must(t, err)
	for _, c := range []struct {
		id     string
		err    error
		status int
	}{{"evt-1", errors.New("the key server is down"), 401}, {"", nil, 400}, {"evt-1", nil, 200}} {
		event, wrong = webhook.Event{ID: c.id, At: at}, c.err
		r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/hooks/custom", strings.NewReader("the body"))
		r.Header.Set("X-Kind", "payment")
		w := httptest.NewRecorder()
		intake.ServeHTTP(w, r)
		if w.Code != c.status || (got.ID != "") != (c.status == 200) {
			t.Errorf("id %q, %v: it got %d %s, read: %+v", c.id, c.err, w.Code, w.Body, got)
		}
	}
	if !got.At.Equal(at) || got.Header.Get("X-Kind") != "payment" || string(got.Body) != "the body" {
		t.Errorf("the reader got %+v", got)
	}
}
