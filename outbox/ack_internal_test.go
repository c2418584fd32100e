package outbox

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"time"

	"github.com/retrysafe/retrysafe"
)

// handedOver is the record of a key that was handed to a message.
func handedOver() retrysafe.Record {
	return retrysafe.Record{
		Ref: retrysafe.Ref{Scope: "acct_1", Key: "k"}, Version: retrysafe.RecordVersion, State: retrysafe.StateInProgress,
		Revision: 7, Owner: retrysafe.Owner{1}, Attempt: 1,
	}
}

// A receipt decides whether a message ends, and its tries and its age whether it is sent
// again. A key is settled when its message ends, and not before.
func TestReceiptDecidesHowAMessageIsAcknowledged(t *testing.T) {
	t.Parallel()
	opts := Options{
		MaxTries: 5, Horizon: 10 * time.Hour, Backoff: Backoff{First: time.Minute, Longest: time.Hour},
		KeepReceipts: time.Hour, Rand: func() float64 { return 1 },
	}.withDefaults()
	away := errors.New("away")
	for _, c := range []struct {
		name  string
		tries int
		age   time.Duration
		r     Receipt
		want  AckKind
		after time.Duration
	}{
		{"delivered", 2, time.Hour, Receipt{}, AckDelivered, 0},
		{"delivered by the last try and beyond the horizon", 4, 11 * time.Hour, Receipt{}, AckDelivered, 0},
		{"failed for good", 0, 0, Receipt{Err: Permanent(away)}, AckDead, 0},
		{"failed", 0, 0, Receipt{Err: away}, AckRetry, time.Minute},
		{"failed at the last try but one", 3, 0, Receipt{Err: away}, AckRetry, 8 * time.Minute},
		{"failed at the last try", 4, 0, Receipt{Err: away}, AckDead, 0},
		{"failed just within the horizon", 0, 10*time.Hour - time.Second, Receipt{Err: away}, AckRetry, time.Second},
		{"failed at the horizon", 0, 10 * time.Hour, Receipt{Err: away}, AckDead, 0},
		{"the receiver asks for time", 0, 0, Receipt{Err: away, After: 2 * time.Hour}, AckRetry, 2 * time.Hour},
		{"the receiver asks for more time than there is", 0, 9 * time.Hour, Receipt{Err: away, After: 2 * time.Hour}, AckRetry, time.Hour},
	} {
		rec := handedOver()
		d := Delivery{ID: 3, Tries: c.tries, Age: c.age, Shard: Shard{5, 9}, Message: Message{Group: "g", Settles: &rec}}
		c.r.ProviderRef = "ch_1"
		got := ackFor(&opts, &d, &c.r)
		if got.Kind != c.want || got.After != c.after || got.Tries != c.tries+1 {
			t.Errorf("%s: kind %d after %v, tries %d, want kind %d after %v, tries %d", c.name, got.Kind, got.After, got.Tries, c.want, c.after, c.tries+1)
		}
		if got.ID != d.ID || got.Shard != d.Shard || got.Group != d.Group || got.ProviderRef != "ch_1" || (got.Why == "") != (c.r.Err == nil) {
			t.Errorf("%s: the acknowledgement is %+v", c.name, got)
		}
		if (got.Settle != nil) != (c.want != AckRetry) {
			t.Errorf("%s: the key gets %+v", c.name, got.Settle)
		}
		if kept := got.Keep == time.Hour && got.Message == &d.Message; kept != (c.want == AckDelivered) {
			t.Errorf("%s: a receipt is kept for %v", c.name, got.Keep)
		}
	}
}

// The wait doubles from the first to the longest, however long the first is and however
// often a message was sent.
func TestBackoffGrowsToTheLongest(t *testing.T) {
	t.Parallel()
	for _, b := range []Backoff{{time.Millisecond, time.Second}, {time.Second, 30 * time.Minute}, {time.Hour, 24 * time.Hour}, {time.Hour, time.Hour}} {
		want := b.First
		for tries := 1; tries < 200; tries++ {
			if low, high := b.after(tries, 0, 0), b.after(tries, 0, 1); low != want/2 || high != want/2*2 {
				t.Fatalf("%+v: after %d tries the wait is from %v to %v, want from %v to %v", b, tries, low, high, want/2, want)
			}
			want = min(2*want, b.Longest)
		}
		if got := b.after(3, 48*time.Hour, 0); got != 48*time.Hour {
			t.Errorf("%+v: a receiver that asks for 48h gets %v", b, got)
		}
	}
}

