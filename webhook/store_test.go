package webhook_test

import (
	"context"
	"testing"
	"time"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/internal/test/faultstore"
	"github.com/retrysafe/retrysafe/store/memstore"
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
	if w.Code != 503 || d.reads.Load() != 0 {
		t.Errorf("it got %d %s and was read %d times", w.Code, w.Body, d.reads.Load())
	}
	r.Version, r.Term = retrysafe.RecordVersion+1, time.Hour
	_, err := d.store.Swap(t.Context(), r)
	must(t, err)
	d.deliver("evt-1", happened(), 503, "record-unreadable")
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
