package outbox_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/outbox"
	"github.com/retrysafe/retrysafe/store/memstore"
)

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// receiver takes messages, and fails those that it is told to.
type receiver struct {
	mu   sync.Mutex
	got  []string            // payloads, in the order in which they came
	keys map[string][]string // for each payload, the keys it came with
	fail func(d *outbox.Delivery, before int) outbox.Receipt
}

func (r *receiver) Deliver(_ context.Context, batch []outbox.Delivery) []outbox.Receipt {
	receipts := make([]outbox.Receipt, len(batch))
	for i := range batch {
		d := &batch[i]
		r.mu.Lock()
		if r.keys == nil {
			r.keys = map[string][]string{}
		}
		before := len(r.keys[string(d.Payload)])
		r.keys[string(d.Payload)] = append(r.keys[string(d.Payload)], d.Key)
		r.mu.Unlock()
		if r.fail != nil {
			receipts[i] = r.fail(d, before)
		}
		if receipts[i].Err == nil {
			r.mu.Lock()
			r.got = append(r.got, string(d.Payload))
			r.mu.Unlock()
		}
	}
	return receipts
}

func (r *receiver) received() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.got)
}

func enqueue(t *testing.T, s *memstore.Store, messages ...outbox.Message) {
	t.Helper()
	tx, err := s.Begin(t.Context())
	must(t, err)
	must(t, tx.Enqueue(t.Context(), messages...))
	must(t, tx.Commit(t.Context()))
}

func message(group, payload string) outbox.Message {
	return outbox.Message{Topic: "test", Group: group, Payload: []byte(payload)}
}

// running runs a worker until the test ends.
func running(t *testing.T, s outbox.Store, sink outbox.Sink, opts *outbox.Options) *outbox.Worker {
	t.Helper()
	w, err := outbox.NewWorker(s, sink, opts)
	must(t, err)
	ctx, stop := context.WithCancel(context.Background())
	var done sync.WaitGroup
	done.Go(func() {
		if err := w.Run(ctx); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(func() { stop(); done.Wait() })
	return w
}

func TestDeliversWhatCommits(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, r := memstore.New(nil), &receiver{}
		running(t, s.Outbox(), r, nil)
		enqueue(t, s, message("a", "a1"), message("a", "a2"), message("", "free"), message("b", "b1"))
		tx, err := s.Begin(t.Context())
		must(t, err)
		must(t, tx.Enqueue(t.Context(), message("a", "rolled back")))
		must(t, tx.Rollback(t.Context()))
		enqueue(t, s, message("a", "a3"))
		time.Sleep(2 * time.Second)
		got := r.received()
		if len(got) != 5 || !inOrder(got, "a1", "a2", "a3") || slices.Contains(got, "rolled back") {
			t.Errorf("delivered %v", got)
		}
		if d, _ := s.Outbox().Depth(t.Context()); d != (outbox.Depth{}) {
			t.Errorf("%+v is left", d)
		}
	})
}

// inOrder reports whether all of want are in got, in that order.
func inOrder(got []string, want ...string) bool {
	for _, g := range got {
		if len(want) > 0 && g == want[0] {
			want = want[1:]
		}
	}
	return len(want) == 0
}

// TestW68_PoisonHoldsUpOnlyItsGroup: a poison message is retried a bounded number of
// times, with a growing backoff, and then is dead. Later messages of its group wait
// for it; other groups do not.
func TestW68_PoisonHoldsUpOnlyItsGroup(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := memstore.New(nil)
		r := &receiver{fail: func(d *outbox.Delivery, _ int) outbox.Receipt {
			if string(d.Payload) == "poison" {
				return outbox.Receipt{Err: errors.New("no such account"), ProviderRef: "ref_1"}
			}
			return outbox.Receipt{}
		}}
		running(t, s.Outbox(), r, &outbox.Options{MaxTries: 5})
		enqueue(t, s, message("a", "poison"), message("a", "behind"), message("b", "beside"), message("", "free"))
		time.Sleep(time.Second / 2)
		if got := r.received(); len(got) != 2 || slices.Contains(got, "behind") {
			t.Errorf("at first %v", got)
		}
		time.Sleep(time.Minute)
		if got := r.received(); len(got) != 3 || got[2] != "behind" {
			t.Errorf("in the end %v", got)
		}
		if n := len(r.keys["poison"]); n != 5 {
			t.Errorf("tried %d times", n)
		}
		if keys := r.keys["poison"]; len(slices.Compact(keys)) != 1 || keys[0] == "" {
			t.Errorf("under the keys %v", keys)
		}
		dead, err := s.Outbox().DeadLetters(t.Context(), 0, 10)
		must(t, err)
		if len(dead) != 1 || string(dead[0].Payload) != "poison" || dead[0].Why != "no such account" || dead[0].ProviderRef != "ref_1" || dead[0].Tries != 5 {
			t.Errorf("dead letters: %+v", dead)
		}
	})
}