// What the store says to an acknowledgement is the end of it, or it is stored again: with
// the key that it settles, unless the key cannot be settled.
func TestWhatTheStoreSaysToAnAcknowledgement(t *testing.T) {
	t.Parallel()
	now := time.Unix(1_800_000_000, 0)
	renewed := handedOver()
	renewed.Revision++
	for _, c := range []struct {
		name    string
		settles bool
		kind    AckKind
		result  AckResult
		want    Stats
		again   bool
		settled retrysafe.Record // the record that the write expects, if it is stored again
	}{
		{name: "delivered", kind: AckDelivered, want: Stats{Delivered: 1}},
		{name: "to be sent again", kind: AckRetry, want: Stats{Again: 1}},
		{name: "dead", kind: AckDead, want: Stats{Buried: 1}},
		{name: "fenced", settles: true, kind: AckDelivered, result: AckResult{Err: ErrFenced}, want: Stats{Fenced: 1}},
		{name: "the key has changed", settles: true, kind: AckDelivered, result: AckResult{Err: retrysafe.ErrConflict, Record: renewed}, again: true, settled: renewed},
		{name: "the key is held", settles: true, kind: AckDelivered, result: AckResult{Err: retrysafe.ErrBusy}, again: true, settled: handedOver()},
		{name: "the key is gone", settles: true, kind: AckDelivered, result: AckResult{Err: retrysafe.ErrNotFound}, again: true},
		{name: "the key cannot be read", settles: true, kind: AckDelivered, result: AckResult{Err: retrysafe.ErrUnreadable}, again: true},
		{name: "another error", settles: true, kind: AckDelivered, result: AckResult{Err: errDepot}},
		{name: "a conflict, and no key", kind: AckDelivered, result: AckResult{Err: retrysafe.ErrConflict}},
		{name: "not found, and no key", kind: AckDelivered, result: AckResult{Err: retrysafe.ErrNotFound}},
	} {
		w := &Worker{opts: Options{Logger: slog.New(slog.DiscardHandler)}.withDefaults()}
		l := newLoop(w)
		l.until = now.Add(time.Minute)
		d := Delivery{ID: 1, Shard: Shard{N: 3, Epoch: 5}}
		l.inflight.setLeases([]Shard{d.Shard})
		l.inflight.beginRead()
		l.inflight.endRead([]Delivery{d}, 10)
		p := &pendingAck{delivery: l.inflight.take(1)[0], ack: Ack{ID: 1, Shard: d.Shard, Kind: c.kind}}
		if c.settles {
			p.ack.Settle = settled(handedOver(), &p.ack, &p.receipt)
		}
		l.storing, l.rest = 1, time.Second
		l.finishAcks(&ackAction{acks: []*pendingAck{p}, results: []AckResult{c.result}}, now)
		if got := w.Stats(); got != c.want {
			t.Errorf("%s: the stats are %+v, want %+v", c.name, got, c.want)
		}
		if again := len(l.acks) == 1; again != c.again || (l.inflight.size() == 1) != c.again || l.storing != 0 || l.rest != 0 {
			t.Errorf("%s: stored again %t, %d in flight, %d under way, rest %v", c.name, again, l.inflight.size(), l.storing, l.rest)
		}
		if wants := c.settled.Revision > 0; c.again && (wants != (p.ack.Settle != nil) || wants && p.ack.Settle.Expect != c.settled.Fence()) {
			t.Errorf("%s: it is stored again with %+v", c.name, p.ack.Settle)
		}
	}
}

// tardy is a depot that takes a while to give a lease, and counts its term from the end of
// the call.
type tardy struct{ *depot }

func (s tardy) Lease(ctx context.Context, worker retrysafe.Owner, term time.Duration) (Lease, error) {
	s.now = s.now.Add(5 * time.Second)
	return s.depot.Lease(ctx, worker, term)
}

// A lease may be granted at the beginning of a call whose reply takes long, so the worker
// counts it from there.
func TestLeaseIsCountedFromBeforeTheCall(t *testing.T) {
	t.Parallel()
	p := &depot{t: t, calm: true, now: time.Unix(1_000_000, 0), waiting: map[int64]*parcel{}}
	w, err := NewWorker(tardy{p}, p, &Options{Clock: p, Lease: 30 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	want := p.now.Add(30 * time.Second)
	a := &leaseAction{}
	a.perform(t.Context(), w)
	if a.err != nil || !a.until.Equal(want) {
		t.Errorf("the worker holds its lease until %v, want %v: %v", a.until, want, a.err)
	}
}
