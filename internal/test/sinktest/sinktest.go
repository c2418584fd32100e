// Package sinktest tests the sinks of brokers: a message arrives as it was enqueued,
// nothing is reported as delivered that the broker has not confirmed, a call ends with
// its context, and a broker that was killed gets all that it missed.
package sinktest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/retrysafe/retrysafe/internal/test/netfault"
	"github.com/retrysafe/retrysafe/outbox"
	"github.com/retrysafe/retrysafe/store/memstore"
)

// Topic is where all messages go.
const Topic = "payments"

// A Broker is a real one, reached through a proxy.
type Broker struct {
	Sink  outbox.Sink
	Proxy *netfault.Proxy
	// Stored returns what a consumer finds, oldest first. It does not go through
	// the proxy.
	Stored func(ctx context.Context) ([]Stored, error)
	// Kill kills the broker, and Restart starts it again with its data.
	Kill    func() error
	Restart func(ctx context.Context) error
	// Dedups says that the broker stores a key once.
	Dedups bool
}

// Stored is a message as a consumer gets it. Group is empty where the broker has no
// field for it.
type Stored struct {
	Key, Group, Payload string
	Header              map[string]string
}

// Run runs the suite, one rule after the other.
func Run(t *testing.T, b Broker) {
	t.Helper()
	t.Run("messages arrive as they were enqueued", b.arrive)
	t.Run("what is not confirmed is not delivered", b.unconfirmed)
	t.Run("an ended context ends the call", b.ended)
	t.Run("a killed broker gets all that it missed", b.killed)
}

func (b *Broker) arrive(t *testing.T) {
	batch := messages("arrive", 20)
	batch[3].Payload = []byte("bytes \x00\xff\r\n")
	batch[4].Payload = nil
	batch[5].Header = map[string]string{"Content-Type": "application/json", "trace": "a=1; b=2"}
	for i, r := range b.deliver(t, batch, time.Minute) {
		if r.Err != nil {
			t.Fatalf("message %d: %v", i, r.Err)
		}
	}
	stored := b.stored(t)
	for _, d := range batch {
		all := stored[d.Key]
		if len(all) != 1 || all[0].Payload != string(d.Payload) {
			t.Errorf("%s is stored as %+v, want %q", d.Key, all, d.Payload)
			continue
		}
		for name, value := range d.Header {
			if all[0].Header[name] != value {
				t.Errorf("%s: header %s is %q, want %q", d.Key, name, all[0].Header[name], value)
			}
		}
	}
}

// The broker stores the messages and its confirmation is lost.
func (b *Broker) unconfirmed(t *testing.T) {
	b.warm(t)
	b.Proxy.Strike(netfault.Discard, netfault.ToClient)
	b.Proxy.Plan(netfault.Always(netfault.Discard, netfault.ToClient))
	batch := messages("unconfirmed", 5)
	ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
	defer cancel()
	for i, r := range b.Sink.Deliver(ctx, batch) {
		if r.Err == nil || outbox.IsPermanent(r.Err) {
			t.Errorf("message %d, whose confirmation was lost: %v", i, r.Err)
		}
	}
	b.heal(t)
	b.insist(t, batch)
	stored := b.stored(t)
	for _, d := range batch {
		if n := len(stored[d.Key]); n < 1 || b.Dedups && n != 1 {
			t.Errorf("%s is stored %d times", d.Key, n)
		}
	}
}

func (b *Broker) ended(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	batch := messages("ended", 3)
	for i, r := range b.Sink.Deliver(ctx, batch) {
		if r.Err == nil {
			t.Errorf("message %d is delivered in a context that had ended", i)
		}
	}
	b.Proxy.Refuse()
	b.Proxy.Strike(netfault.Cut)
	ctx, cancel = context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	for i, r := range b.Sink.Deliver(ctx, batch) {
		if r.Err == nil || outbox.IsPermanent(r.Err) {
			t.Errorf("message %d to a broker that is not there: %v", i, r.Err)
		}
	}
	b.heal(t)
	b.insist(t, batch)
}