// TestW70_ReceiverSaysWhen: it is not asked before.
func TestW70_ReceiverSaysWhen(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := memstore.New(nil)
		r := &receiver{fail: func(_ *outbox.Delivery, before int) outbox.Receipt {
			if before == 0 {
				return outbox.Receipt{Err: errors.New("too many"), After: time.Hour}
			}
			return outbox.Receipt{}
		}}
		running(t, s.Outbox(), r, nil)
		enqueue(t, s, message("", "m"))
		time.Sleep(59 * time.Minute)
		if got := r.received(); len(got) != 0 {
			t.Errorf("asked too early: %v", got)
		}
		time.Sleep(2 * time.Minute)
		if got := r.received(); len(got) != 1 {
			t.Errorf("delivered %v", got)
		}
	})
}

// TestW65_ZombieEndsNothing: a worker that is stopped in the middle of a call for
// longer than its lease finds that its shards have another worker.
func TestW65_ZombieEndsNothing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := memstore.New(nil)
		stalls := outbox.SinkFunc(func(context.Context, *outbox.Delivery) outbox.Receipt {
			time.Sleep(time.Minute) // it does not even heed its context
			return outbox.Receipt{}
		})
		zombie, err := outbox.NewWorker(s.Outbox(), stalls, nil)
		must(t, err)
		enqueue(t, s, message("a", "m"))
		var asleep sync.WaitGroup
		asleep.Go(func() {
			if n, err := zombie.RunOnce(t.Context()); n != 0 || err != nil {
				t.Errorf("the zombie delivered %d, %v", n, err)
			}
		})
		time.Sleep(40 * time.Second) // its lease has ended
		r := &receiver{fail: func(*outbox.Delivery, int) outbox.Receipt {
			return outbox.Receipt{Err: errors.New("later"), After: time.Hour}
		}}
		second, err := outbox.NewWorker(s.Outbox(), r, nil)
		must(t, err)
		if _, err := second.RunOnce(t.Context()); err != nil {
			t.Fatal(err)
		}
		asleep.Wait()
		if got := zombie.Stats(); got.Fenced != 1 || got.Delivered != 0 {
			t.Errorf("%+v", got)
		}
		if d, _ := s.Outbox().Depth(t.Context()); d.Waiting != 1 {
			t.Errorf("%+v", d)
		}
	})
}

// A message that settles a key does so in the step that ends it.
func TestMessageSettlesItsKey(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		receipt outbox.Receipt
		want    retrysafe.State
		status  int
	}{
		"delivered":             {outbox.Receipt{Answer: &retrysafe.Result{Status: 201, Body: []byte("paid")}, ProviderRef: "ch_1"}, retrysafe.StateCompleted, 201},
		"delivered, no answer":  {outbox.Receipt{}, retrysafe.StateCompleted, 204},
		"given up":              {outbox.Receipt{Err: outbox.Permanent(errors.New("gone")), ProviderRef: "ch_1"}, retrysafe.StateUnknown, 0},
		"answered with rubbish": {outbox.Receipt{Answer: &retrysafe.Result{}, ProviderRef: "ch_1"}, retrysafe.StateUnknown, 0},
	} {
		synctest.Test(t, func(t *testing.T) {
			s := memstore.New(nil)
			r := &receiver{fail: func(*outbox.Delivery, int) outbox.Receipt { return c.receipt }}
			w, err := outbox.NewWorker(s.Outbox(), r, nil)
			must(t, err)
			rec, err := s.Create(t.Context(), retrysafe.Write{Term: time.Hour, Record: retrysafe.Record{
				Ref: retrysafe.Ref{Scope: "s", Key: "k"}, Version: retrysafe.RecordVersion, State: retrysafe.StateInProgress, Effects: retrysafe.EffectsKeyed,
				Owner: retrysafe.Owner{1}, Attempt: 1, Retain: time.Hour,
			}})
			must(t, err)
			m := message("", "charge")
			m.Settles = &rec
			enqueue(t, s, m)
			if _, err := s.Swap(t.Context(), rec.Update()); err != nil { // another process writes the record meanwhile
				t.Fatal(err)
			}
			_, err = w.RunOnce(t.Context())
			must(t, err)
			got, err := s.Load(t.Context(), rec.Ref)
			must(t, err)
			if got.State != c.want || got.Result != nil && got.Result.Status != c.status || got.ProviderRef != c.receipt.ProviderRef || got.Inquiry.Dead != (c.want == retrysafe.StateUnknown) || got.Inquiry.Tries != 0 {
				t.Errorf("%s: %v %+v %q %+v", name, got.State, got.Result, got.ProviderRef, got.Inquiry)
			}
			if d, _ := s.Outbox().Depth(t.Context()); d.Waiting != 0 {
				t.Errorf("%s: %+v", name, d)
			}
		})
	}
}

