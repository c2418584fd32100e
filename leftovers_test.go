package retrysafe_test

import (
	"context"
	"errors"
	"io"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/internal/test/faultstore"
	"github.com/retrysafe/retrysafe/store/memstore"
)

// timers is a clock that knows which of its timers are pending.
type timers struct {
	retrysafe.WallClock
	mu      sync.Mutex
	pending map[*pendingTimer]time.Duration
}

type pendingTimer struct {
	c *timers
	retrysafe.Timer
}

func (c *timers) AfterFunc(d time.Duration, f func()) retrysafe.Timer {
	c.mu.Lock()
	defer c.mu.Unlock()
	p := &pendingTimer{c: c}
	if c.pending == nil {
		c.pending = make(map[*pendingTimer]time.Duration)
	}
	c.pending[p] = d
	p.Timer = c.WallClock.AfterFunc(d, func() {
		c.forget(p)
		f()
	})
	return p
}

func (c *timers) forget(p *pendingTimer) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.pending, p)
}

func (p *pendingTimer) Stop() bool {
	p.c.forget(p)
	return p.Timer.Stop()
}

// longer returns how many pending timers were started for longer than d.
func (c *timers) longer(d time.Duration) (n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, other := range c.pending {
		if other > d {
			n++
		}
	}
	return n
}

// watching is a store that waits for the end of each step's context, as drivers do: it has a timer from then on.
type watching struct {
	*faultstore.Store
	mu       sync.Mutex
	contexts []context.Context
}

func (s *watching) watch(ctx context.Context) context.Context {
	ctx.Done()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.contexts = append(s.contexts, ctx)
	return ctx
}

func (s *watching) Create(ctx context.Context, w retrysafe.Write) (retrysafe.Record, error) {
	return s.Store.Create(s.watch(ctx), w)
}

func (s *watching) Swap(ctx context.Context, w retrysafe.Write) (retrysafe.Record, error) {
	return s.Store.Swap(s.watch(ctx), w)
}

func (s *watching) Load(ctx context.Context, ref retrysafe.Ref) (retrysafe.Record, error) {
	return s.Store.Load(s.watch(ctx), ref)
}

// world is an engine of which it is known what it has left open.
type world struct {
	*bank
	clock *timers
	store *watching
	txs   []*memstore.Tx
	runs  []*retrysafe.Execution
}

// beat is how often a lease is renewed in a world. Longer timers are those of contexts.
const beat = 10 * time.Second

// maxRun ends half a beat after the last one.
const maxRun = 60*beat + beat/2

func newWorld(t *testing.T, effects retrysafe.Effects) *world {
	t.Helper()
	w := &world{bank: newBank(t, retrysafe.Policy{Effects: effects}), clock: new(timers)}
	w.store = &watching{Store: w.fault}
	var err error
	w.Engine, err = retrysafe.New(w.store, &retrysafe.Options{
		Policy: retrysafe.Policy{Effects: effects, Lease: 3 * beat, MaxRun: maxRun},
		Clock:  w.clock, Observer: w, StoreTimeout: time.Minute, SettleTimeout: time.Minute,
	})
	must(t, err)
	return w
}

func (w *world) BeginTx(ctx context.Context) (retrysafe.Tx, *memstore.Tx, error) {
	own, tx, err := w.bank.BeginTx(w.store.watch(ctx))
	if err != nil {
		return nil, nil, err
	}
	w.txs = append(w.txs, tx)
	return &watchingTx{own, w.store}, tx, nil
}

// watchingTx is to a transaction what watching is to a store.
type watchingTx struct {
	retrysafe.Tx
	s *watching
}

func (tx *watchingTx) Reserve(ctx context.Context, ref retrysafe.Ref) (retrysafe.Record, error) {
	return tx.Tx.Reserve(tx.s.watch(ctx), ref)
}

func (tx *watchingTx) Create(ctx context.Context, w retrysafe.Write) (retrysafe.Record, error) {
	return tx.Tx.Create(tx.s.watch(ctx), w)
}

func (tx *watchingTx) Swap(ctx context.Context, w retrysafe.Write) (retrysafe.Record, error) {
	return tx.Tx.Swap(tx.s.watch(ctx), w)
}

func (tx *watchingTx) Commit(ctx context.Context) error   { return tx.Tx.Commit(tx.s.watch(ctx)) }
func (tx *watchingTx) Rollback(ctx context.Context) error { return tx.Tx.Rollback(tx.s.watch(ctx)) }

// doTx runs the operation of the bank in a transaction of the world.
func (w *world) doTx(ctx context.Context) (retrysafe.Outcome, error) {
	return retrysafe.DoTx(ctx, w.Engine, w, call(), func(ctx context.Context, tx *memstore.Tx) (retrysafe.Result, error) {
		ctx.Done()
		if w.fn != nil {
			return w.fn(ctx, tx)
		}
		return answer("booked"), nil
	})
}

