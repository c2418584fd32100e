package httpkey_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/httpkey"
	"github.com/retrysafe/retrysafe/internal/test/faultstore"
	"github.com/retrysafe/retrysafe/store/memstore"
	"github.com/retrysafe/retrysafe/store/sealed"
	"github.com/retrysafe/retrysafe/store/tiered"
)

// running runs a worker until the returned function is called, which waits for it.
func running(t *testing.T, w *httpkey.Worker) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := w.Run(ctx); err != nil {
			t.Errorf("Run: %v", err)
		}
	})
	return func() { cancel(); wg.Wait() }
}

// beside returns another process over the same store: it shares nothing else.
func (b *bundle) beside(t *testing.T, change ...func(*config)) *bundle {
	t.Helper()
	c := setup(t, change...)
	c.mem = b.mem
	c.fault = faultstore.New(b.mem)
	var err error
	c.engine, err = retrysafe.New(c.fault, &retrysafe.Options{Policy: b.engine.Policy()})
	must(t, err)
	c.guard, err = httpkey.New(c.engine, tenant, &httpkey.Options{Async: true, Logger: discard})
	must(t, err)
	c.Handler = c.guard.Handler(c.counted(c.created))
	return c
}

// While the store does not answer a worker looks less and less often, and says so as often;
// once it has answered it looks at its usual pace again, and a request that is stored wakes
// it at once.
func TestWorkerPausesLongerWhileTheStoreFails(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := setup(t, async)
		b.fault.Plan(func(s faultstore.Step) faultstore.Fault {
			if s.Op == faultstore.List {
				return faultstore.LoseRequest
			}
			return faultstore.None
		})
		w := b.worker(t, &httpkey.WorkerOptions{Poll: 500 * time.Millisecond})
		stop := running(t, w)
		defer stop()
		tries := func() int { return strings.Count(b.log.String(), "worker cannot look for requests") }
		time.Sleep(8 * time.Second)
		if n := tries(); n < 3 || n > 5 {
			t.Errorf("it looked %d times in 8 s, want 3 to 5: %s", n, b.log)
		}
		time.Sleep(time.Hour)
		if n := tries(); n < 270 || n > 490 {
			t.Errorf("it looked %d times in an hour, want about once in ten seconds", n)
		}
		b.fault.Plan(nil)
		b.post(t, key, `{}`)
		synctest.Wait()
		b.ranTimes(t, 1)
		before := tries()
		b.beside(t, async).post(t, other, `{}`)
		time.Sleep(time.Second)
		b.ranTimes(t, 2)
		if tries() != before {
			t.Errorf("it fails on: %s", b.log)
		}
	})
}

// A worker that looks less often than every ten seconds does not look more often because
// the store fails.
func TestWorkerKeepsALongPauseWhileTheStoreFails(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := setup(t, async)
		b.fault.Plan(faultstore.FailAll(faultstore.LoseRequest))
		stop := running(t, b.worker(t, &httpkey.WorkerOptions{Poll: time.Minute}))
		defer stop()
		time.Sleep(time.Hour)
		if n := strings.Count(b.log.String(), "worker cannot look for requests"); n < 45 || n > 85 {
			t.Errorf("it looked %d times in an hour, want about once a minute", n)
		}
	})
}

func TestWorkerIsWokenAtOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := setup(t, async)
		stop := running(t, b.worker(t, &httpkey.WorkerOptions{Poll: 24 * time.Hour}))
		synctest.Wait()
		began := time.Now()
		for i := range 3 {
			k := fmt.Sprintf("%s-%d", key, i)
			b.post(t, k, `{}`).accepted(t)
			synctest.Wait()
			b.post(t, k, `{}`).ran(t, i+1, true)
		}
		if took := time.Since(began); took != 0 {
			t.Errorf("it took %v", took)
		}
		stop()
	})
}

func TestWorkerFindsWhatAnotherProcessStored(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		front := setup(t, async)
		back := front.beside(t)
		stop := running(t, back.worker(t, nil))
		synctest.Wait()
		front.post(t, key, `{}`).accepted(t)
		synctest.Wait()
		back.ranTimes(t, 0) // no notification crosses processes
		time.Sleep(time.Second)
		front.post(t, key, `{}`).ran(t, 1, true)
		front.ranTimes(t, 0)
		stop()
	})
}