// TestW66_MessageThatItsReceiverMayHaveForgotten: workers were away for two days. One
// of them may have sent it; it is not sent again before an operator has looked.
func TestW66_MessageThatItsReceiverMayHaveForgotten(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, r := memstore.New(nil), &receiver{}
		enqueue(t, s, message("a", "old"), message("a", "behind"))
		time.Sleep(48 * time.Hour)
		enqueue(t, s, message("a", "young"))
		w, err := outbox.NewWorker(s.Outbox(), r, nil)
		must(t, err)
		_, err = w.RunOnce(t.Context())
		must(t, err)
		if got := r.received(); !slices.Equal(got, []string{"young"}) {
			t.Errorf("sent %v", got)
		}
		dead, err := s.Outbox().DeadLetters(t.Context(), 0, 10)
		must(t, err)
		if len(dead) != 2 || !strings.Contains(dead[0].Why, "remembers keys for 24h") {
			t.Fatalf("dead letters: %+v", dead)
		}
		must(t, s.Outbox().Dispose(t.Context(), outbox.Disposal{ID: dead[0].ID, Revision: dead[0].Revision, Redrive: true, ResetAge: true}))
		_, err = w.RunOnce(t.Context())
		must(t, err)
		if got := r.received(); !slices.Equal(got, []string{"young", "old"}) {
			t.Errorf("sent %v", got)
		}
	})
}

// The worker that has died may have sent a message until its lease ended, so a message is
// not sent in the last lease before its receiver may have forgotten it.
func TestW66_MessageInTheLastLeaseOfItsWindow(t *testing.T) {
	t.Parallel()
	for age, sent := range map[time.Duration]int{
		24*time.Hour - 41*time.Second: 1, // lease and time limit of a call fit
		24*time.Hour - 40*time.Second: 0, // they end with the window
		24*time.Hour - 35*time.Second: 0, // the lease alone does
		24*time.Hour - 25*time.Second: 0,
	} {
		synctest.Test(t, func(t *testing.T) {
			s, r := memstore.New(nil), &receiver{}
			enqueue(t, s, message("a", "old"))
			time.Sleep(age)
			w, err := outbox.NewWorker(s.Outbox(), r, &outbox.Options{Lease: 30 * time.Second, Timeout: 10 * time.Second, Window: 24 * time.Hour})
			must(t, err)
			_, err = w.RunOnce(t.Context())
			must(t, err)
			if got := len(r.received()); got != sent {
				t.Errorf("after %v it was sent %d times, want %d", age, got, sent)
			}
		})
	}
}

// The age of a message counts until it is sent, and not until it was read: it may wait for
// those before it in its group.
func TestW66_MessageThatWaitsBehindOthersOutOfItsWindow(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, r := memstore.New(nil), &receiver{}
		for n := range 6 {
			enqueue(t, s, message("a", fmt.Sprint(n)))
		}
		time.Sleep(24*time.Hour - time.Minute)
		slow := outbox.SinkFunc(func(ctx context.Context, d *outbox.Delivery) outbox.Receipt {
			time.Sleep(9 * time.Second)
			return r.Deliver(ctx, []outbox.Delivery{*d})[0]
		})
		w, err := outbox.NewWorker(s.Outbox(), slow, &outbox.Options{Lease: 30 * time.Second, Timeout: 10 * time.Second, Window: 24 * time.Hour})
		must(t, err)
		ctx, stop := context.WithTimeout(t.Context(), 2*time.Minute)
		defer stop()
		must(t, w.Run(ctx))
		letters, err := s.Outbox().DeadLetters(t.Context(), 0, 10)
		must(t, err)
		if got := len(r.received()); got != 3 || len(letters) != 3 { // sent after 0, 9 and 18 seconds
			t.Errorf("%d were sent and %d are dead letters, want 3 and 3", got, len(letters))
		}
	})
}