// waits makes calls wait for an attempt in flight.
func (w *world) waits(t *testing.T) {
	t.Helper()
	e, err := w.Engine.With(retrysafe.Policy{InFlight: retrysafe.InFlightWait, Wait: 5 * time.Second})
	must(t, err)
	w.Engine = e
}

// execution begins the operation, and waits for the end of its context as its functions do.
func (w *world) execution(t *testing.T) *retrysafe.Execution {
	t.Helper()
	x := w.begins(t)
	w.store.watch(x.Context())
	w.runs = append(w.runs, x)
	return x
}

// transaction begins one that the operation opens itself.
func (w *world) transaction(t *testing.T) *memstore.Tx {
	t.Helper()
	tx, err := w.mem.Begin(t.Context())
	must(t, err)
	w.txs = append(w.txs, tx)
	return tx
}

func fails(t *testing.T, err error) {
	t.Helper()
	if err == nil {
		t.Error("it went well")
	}
}

// However a call ends, no context of its steps goes on, no timer is pending for one, and no transaction that the
// engine began, or was to end, is open.
func TestNothingIsLeftOpen(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	one := retrysafe.EffectsKeyed
	for name, c := range map[string]struct {
		effects retrysafe.Effects
		run     func(*testing.T, *world)
	}{
		"completed":   {one, func(t *testing.T, w *world) { must(t, w.execution(t).Complete(ctx, answer("a"))) }},
		"released":    {one, func(t *testing.T, w *world) { must(t, w.execution(t).Release(ctx, io.EOF)) }},
		"quarantined": {one, func(t *testing.T, w *world) { must(t, w.execution(t).Quarantine(ctx, io.EOF)) }},
		"stopped":     {one, func(t *testing.T, w *world) { w.execution(t).Stop() }},
		"saved": {one, func(t *testing.T, w *world) {
			x := w.execution(t)
			must(t, x.Save(ctx, retrysafe.Checkpoint{Data: []byte("half")}))
			time.Sleep(beat + time.Second)
			must(t, x.Complete(ctx, answer("a")))
		}},
		"replayed": {one, func(t *testing.T, w *world) {
			must(t, w.execution(t).Complete(ctx, answer("a")))
			w.replays(t, "a")
			_, err := w.Peek(ctx, call())
			must(t, err)
			_, err = w.Attach(ctx, ref)
			must(t, err)
		}},
		"refused": {one, func(t *testing.T, w *world) {
			x := w.execution(t)
			w.refused(t, retrysafe.ErrInFlight)
			must(t, x.Quarantine(ctx, io.EOF))
			w.refused(t, retrysafe.ErrUnknown)
			other := call()
			other.Fingerprint = print(2)
			_, _, err := w.Begin(ctx, other)
			fails(t, err)
		}},
		"the client has gone": {one, func(t *testing.T, w *world) {
			gone, hangUp := context.WithCancel(ctx)
			w.fault.Plan(func(faultstore.Step) faultstore.Fault { hangUp(); return 0 })
			_, _, err := w.Begin(gone, call())
			fails(t, err)
		}},
		"the store is down": {one, func(t *testing.T, w *world) {
			w.fault.Plan(faultstore.FailAll(faultstore.LoseRequest))
			w.refused(t, retrysafe.ErrUnavailable)
			_, err := w.Attach(ctx, ref)
			fails(t, err)
		}},
		"accepted and taken up": {one, func(t *testing.T, w *world) {
			_, err := w.Accept(ctx, call(), []byte("later"))
			fails(t, err)
			x, err := w.TakeUp(ctx, w.state(t))
			must(t, err)
			must(t, x.Complete(ctx, answer("a")))
		}},
		"lost": {one, func(t *testing.T, w *world) {
			x := w.execution(t)
			r := w.state(t).Update()
			r.Owner, r.Attempt, r.Overwrite, r.Term = retrysafe.Owner{7}, 2, true, time.Hour
			_, err := w.mem.Swap(ctx, r)
			must(t, err)
			fails(t, x.Complete(ctx, answer("a")))
		}},
		"offered in the background": {one, func(t *testing.T, w *world) {
			x := w.execution(t)
			w.fault.Plan(faultstore.FailAll(faultstore.LoseRequest))
			fails(t, x.Complete(ctx, answer("a")))
			w.fault.Plan(nil)
			must(t, w.Drain(ctx))
		}},
		"offered in vain": {one, func(t *testing.T, w *world) {
			x := w.execution(t)
			w.fault.Plan(faultstore.FailAll(faultstore.LoseRequest))
			fails(t, x.Complete(ctx, answer("a")))
			must(t, w.Drain(ctx))
			if w.saw(retrysafe.EventForgone) != 1 {
				t.Errorf("observed %v", w.events)
			}
		}},
		"completed in a transaction": {retrysafe.EffectsInTx, func(t *testing.T, w *world) {
			x, tx := w.execution(t), w.transaction(t)
			must(t, x.CompleteTx(ctx, tx, answer("a")))
			must(t, tx.Commit(ctx))
			_, err := x.Outcome(ctx)
			must(t, err)
		}},
		"completed twice in a transaction": {retrysafe.EffectsInTx, func(t *testing.T, w *world) {
			x, tx := w.execution(t), w.transaction(t)
			must(t, x.CompleteTx(ctx, tx, answer("a")))
			fails(t, x.CompleteTx(ctx, tx, answer("a")))
			must(t, x.Release(ctx, io.EOF))
		}},
		"completed in another store's transaction": {retrysafe.EffectsInTx, func(t *testing.T, w *world) {
			x := w.execution(t)
			tx, err := memstore.New(nil).Begin(ctx)
			must(t, err)
			w.txs = append(w.txs, tx)
			fails(t, x.CompleteTx(ctx, tx, answer("a")))
			must(t, x.Release(ctx, io.EOF))
		}},
		"handed over": {one, func(t *testing.T, w *world) {
			x, tx := w.execution(t), w.transaction(t)
			_, err := x.HandOver(ctx, tx, time.Hour)
			must(t, err)
			must(t, tx.Commit(ctx))
			_, _ = x.Outcome(ctx)
		}},
		"a phase": {one, func(t *testing.T, w *world) {
			x := w.execution(t)
			tries := 0
			w.reserve = func(context.Context) error {
				if tries++; tries == 1 {
					return faultstore.ErrInjected
				}
				return nil
			}
			_, err := retrysafe.PhaseTx(x.Context(), w, "books", func(context.Context, *memstore.Tx) (string, error) { return "", nil })
			must(t, err)
			must(t, x.Complete(ctx, answer("a")))
		}},
		"a phase that fails": {one, func(t *testing.T, w *world) {
			x := w.execution(t)
			_, err := retrysafe.PhaseTx(x.Context(), w, "books", func(context.Context, *memstore.Tx) (string, error) { return "", io.EOF })
			fails(t, err)
			must(t, x.Release(ctx, io.EOF))
		}},
		"a phase that panics": {one, func(t *testing.T, w *world) {
			x := w.execution(t)
			func() {
				defer func() { _ = recover() }()
				_, _ = retrysafe.PhaseTx(x.Context(), w, "books", func(context.Context, *memstore.Tx) (string, error) { panic("out of coffee") })
			}()
			must(t, x.Release(ctx, io.EOF))
		}},
		"a phase whose commit fails": {one, func(t *testing.T, w *world) {
			x := w.execution(t)
			w.commit = func(context.Context, *memstore.Tx) error { return faultstore.ErrInjected }
			_, err := retrysafe.PhaseTx(x.Context(), w, "books", func(context.Context, *memstore.Tx) (string, error) { return "", nil })
			fails(t, err)
			must(t, x.Release(ctx, io.EOF))
		}},
		"DoTx": {retrysafe.EffectsInTx, func(t *testing.T, w *world) {
			for range 2 {
				_, err := w.doTx(ctx)
				must(t, err)
			}
		}},
		"DoTx: no transaction, no key, an error": {retrysafe.EffectsInTx, func(t *testing.T, w *world) {
			steps := 0
			flaky := func(context.Context) error {
				if steps++; steps%2 == 1 {
					return faultstore.ErrInjected
				}
				return nil
			}
			w.begin, w.reserve = flaky, flaky
			w.fn = func(context.Context, *memstore.Tx) (retrysafe.Result, error) { return retrysafe.Result{}, io.EOF }
			_, err := w.doTx(ctx)
			fails(t, err)
		}},
		"DoTx: a panic": {retrysafe.EffectsInTx, func(t *testing.T, w *world) {
			w.fn = func(context.Context, *memstore.Tx) (retrysafe.Result, error) { panic("out of coffee") }
			defer func() { _ = recover() }()
			_, _ = w.doTx(ctx)
		}},
		"DoTx: the client has gone": {retrysafe.EffectsInTx, func(t *testing.T, w *world) {
			gone, hangUp := context.WithCancel(ctx)
			w.reserve = func(context.Context) error { hangUp(); return nil }
			_, err := w.doTx(gone)
			fails(t, err)
		}},
		"DoTx: overtaken": {retrysafe.EffectsInTx, func(t *testing.T, w *world) {
			stored := false
			w.bank.store = func(retrysafe.Write) error {
				if stored {
					return nil
				}
				stored = true
				return retrysafe.ErrBusy
			}
			_, err := w.doTx(ctx)
			fails(t, err)
		}},
		"DoTx: lapsed": {retrysafe.EffectsInTx, func(t *testing.T, w *world) {
			w.with(t, func(r *retrysafe.Write) { r.Term, r.Lapse = time.Second, retrysafe.LapseQuarantine })
			time.Sleep(time.Minute)
			_, err := w.doTx(ctx)
			fails(t, err)
		}},
		"DoTx: another attempt, and a wait for it": {retrysafe.EffectsInTx, func(t *testing.T, w *world) {
			theirs, a := w.with(t, func(*retrysafe.Write) {}), answer("theirs")
			time.AfterFunc(time.Second, func() {
				r := theirs.Update()
				r.State, r.Result, r.Term = retrysafe.StateCompleted, &a, time.Hour
				if _, err := w.mem.Swap(ctx, r); err != nil {
					t.Errorf("the other attempt cannot store its answer while this call waits: %v", err)
				}
			})
			w.waits(t)
			_, err := w.doTx(ctx)
			must(t, err)
		}},
		"DoTx: another transaction, and a wait for it": {retrysafe.EffectsInTx, func(t *testing.T, w *world) {
			tx := w.transaction(t)
			_, err := tx.Reserve(ctx, ref)
			if !errors.Is(err, retrysafe.ErrNotFound) {
				t.Fatalf("Reserve = %v", err)
			}
			time.AfterFunc(time.Second, func() { must(t, tx.Rollback(ctx)) })
			w.waits(t)
			_, err = w.doTx(ctx)
			must(t, err)
		}},
		"waits in vain": {one, func(t *testing.T, w *world) {
			x := w.execution(t)
			w.waits(t)
			w.refused(t, retrysafe.ErrInFlight)
			must(t, x.Complete(ctx, answer("a")))
		}},
		"DoTx: full": {retrysafe.EffectsInTx, func(t *testing.T, w *world) {
			w.bank.store = func(retrysafe.Write) error { return retrysafe.ErrFull }
			_, err := w.doTx(ctx)
			fails(t, err)
		}},
		"DoTx: a commit that never arrived": {retrysafe.EffectsInTx, func(t *testing.T, w *world) {
			w.commit = func(context.Context, *memstore.Tx) error { return faultstore.ErrInjected }
			_, err := w.doTx(ctx)
			fails(t, err)
		}},
		"DoTx: a commit whose reply is lost": {retrysafe.EffectsInTx, func(t *testing.T, w *world) {
			w.commit = func(ctx context.Context, tx *memstore.Tx) error {
				return errors.Join(tx.Commit(ctx), faultstore.ErrInjected)
			}
			_, err := w.doTx(ctx)
			must(t, err)
		}},
		"DoTx: a commit of the function's own": {retrysafe.EffectsInTx, func(t *testing.T, w *world) {
			w.fn = func(ctx context.Context, tx *memstore.Tx) (retrysafe.Result, error) {
				return answer("a"), tx.Commit(ctx)
			}
			_, err := w.doTx(ctx)
			fails(t, err)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, c.effects)
				c.run(t, w)
				synctest.Wait()
				if n := w.clock.longer(beat); n != 0 {
					t.Errorf("%d timers of contexts are pending: %v", n, w.clock.pending)
				}
				for _, x := range w.runs {
					x.Stop()
				}
				w.store.mu.Lock()
				defer w.store.mu.Unlock()
				for i, ctx := range w.store.contexts {
					if ctx.Err() == nil {
						t.Errorf("context %d of %d goes on", i+1, len(w.store.contexts))
					}
				}
				for i, tx := range w.txs {
					if err := tx.Rollback(ctx); !errors.Is(err, retrysafe.ErrTxDone) {
						t.Errorf("transaction %d of %d is open: %v", i+1, len(w.txs), err)
					}
				}
			})
		})
	}
}

// The timer that ends an attempt at MaxRun is stopped when it is settled before.
func TestLastBeatIsStopped(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, retrysafe.EffectsKeyed)
		x := w.begins(t)
		time.Sleep(maxRun - time.Second)
		if n := w.clock.longer(0); n != 1 {
			t.Fatalf("%d timers are pending: %v", n, w.clock.pending)
		}
		must(t, x.Complete(t.Context(), answer("a")))
		if n := w.clock.longer(0); n != 0 {
			t.Errorf("%d timers are pending: %v", n, w.clock.pending)
		}
	})
}