// However many workers there are, a request is run by one.
func TestWorkersRunEachRequestOnce(t *testing.T) {
	t.Parallel()
	const requests = 300
	front := setup(t, async)
	for i := range requests {
		front.post(t, fmt.Sprintf("%s-%d", key, i), fmt.Sprintf(`{"n":%d}`, i)).accepted(t)
	}
	var ran atomic.Int64
	var each sync.Map
	var wg sync.WaitGroup
	for range 4 {
		back := front.beside(t)
		back.Handler = back.guard.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if _, twice := each.LoadOrStore(r.Header.Get("Idempotency-Key"), true); twice {
				t.Errorf("%s ran twice", r.Header.Get("Idempotency-Key"))
			}
			back.created(w, r)
		}))
		w := back.worker(t, &httpkey.WorkerOptions{Concurrency: 5})
		wg.Go(func() {
			n, err := w.RunOnce(t.Context())
			if err != nil {
				t.Error(err)
			}
			ran.Add(int64(n))
		})
	}
	wg.Wait()
	if ran.Load() != requests {
		t.Errorf("%d runs of %d requests", ran.Load(), requests)
	}
	for _, r := range front.records(t) {
		if r.State != retrysafe.StateCompleted || r.Attempt != 1 {
			t.Errorf("%s is %s after %d attempts", r.Key, r.State, r.Attempt)
		}
	}
}

func TestWorkerRunsSoManyAtOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var now, most atomic.Int32
		b := setup(t, async, withHandler(func(http.ResponseWriter, *http.Request) {
			if n := now.Add(1); n > most.Load() {
				most.Store(n)
			}
			time.Sleep(time.Second)
			now.Add(-1)
		}))
		for i := range 20 {
			b.post(t, fmt.Sprintf("%s-%d", key, i), `{}`).accepted(t)
		}
		n, err := b.worker(t, &httpkey.WorkerOptions{Concurrency: 3}).RunOnce(t.Context())
		if n != 20 || err != nil || most.Load() != 3 {
			t.Errorf("RunOnce = %d, %v, %d at once", n, err, most.Load())
		}
	})
}

// A request that takes long holds up no other.
func TestWorkerIsNotHeldUp(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := setup(t, async)
		b.Handler = b.guard.Handler(b.counted(func(w http.ResponseWriter, r *http.Request) {
			if r.Header.Get("Idempotency-Key") == key {
				time.Sleep(5 * time.Minute)
			}
			b.created(w, r)
		}))
		stop := running(t, b.worker(t, &httpkey.WorkerOptions{Concurrency: 2}))
		b.post(t, key, `{}`).accepted(t)
		synctest.Wait()
		b.post(t, other, `{}`).accepted(t)
		synctest.Wait()
		b.post(t, other, `{}`).ran(t, 2, true)
		b.post(t, key, `{}`).accepted(t)
		time.Sleep(6 * time.Minute) // longer than its lease
		b.post(t, key, `{}`).ran(t, 2, true)
		b.ranTimes(t, 2)
		stop()
	})
}

func TestWorkerFinishesWhatItHasTakenUp(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := setup(t, async)
		b.Handler = b.guard.Handler(b.counted(func(w http.ResponseWriter, r *http.Request) {
			time.Sleep(time.Minute)
			if err := r.Context().Err(); err != nil {
				t.Errorf("the handler was told to stop: %v", err)
			}
			b.created(w, r)
		}))
		w := b.worker(t, &httpkey.WorkerOptions{Concurrency: 1})
		stop := running(t, w)
		b.post(t, key, `{}`).accepted(t)
		synctest.Wait()
		b.post(t, other, `{}`).accepted(t) // finds no slot
		synctest.Wait()
		stop()
		b.is(t, retrysafe.StateCompleted)
		b.post(t, key, `{}`).ran(t, 1, true)
		b.post(t, other, `{}`).accepted(t) // it waits for another worker, or for this one
		b.ranTimes(t, 1)
		if n, err := w.RunOnce(t.Context()); n != 1 || err != nil {
			t.Errorf("the worker that runs again has run %d requests, %v", n, err)
		}
		b.post(t, other, `{}`).ran(t, 2, true)
	})
}