// A receiver that needs no key gets a message however old it is.
func TestReceiverThatNeedsNoKeyGetsOldMessages(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, r := memstore.New(nil), &receiver{}
		enqueue(t, s, message("a", "old"))
		time.Sleep(480 * time.Hour)
		w, err := outbox.NewWorker(s.Outbox(), r, &outbox.Options{Window: -1})
		must(t, err)
		if n, err := w.RunOnce(t.Context()); n != 1 || err != nil {
			t.Errorf("RunOnce = %d, %v", n, err)
		}
	})
}

// Of a batch in which some messages are not sent, because they are too old, each of the
// others ends by its own receipt.
func TestEachMessageOfABatchEndsByItsReceipt(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := memstore.New(nil)
		r := &receiver{fail: func(d *outbox.Delivery, _ int) outbox.Receipt {
			switch string(d.Payload) {
			case "refused":
				return outbox.Receipt{Err: outbox.Permanent(errors.New("no such account"))}
			case "later":
				return outbox.Receipt{Err: errors.New("not now"), After: time.Hour}
			}
			return outbox.Receipt{}
		}}
		enqueue(t, s, message("", "old"), message("", "older"))
		time.Sleep(48 * time.Hour)
		enqueue(t, s, message("", "refused"), message("", "good"), message("", "later"))
		w, err := outbox.NewWorker(s.Outbox(), r, nil)
		must(t, err)
		if n, err := w.RunOnce(t.Context()); n != 1 || err != nil {
			t.Errorf("RunOnce = %d, %v", n, err)
		}
		if got, want := w.Stats(), (outbox.Stats{Delivered: 1, Again: 1, Buried: 3}); got != want || !slices.Equal(r.received(), []string{"good"}) {
			t.Errorf("%+v, want %+v; delivered %v", got, want, r.received())
		}
		dead, err := s.Outbox().DeadLetters(t.Context(), 0, 10)
		must(t, err)
		var why []string
		for i := range dead {
			why = append(why, string(dead[i].Payload)+": "+dead[i].Why[:15])
		}
		if got, want := strings.Join(why, ", "), "old: it was enqueued, older: it was enqueued, refused: no such account"; got != want {
			t.Errorf("the dead letters are %q, want %q", got, want)
		}
		if failing, err := s.Outbox().Failing(t.Context(), 0, 10); len(failing) != 1 || string(failing[0].Payload) != "later" || err != nil {
			t.Errorf("to be sent again: %+v, %v", failing, err)
		}
	})
}

// batchSink is a sink that is called with whole batches.
type batchSink func(ctx context.Context, batch []outbox.Delivery) []outbox.Receipt

func (f batchSink) Deliver(ctx context.Context, batch []outbox.Delivery) []outbox.Receipt {
	return f(ctx, batch)
}

// If a sink does not say what became of each message, or takes too long, all are sent
// again.
func TestSinkThatSaysTooLittle(t *testing.T) {
	t.Parallel()
	for name, sink := range map[string]batchSink{
		"panics": func(context.Context, []outbox.Delivery) []outbox.Receipt { panic("no") },
		"returns too few": func(_ context.Context, batch []outbox.Delivery) []outbox.Receipt {
			return make([]outbox.Receipt, len(batch)-1)
		},
		"returns too many": func(_ context.Context, batch []outbox.Delivery) []outbox.Receipt {
			return make([]outbox.Receipt, len(batch)+1)
		},
		"ends with its context": func(ctx context.Context, batch []outbox.Delivery) []outbox.Receipt {
			<-ctx.Done()
			receipts := make([]outbox.Receipt, len(batch))
			for i := range receipts {
				receipts[i].Err = ctx.Err()
			}
			return receipts
		},
	} {
		synctest.Test(t, func(t *testing.T) {
			s := memstore.New(nil)
			enqueue(t, s, message("", "1"), message("", "2"))
			w, err := outbox.NewWorker(s.Outbox(), sink, nil)
			must(t, err)
			began := time.Now()
			if n, err := w.RunOnce(t.Context()); n != 0 || err != nil {
				t.Errorf("%s: RunOnce = %d, %v", name, n, err)
			}
			if d, _ := s.Outbox().Depth(t.Context()); w.Stats() != (outbox.Stats{Again: 2}) || d.Waiting != 2 || time.Since(began) > 10*time.Second {
				t.Errorf("%s: %+v, %+v after %v", name, w.Stats(), d, time.Since(began))
			}
		})
	}
}