// A worker delivers while connections are reset and the broker is killed; the order
// within groups is that of their first arrivals.
func (b *Broker) killed(t *testing.T) {
	const groups, each = 8, 40
	store := memstore.New(nil)
	want := map[string]string{}
	for n := range each {
		tx, err := store.Begin(t.Context())
		must(t, err)
		for g := range groups {
			m := outbox.Message{Topic: Topic, Group: fmt.Sprintf("group-%d", g), Key: fmt.Sprintf("killed-%d-%03d", g, n), Payload: fmt.Appendf(nil, "payload %d %d", g, n)}
			want[m.Key] = string(m.Payload)
			must(t, tx.Enqueue(t.Context(), m))
		}
		must(t, tx.Commit(t.Context()))
	}
	killer := &killer{Broker: b}
	w, err := outbox.NewWorker(store.Outbox(), killer, &outbox.Options{
		Batch: 2, Concurrency: 4, MaxTries: 10_000, Timeout: 2 * time.Second,
		Backoff: outbox.Backoff{First: 10 * time.Millisecond, Longest: 200 * time.Millisecond},
	})
	must(t, err)
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- w.Run(ctx) }()
	eventually(t, func() bool { d, err := store.Outbox().Depth(t.Context()); return err == nil && d.Waiting == 0 })
	stop()
	must(t, <-done)
	killer.work.Wait()
	must(t, killer.err)
	if w.Stats().Again == 0 {
		t.Error("the broker was killed, and no call failed")
	}
	b.complete(t, want)
}

// A killer resets connections at one call, and kills the broker at another, while
// concurrent calls are under way.
type killer struct {
	*Broker
	calls atomic.Int32
	work  sync.WaitGroup
	err   error
}

func (k *killer) Deliver(ctx context.Context, batch []outbox.Delivery) []outbox.Receipt {
	switch k.calls.Add(1) {
	case 20:
		k.Proxy.Strike(netfault.Reset)
	case 40:
		k.err = k.Kill()
		k.work.Go(func() {
			<-ctx.Done() // this call has failed, or is over
			k.err = errors.Join(k.err, k.Restart(context.WithoutCancel(ctx)))
		})
	}
	return k.Sink.Deliver(ctx, batch)
}

// complete compares what is stored with what was enqueued.
func (b *Broker) complete(t *testing.T, want map[string]string) {
	list, err := b.Stored(t.Context())
	must(t, err)
	seen, last := map[string]bool{}, map[string]string{}
	for _, s := range list {
		payload, ours := want[s.Key]
		if !ours || seen[s.Key] {
			continue
		}
		seen[s.Key] = true
		if s.Payload != payload {
			t.Errorf("%s is %q, want %q", s.Key, s.Payload, payload)
		}
		group := s.Key[:len("killed-0")]
		if s.Key < last[group] {
			t.Errorf("%s came after %s", s.Key, last[group])
		}
		last[group] = s.Key
	}
	for _, key := range slices.Sorted(maps.Keys(want)) {
		if !seen[key] {
			t.Errorf("%s was reported as delivered and is not stored", key)
		}
	}
}

// warm opens connections, so that there are some to lose.
func (b *Broker) warm(t *testing.T) { b.insist(t, messages("warm", 1)) }

// insist retries until all messages are delivered.
func (b *Broker) insist(t *testing.T, batch []outbox.Delivery) {
	t.Helper()
	eventually(t, func() bool {
		return !slices.ContainsFunc(b.deliver(t, batch, 2*time.Second), func(r outbox.Receipt) bool { return r.Err != nil })
	})
}

func (b *Broker) deliver(t *testing.T, batch []outbox.Delivery, timeout time.Duration) []outbox.Receipt {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), timeout)
	defer cancel()
	receipts := b.Sink.Deliver(ctx, batch)
	if len(receipts) != len(batch) {
		t.Fatalf("%d receipts for %d messages", len(receipts), len(batch))
	}
	return receipts
}

func (b *Broker) heal(t *testing.T) {
	t.Helper()
	b.Proxy.Strike(netfault.Cut)
	must(t, b.Proxy.Heal())
}

// stored returns what a consumer finds, by key.
func (b *Broker) stored(t *testing.T) map[string][]Stored {
	t.Helper()
	list, err := b.Stored(t.Context())
	must(t, err)
	byKey := map[string][]Stored{}
	for _, s := range list {
		byKey[s.Key] = append(byKey[s.Key], s)
	}
	return byKey
}

func messages(name string, n int) []outbox.Delivery {
	batch := make([]outbox.Delivery, n)
	for i := range batch {
		batch[i].ID = int64(i + 1)
		batch[i].Enqueued = time.Now()
		batch[i].Message = outbox.Message{Topic: Topic, Group: fmt.Sprintf("g%d", i), Key: fmt.Sprintf("%s-%d", name, i), Payload: fmt.Appendf(nil, "payload %d", i)}
	}
	return batch
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// eventually fails the test if a condition does not become true. A broker may have to
// start meanwhile, which takes long on a busy machine.
func eventually(t *testing.T, holds func() bool) {
	t.Helper()
	ctx, cancel := context.WithTimeoutCause(t.Context(), 3*time.Minute, errors.New("three minutes have passed"))
	defer cancel()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for !holds() {
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatal(context.Cause(ctx))
		}
	}
}