// A worker that is stopped while it claims a request runs it: the claim may be stored. Before
// that it leaves the request to another worker.
func TestWorkerThatIsStoppedFinishesItsClaim(t *testing.T) {
	t.Parallel()
	for _, claiming := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			ctx, stop := context.WithCancel(t.Context())
			defer stop()
			b := setup(t, async, func(c *config) {
				c.Restore = func(ctx context.Context, _ *http.Request, _ retrysafe.Ref) (context.Context, error) {
					if !claiming {
						stop()
					}
					return ctx, nil
				}
			})
			b.post(t, key, `{}`).accepted(t)
			b.fault.Plan(func(s faultstore.Step) faultstore.Fault {
				if s.Op == faultstore.Swap {
					stop()
				}
				return faultstore.None
			})
			n, err := b.worker(t, nil).RunOnce(ctx)
			if want := map[bool]int{true: 1}[claiming]; n != want || b.runs.Load() != int32(want) {
				t.Errorf("stopped while it claims %t: RunOnce = %d, %v; the handler ran %d times", claiming, n, err, b.runs.Load())
			}
		})
	}
}

func TestWorkerLeavesOthersWorkAlone(t *testing.T) {
	t.Parallel()
	b := setup(t, async)
	b.post(t, key, `{}`, to("/refunds")).accepted(t)
	_, err := b.mem.Create(t.Context(), retrysafe.Write{Term: time.Hour, Record: retrysafe.Record{
		Ref: retrysafe.Ref{Scope: retrysafe.SystemScope("test"), Key: "k"}, Operation: payments, State: retrysafe.StateAccepted,
		Version: retrysafe.RecordVersion, Owner: retrysafe.Owner{1}, Request: []byte("?"),
	}})
	must(t, err)
	b.plantAccepted(t, other, func(r *retrysafe.Write) { r.Version = retrysafe.RecordVersion + 1 })
	b.work(t, 0)
	b.ranTimes(t, 0)
	for _, r := range b.records(t) {
		if r.State != retrysafe.StateAccepted {
			t.Errorf("%q is %s", r.Ref, r.State)
		}
	}
}

// However many requests of other workers there are, a worker finds its own behind them.
func TestWorkerLooksPastOthersWork(t *testing.T) {
	t.Parallel()
	b := setup(t, async)
	for i := range 7 {
		b.post(t, fmt.Sprintf("0-%s-%d", key, i), `{}`, to("/refunds")).accepted(t)
	}
	b.post(t, key, `{}`).accepted(t)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if n, err := b.worker(t, &httpkey.WorkerOptions{Concurrency: 1}).RunOnce(ctx); n != 1 || err != nil {
		t.Errorf("RunOnce = %d, %v", n, err)
	}
	b.post(t, key, `{}`).ran(t, 1, true)
}

// plantAccepted stores a request under k and changes its record.
func (b *bundle) plantAccepted(t *testing.T, k string, change func(*retrysafe.Write)) {
	t.Helper()
	b.post(t, k, `{"a":1}`).accepted(t)
	stored, err := b.mem.Load(t.Context(), retrysafe.Ref{Scope: "acme", Key: k})
	must(t, err)
	r := stored.Update()
	r.Owner, r.Overwrite, r.Term = retrysafe.Owner{7}, true, time.Hour // so that the request can change
	change(&r)
	_, err = b.mem.Swap(t.Context(), r)
	must(t, err)
}

// A request that cannot be read is answered, provided that it was never run, and
// holds up no other.
func TestWorkerAnswersForAPoisonedRequest(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		change func(*retrysafe.Write)
		state  retrysafe.State
	}{
		"cut short":        {func(r *retrysafe.Write) { r.Request = r.Request[:len(r.Request)-1] }, retrysafe.StateCompleted},
		"longer":           {func(r *retrysafe.Write) { r.Request = append(bytes.Clone(r.Request), 0) }, retrysafe.StateCompleted},
		"empty":            {func(r *retrysafe.Write) { r.Request = []byte{} }, retrysafe.StateCompleted},
		"run before":       {func(r *retrysafe.Write) { r.Request, r.Attempt = []byte{1}, 1 }, retrysafe.StateUnknown},
		"of a newer guard": {func(r *retrysafe.Write) { r.Request = []byte{2} }, retrysafe.StateAccepted},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t, async)
			b.plantAccepted(t, key, c.change)
			b.post(t, other, `{}`).accepted(t)
			n, err := b.worker(t, nil).RunOnce(t.Context())
			if want := map[bool]int{true: 1, false: 2}[c.state == retrysafe.StateAccepted]; n != want || (err != nil) != (want == 1) {
				t.Errorf("RunOnce = %d, %v", n, err)
			}
			b.post(t, other, `{}`).ran(t, 1, true)
			b.is(t, c.state)
			switch got := b.post(t, key, `{"a":1}`); c.state {
			case retrysafe.StateCompleted:
				if p := got.refused(t, 500, "request-unreadable"); p.Retryable || !p.SafeNewKey || got.header.Get("Idempotent-Replayed") != "true" {
					t.Errorf("got %v %s", got.header, got.body)
				}
			case retrysafe.StateUnknown:
				got.refused(t, 409, "outcome-unknown")
			default: // a newer worker may come
				got.accepted(t)
			}
			b.ranTimes(t, 1)
		})
	}
}