// Settings under which a message could be sent twice as two are refused.
func TestW66W72_DangerousSettingsAreRefused(t *testing.T) {
	t.Parallel()
	for want, o := range map[string]outbox.Options{
		"remembers keys": {Horizon: 24 * time.Hour},
		"Timeout":        {Timeout: time.Minute, Lease: time.Minute},
		"for 24h0m0s; s": {Horizon: 24*time.Hour - 30*time.Minute - 40*time.Second}, // until the very end of the window
		"Timeout 15s":    {Timeout: 15 * time.Second},                               // two of them are the lease
		"is negative":    {Concurrency: -1},
		"negative":       {Batch: -1},
		"option is":      {InFlight: -1},
		"an option is":   {MaxTries: -1},
		": an option":    {Timeout: -1},
		"box: an option": {Lease: -1, Timeout: -2},
		"outbox: an opt": {Poll: -1},
		"outbox: an":     {Backoff: outbox.Backoff{First: -1}},
		"outbox: a":      {Horizon: -1},
		"back-off":       {Backoff: outbox.Backoff{First: time.Hour, Longest: time.Minute}},
	} {
		if _, err := outbox.NewWorker(memstore.New(nil).Outbox(), &receiver{}, &o); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v, want %q", o, err, want)
		}
	}
	if _, err := outbox.NewWorker(memstore.New(nil).Outbox(), &receiver{}, &outbox.Options{Horizon: 240 * time.Hour, Window: -1}); err != nil {
		t.Error(err)
	}
}

// held is an outbox whose keys a transaction holds and never lets go of.
type held struct{ outbox.Store }

func (held) Ack(_ context.Context, endings []outbox.Ack) ([]outbox.AckResult, error) {
	ended := make([]outbox.AckResult, len(endings))
	for i := range ended {
		ended[i].Err = retrysafe.ErrBusy
	}
	return ended, nil
}

// One pass ends, however long transactions hold the keys that messages settle, and what
// could not be acknowledged is there for the next pass.
func TestPassDoesNotWaitForever(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := memstore.New(nil)
		enqueue(t, s, message("a", "1"))
		w, err := outbox.NewWorker(held{s.Outbox()}, new(receiver), nil)
		must(t, err)
		if n, err := w.RunOnce(t.Context()); n != 0 || err == nil {
			t.Fatalf("RunOnce = %d, %v", n, err)
		}
		must(t, w.Release(t.Context()))
		other, err := outbox.NewWorker(s.Outbox(), new(receiver), nil)
		must(t, err)
		if n, err := other.RunOnce(t.Context()); n != 1 || err != nil {
			t.Fatalf("the next pass = %d, %v", n, err)
		}
	})
}

// A worker that is told to stop does so, however long a transaction holds a key: when
// its lease has ended the message is another worker's.
func TestRunStopsBesideAHeldKey(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := memstore.New(nil)
		enqueue(t, s, message("a", "1"))
		w, err := outbox.NewWorker(held{s.Outbox()}, new(receiver), nil)
		must(t, err)
		ctx, stop := context.WithTimeout(t.Context(), time.Minute)
		defer stop()
		began := time.Now()
		must(t, w.Run(ctx))
		if took := time.Since(began); took > time.Minute+30*time.Second {
			t.Errorf("it took %v", took)
		}
		other, err := outbox.NewWorker(s.Outbox(), new(receiver), nil)
		must(t, err)
		if n, err := other.RunOnce(t.Context()); n != 1 || err != nil {
			t.Fatalf("another worker delivered %d, %v", n, err)
		}
	})
}

// losing is an outbox that loses its replies to acknowledgements, as often as it is
// told.
type losing struct {
	outbox.Store
	times int
}