type callerKey struct{}

func TestWorkerRestoresTheCaller(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var known atomic.Bool
		var tries atomic.Int32
		b := setup(t, async, func(c *config) {
			c.Bind = func(*http.Request) (string, error) { return "alice", nil }
			c.Restore = func(ctx context.Context, r *http.Request, ref retrysafe.Ref) (context.Context, error) {
				switch n := tries.Add(1); {
				case n == 2:
					panic("a bug")
				case n == 3:
					return nil, nil
				case !known.Load():
					return ctx, errors.New("no directory of users")
				}
				tenant, principal := httpkey.Caller(ref)
				return context.WithValue(ctx, callerKey{}, principal+" of "+tenant+" asks for "+r.URL.Path), nil
			}
			c.handler = func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, r.Context().Value(callerKey{})) }
		})
		b.post(t, key, `{}`).accepted(t)
		stop := running(t, b.worker(t, nil))
		time.Sleep(30 * time.Second)
		b.post(t, key, `{}`).accepted(t) // nothing ran without its caller
		b.ranTimes(t, 0)
		if n := tries.Load(); n < 4 || n > 6 {
			t.Errorf("%d tries in half a minute; they should rest longer each time", n)
		}
		known.Store(true)
		time.Sleep(time.Minute)
		if got := b.post(t, key, `{}`); got.body != "alice of acme asks for /payments" {
			t.Errorf("got %d %s", got.status, got.body)
		}
		stop()
	})
}

func TestWorkerWhoseStoreFails(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := setup(t, async)
		b.post(t, key, `{}`).accepted(t)
		w := b.worker(t, nil)
		for _, plan := range []func(faultstore.Step) faultstore.Fault{
			faultstore.FailAll(faultstore.LoseRequest),
			func(s faultstore.Step) faultstore.Fault {
				if s.Op == faultstore.Swap {
					return faultstore.LoseRequest
				}
				return faultstore.None
			},
		} {
			b.fault.Plan(plan)
			if n, err := w.RunOnce(t.Context()); n != 0 || !errors.Is(err, faultstore.ErrInjected) {
				t.Errorf("RunOnce = %d, %v", n, err)
			}
		}
		b.ranTimes(t, 0)
		stop := running(t, w)
		time.Sleep(time.Minute)
		b.fault.Plan(nil)
		time.Sleep(2 * time.Minute)
		b.post(t, key, `{}`).ran(t, 1, true)
		stop()
	})
}

// The reply to a claim is lost: the next try recognises itself, and runs it once.
func TestWorkerWhoseClaimIsNotAnswered(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := setup(t, async)
		b.post(t, key, `{}`).accepted(t)
		b.fault.Plan(faultstore.FailOnce(faultstore.Swap, 1, faultstore.LoseReply))
		b.work(t, 1)
		b.post(t, key, `{}`).ran(t, 1, true)
		b.ranTimes(t, 1)
	})
}

func TestWorkerIsChecked(t *testing.T) {
	t.Parallel()
	b, stranger := setup(t, async), setup(t, async)
	plain, err := b.guard.With(func(o *httpkey.Options) { o.Async = false })
	must(t, err)
	observing, err := b.guard.With(func(o *httpkey.Options) { o.Observe = true })
	must(t, err)
	h := http.NotFoundHandler()
	for name, routes := range map[string]map[string]http.Handler{
		"no routes": nil, "no guard": {payments: h}, "not async": {payments: plain.Handler(h)}, "observing": {payments: observing.Handler(h)},
		"stranger": {payments: stranger.Handler}, "no name": {"": b.Handler}, "long name": {strings.Repeat("a", 300): b.Handler},
	} {
		if _, err := httpkey.NewWorker(b.guard, routes, nil); err == nil || !strings.HasPrefix(err.Error(), "httpkey: NewWorker") {
			t.Errorf("%s: %v", name, err)
		}
	}
	routes := map[string]http.Handler{payments: b.Handler}
	if _, err := httpkey.NewWorker(nil, routes, nil); err == nil {
		t.Error("a worker without a guard")
	}
	for _, o := range []httpkey.WorkerOptions{{Poll: -1}, {Concurrency: -1}, {Attempts: -1}, {Rest: -1}} {
		if _, err := httpkey.NewWorker(b.guard, routes, &o); err == nil {
			t.Errorf("%+v passes", o)
		}
	}
}