func (l *losing) Ack(ctx context.Context, acks []outbox.Ack) ([]outbox.AckResult, error) {
	ended, err := l.Store.Ack(ctx, acks)
	if l.times--; l.times >= 0 {
		return nil, errors.New("the reply is lost")
	}
	return ended, err
}

// A reply of the store that is lost makes the worker acknowledge again. It does not send
// the message again.
func TestLostReplyIsAskedForAgain(t *testing.T) {
	t.Parallel()
	for name, run := range map[string]func(t *testing.T, w *outbox.Worker){
		"RunOnce": func(t *testing.T, w *outbox.Worker) {
			t.Helper()
			if n, err := w.RunOnce(t.Context()); n != 3 || err != nil {
				t.Errorf("RunOnce = %d, %v", n, err)
			}
		},
		"Run": func(t *testing.T, w *outbox.Worker) {
			t.Helper()
			ctx, stop := context.WithTimeout(t.Context(), time.Minute)
			defer stop()
			must(t, w.Run(ctx))
		},
	} {
		synctest.Test(t, func(t *testing.T) {
			s, r := memstore.New(nil), &receiver{}
			enqueue(t, s, message("a", "1"), message("a", "2"), message("", "3"))
			w, err := outbox.NewWorker(&losing{s.Outbox(), 5}, r, nil)
			must(t, err)
			run(t, w)
			if got := r.received(); len(got) != 3 || w.Stats().Delivered != 3 {
				t.Errorf("%s sent %v, %+v", name, got, w.Stats())
			}
		})
	}
}

// slow is an outbox whose reads take a while.
type slow struct{ outbox.Store }

func (s slow) Due(ctx context.Context, shards []outbox.Shard, limit int) ([]outbox.Delivery, error) {
	list, err := s.Store.Due(ctx, shards, limit)
	time.Sleep(100 * time.Millisecond)
	return list, err
}

// What commits while the worker reads, and so is not seen, is read soon afterwards if
// the worker is woken.
func TestWakeDuringARead(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, r := memstore.New(nil), &receiver{}
		w := running(t, slow{s.Outbox()}, r, &outbox.Options{Poll: time.Minute})
		time.Sleep(10 * time.Minute) // it polls as rarely as it does
		w.Wake()
		time.Sleep(50 * time.Millisecond)
		enqueue(t, s, message("a", "1"))
		w.Wake()
		time.Sleep(250 * time.Millisecond)
		if got := r.received(); len(got) != 1 {
			t.Errorf("delivered %v", got)
		}
	})
}

// A commit wakes the worker of the same process: it does not wait for its next poll.
func TestCommitWakesTheWorker(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, r := memstore.New(nil), &receiver{}
		running(t, s.Outbox(), r, &outbox.Options{Poll: time.Hour})
		time.Sleep(24 * time.Hour) // it polls as rarely as it does
		for n := range 3 {
			enqueue(t, s, message("a", fmt.Sprint(n)))
			time.Sleep(20 * time.Millisecond)
		}
		if got := r.received(); len(got) != 3 {
			t.Errorf("delivered %v", got)
		}
	})
}

// hasty is an outbox whose quick reads leave out a group.
type hasty struct{ *memstore.Outbox }

func (h hasty) DueExcept(ctx context.Context, shards []outbox.Shard, known []int64, limit int) ([]outbox.Delivery, bool, error) {
	list, all, err := h.Outbox.DueExcept(ctx, shards, known, limit)
	before := len(list)
	list = slices.DeleteFunc(list, func(d outbox.Delivery) bool { return d.Group == "left" })
	return list, all && len(list) == before, err
}

// What quick reads leave out is read all the same: at once if they find nothing else, and
// soon while they do.
func TestWhatQuickReadsLeaveOutIsRead(t *testing.T) {
	t.Parallel()
	for _, busy := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			s, r := memstore.New(nil), &receiver{}
			running(t, hasty{s.Outbox()}, r, &outbox.Options{Poll: time.Hour})
			time.Sleep(24 * time.Hour)
			enqueue(t, s, message("left", "1"), message("left", "2"))
			for n := range 100 {
				if busy {
					enqueue(t, s, message("other", fmt.Sprint(n)))
				}
				time.Sleep(2 * time.Millisecond)
			}
			got := slices.DeleteFunc(r.received(), func(p string) bool { return p != "1" && p != "2" })
			if !busy && len(got) != 2 || busy && len(r.received()) != 100+2 {
				t.Errorf("busy %t: delivered %d, of those that were left out %v", busy, len(r.received()), got)
			}
		})
	}
}