const (
	indexSecret   = "an index secret, of 32 bytes: 12"
	sealingSecret = "a key for what is stored: 123456"
)

// Credentials are stored encrypted or not at all.
func TestCredentialsAreKeptOnlySealed(t *testing.T) {
	t.Parallel()
	ring, err := sealed.NewKeyring([]byte(indexSecret), 1, map[uint32][]byte{1: []byte(sealingSecret)})
	must(t, err)
	mem := memstore.New(nil)
	sealing, err := sealed.New(mem, ring)
	must(t, err)
	withTx, err := sealed.NewTx(mem, ring)
	must(t, err)
	guard := func(s retrysafe.Store) (*httpkey.Guard, error) {
		e, err := retrysafe.New(s, nil)
		must(t, err)
		return httpkey.New(e, tenant, &httpkey.Options{Async: true, KeepCredentials: []string{"authorization"}, Logger: discard})
	}
	for name, s := range map[string]retrysafe.Store{"plain": mem, "cached": tiered.New(mem, nil)} {
		if _, err := guard(s); err == nil || !strings.Contains(err.Error(), "sealed") {
			t.Errorf("%s: %v", name, err)
		}
	}
	for name, s := range map[string]retrysafe.Store{"sealed": sealing, "sealed, with transactions": withTx, "sealed and cached": tiered.New(sealing, nil)} {
		g, err := guard(s)
		must(t, err)
		var seen string
		b := &bundle{guard: g, mem: mem}
		b.Handler = g.Handler(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			seen = r.Header.Get("Authorization") + r.Header.Get("Cookie")
		}))
		k := strings.NewReplacer(" ", "-", ",", "").Replace(name) + key
		b.post(t, k, `{}`, with("Authorization", "Bearer secret-1"), with("Cookie", "a=1")).accepted(t)
		for _, r := range b.records(t) {
			if strings.Contains(fmt.Sprintf("%+v %q", r, r.Request), "secret-1") {
				t.Errorf("%s: it is stored as it is", name)
			}
		}
		b.work(t, 1)
		if seen != "Bearer secret-1" {
			t.Errorf("%s: the handler sees %q", name, seen)
		}
	}
}

// Work that failed and may be run again is retried by the worker, with a growing
// backoff and a bounded number of attempts. After the last one its outcome is unknown.
func TestWorkerRunsAgainWhatFailed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := setup(t, async, withPolicy(retrysafe.Policy{Effects: retrysafe.EffectsKeyed}), withHandler(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(503) }))
		w := b.worker(t, &httpkey.WorkerOptions{Attempts: 3})
		b.post(t, key, `{}`).accepted(t)
		var at []time.Duration
		start := time.Now()
		for range 2 * 3600 {
			n, err := w.RunOnce(t.Context())
			must(t, err)
			if n > 0 {
				at = append(at, time.Since(start))
				b.is(t, retrysafe.StateAccepted)
			}
			time.Sleep(time.Second / 2)
		}
		if want := []time.Duration{0, time.Second, 3 * time.Second}; !slices.Equal(at, want) {
			t.Errorf("it ran after %v, want %v", at, want)
		}
		time.Sleep(time.Minute)
		b.post(t, key, `{}`).refused(t, 409, "outcome-unknown")
	})
}

// How long work has rested is told by the store's clock, which stored the failure, and not by
// the worker's.
func TestWorkerMeasuresTheRestByTheStoresClock(t *testing.T) {
	t.Parallel()
	for name, ahead := range map[string]time.Duration{"ahead": time.Hour, "behind": -time.Hour} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				storeClock := func(c *config) { c.store.Now = func() time.Time { return time.Now().Add(ahead) } }
				b := setup(t, async, storeClock, withPolicy(retrysafe.Policy{Effects: retrysafe.EffectsKeyed}), withHandler(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(503) }))
				w := b.worker(t, &httpkey.WorkerOptions{Attempts: 2})
				b.post(t, key, `{}`).accepted(t)
				runs := func(want int) {
					t.Helper()
					if n, err := w.RunOnce(t.Context()); n != want || err != nil {
						t.Errorf("RunOnce = %d, %v, want %d", n, err, want)
					}
				}
				runs(1)
				runs(0)
				time.Sleep(time.Second)
				runs(1)
			})
		})
	}
}