// A pass whose context ends stores what was delivered, and sends nothing more.
func TestPassEndsWithItsContext(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := memstore.New(nil)
		enqueue(t, s, message("a", "1"), message("a", "2"))
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		sink := outbox.SinkFunc(func(context.Context, *outbox.Delivery) outbox.Receipt { stop(); return outbox.Receipt{} })
		w, err := outbox.NewWorker(s.Outbox(), sink, nil)
		must(t, err)
		if n, err := w.RunOnce(ctx); n != 1 || !errors.Is(err, context.Canceled) {
			t.Errorf("RunOnce = %d, %v", n, err)
		}
		if n, err := w.RunOnce(t.Context()); n != 1 || err != nil {
			t.Errorf("the next pass = %d, %v", n, err)
		}
	})
}

// Random transactions commit, late or not at all, while workers come and go and
// receivers fail: what committed arrives, in the order of its group, under one key.
func TestRandomSchedules(t *testing.T) {
	t.Parallel()
	for seed := range uint64(60) {
		synctest.Test(t, func(t *testing.T) { schedule(t, rand.New(rand.NewPCG(seed, 5))) }) //nolint:gosec // repeatable
	}
}

func schedule(t *testing.T, rng *rand.Rand) {
	s := memstore.New(nil)
	chance := rng.Float64() / 2
	var mu sync.Mutex
	luck := rand.New(rand.NewPCG(rng.Uint64(), 1)) //nolint:gosec // repeatable
	fails := func() bool { mu.Lock(); defer mu.Unlock(); return luck.Float64() < chance }
	r := &receiver{fail: func(*outbox.Delivery, int) outbox.Receipt {
		time.Sleep(time.Millisecond)
		if fails() {
			return outbox.Receipt{Err: errors.New("not now")}
		}
		return outbox.Receipt{}
	}}
	opts := &outbox.Options{
		Concurrency: 1 + rng.IntN(8), Batch: 1 + rng.IntN(5), InFlight: 2 + rng.IntN(100), MaxTries: 1000,
		Backoff: outbox.Backoff{First: 10 * time.Millisecond, Longest: time.Second},
	}
	for range 1 + rng.IntN(3) {
		running(t, s.Outbox(), r, opts)
	}
	committed := map[string][]string{} // payloads by group
	var late sync.WaitGroup
	for n := range 200 {
		tx, err := s.Begin(t.Context())
		must(t, err)
		group := []string{"", "a", "b", "c"}[rng.IntN(4)]
		payload := fmt.Sprintf("%s-%d", group, n)
		must(t, tx.Enqueue(t.Context(), message(group, payload)))
		switch {
		case rng.IntN(5) == 0:
			must(t, tx.Rollback(t.Context()))
			continue
		case group == "" && rng.IntN(5) == 0: // later than others with higher ids
			late.Go(func() { time.Sleep(time.Second); _ = tx.Commit(context.Background()) })
		default:
			must(t, tx.Commit(t.Context()))
		}
		committed[group] = append(committed[group], payload)
		if rng.IntN(20) == 0 {
			time.Sleep(time.Duration(rng.IntN(300)) * time.Millisecond)
		}
	}
	late.Wait()
	time.Sleep(10 * time.Minute)
	got := r.received()
	if d, _ := s.Outbox().Depth(t.Context()); d.Waiting != 0 || d.Dead != 0 {
		t.Errorf("%+v is left", d)
	}
	total := 0
	for group, want := range committed {
		total += len(want)
		var mine []string
		for _, p := range got {
			if strings.HasPrefix(p, group+"-") {
				mine = append(mine, p)
			}
		}
		if group == "" {
			slices.Sort(mine)
			slices.Sort(want)
		}
		if !slices.Equal(mine, want) {
			t.Errorf("group %q got %v\nwant %v", group, mine, want)
		}
	}
	if len(got) != total {
		t.Errorf("%d deliveries of %d messages", len(got), total)
	}
	for p, keys := range r.keys {
		if len(slices.Compact(keys)) != 1 {
			t.Errorf("%s came under %v", p, keys)
		}
	}
}
