package tiered_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/internal/test/faultstore"
	"github.com/retrysafe/retrysafe/store/tiered"
)

// An engineBed is an engine over a cache.
type engineBed struct {
	*bed
	engine *retrysafe.Engine
	runs   int
}

func newEngineBed(t *testing.T, p retrysafe.Policy, opts tiered.Options) *engineBed {
	t.Helper()
	b := &engineBed{bed: newBed(t, opts)}
	engine, err := retrysafe.New(b.cache, &retrysafe.Options{Policy: p, StoreTimeout: time.Minute}) // on a machine that may be slow
	must(t, err)
	b.engine = engine
	return b
}

var call = retrysafe.Call{Ref: ref, Operation: "POST /payments", Fingerprint: retrysafe.Fingerprint{Alg: 1}}

// do calls the operation, which answers with the number of its run.
func (b *engineBed) do(c retrysafe.Call) (retrysafe.Outcome, error) {
	return b.engine.Do(b.t.Context(), c, func(context.Context, *retrysafe.Execution) (retrysafe.Result, error) {
		b.runs++
		return retrysafe.Result{Status: 201, Body: fmt.Append(nil, "run ", b.runs)}, nil
	})
}

// gets makes sure that a call gets an answer, and takes asks steps below.
func (b *engineBed) gets(when, body string, asks int) {
	b.t.Helper()
	b.count()
	out, err := b.do(call)
	if err != nil || string(out.Body) != body {
		b.t.Fatalf("%s: got %q and %v, want %q", when, out.Body, err, body)
	}
	if n := b.count(); n != asks {
		b.t.Fatalf("%s: it took %d steps below, want %d", when, n, asks)
	}
}

func TestReplayTakesNoStepBelow(t *testing.T) {
	t.Parallel()
	b := newEngineBed(t, retrysafe.Policy{}, tiered.Options{})
	b.gets("the first time", "run 1", 2)
	for range 3 {
		b.gets("a retry", "run 1", 0)
	}
	other := call
	other.Fingerprint = retrysafe.Fingerprint{Alg: 1, Sum: [32]byte{1}}
	if _, err := b.do(other); !errors.Is(err, retrysafe.ErrMismatch) {
		t.Errorf("a different request got %v, want ErrMismatch", err)
	}
	if out, err := b.engine.Peek(t.Context(), call); err != nil || string(out.Body) != "run 1" {
		t.Errorf("Peek: %v", err)
	}
	if out, err := b.engine.Attach(t.Context(), ref); err != nil || string(out.Body) != "run 1" {
		t.Errorf("Attach: %v", err)
	}
	if n := b.count(); n != 0 || b.runs != 1 {
		t.Errorf("%d steps below and %d runs, want none and one", n, b.runs)
	}
}

// An expired key runs again, or is gone, at the very time that the store says.
func TestExpiryIsRespected(t *testing.T) {
	t.Parallel()
	long := tiered.Options{MaxAge: 1000 * time.Hour}
	t.Run("renew", func(t *testing.T) {
		t.Parallel()
		b := newEngineBed(t, retrysafe.Policy{Retention: time.Hour}, long)
		b.gets("the first time", "run 1", 2)
		b.Advance(time.Hour - time.Minute)
		b.gets("before it expires", "run 1", 0)
		b.Advance(time.Minute - 1)
		b.gets("at the last moment", "run 1", 1)
		b.Advance(1)
		b.gets("expired", "run 2", 3)
		b.gets("a retry of the new operation", "run 2", 0)
	})
	t.Run("gone", func(t *testing.T) {
		t.Parallel()
		b := newEngineBed(t, retrysafe.Policy{Retention: time.Hour, OnExpired: retrysafe.ExpiredGone}, long)
		b.gets("the first time", "run 1", 2)
		b.Advance(time.Hour)
		if _, err := b.do(call); !errors.Is(err, retrysafe.ErrGone) {
			t.Errorf("got %v, want ErrGone", err)
		}
	})
	t.Run("renewed by another node", func(t *testing.T) {
		t.Parallel()
		b := newEngineBed(t, retrysafe.Policy{Retention: time.Hour}, long)
		b.gets("the first time", "run 1", 2)
		b.Advance(time.Hour)
		elsewhere, err := retrysafe.New(b.mem, nil)
		must(t, err)
		run, _, err := elsewhere.Begin(t.Context(), call)
		must(t, err)
		if _, err := b.do(call); !errors.Is(err, retrysafe.ErrInFlight) {
			t.Errorf("while another node runs it: got %v, want ErrInFlight", err)
		}
		must(t, run.Complete(t.Context(), retrysafe.Result{Status: 200, Body: []byte("elsewhere")}))
		b.gets("after another node ran it", "elsewhere", 1)
		b.gets("a retry", "elsewhere", 0)
	})
}

// What an operator erases or forgets through this handle is no longer answered from
// the cache.
func TestOperatorIsObeyedAtOnce(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		do   func(*retrysafe.Write)
		want string
		asks int
	}{
		"erase": {func(r *retrysafe.Write) {
			r.Result = &retrysafe.Result{Status: r.Result.Status, Omitted: true}
			r.Term = time.Hour
		}, "", 0},
		"forget": {func(r *retrysafe.Write) {
			r.State, r.Result, r.Term = retrysafe.StateExpired, nil, time.Hour
		}, "run 2", 3},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newEngineBed(t, retrysafe.Policy{}, tiered.Options{})
			b.gets("the first time", "run 1", 2)
			b.gets("a retry", "run 1", 0)
			r, err := b.cache.Load(t.Context(), ref)
			must(t, err)
			w := r.Update()
			c.do(&w)
			swap(t, b.cache, w)
			b.gets("after it", c.want, c.asks)
		})
	}
}

// A waiter reads from the store below that the attempt elsewhere has ended; the next
// retry is answered from the cache.
func TestWaiterLearnsTheAnswer(t *testing.T) {
	t.Parallel()
	b := newEngineBed(t, retrysafe.Policy{InFlight: retrysafe.InFlightWait, Wait: 30 * time.Second}, tiered.Options{})
	elsewhere, err := retrysafe.New(b.mem, nil)
	must(t, err)
	run, _, err := elsewhere.Begin(t.Context(), call)
	must(t, err)
	waits := make(chan struct{})
	b.steps.Plan(func(s faultstore.Step) faultstore.Fault {
		if s.Op == faultstore.Load && s.N == 1 {
			close(waits)
		}
		return faultstore.None
	})
	got := make(chan error, 1)
	go func() {
		out, err := b.do(call)
		if err == nil && string(out.Body) != "elsewhere" {
			err = fmt.Errorf("got %q", out.Body)
		}
		got <- err
	}()
	<-waits
	must(t, run.Complete(t.Context(), retrysafe.Result{Status: 200, Body: []byte("elsewhere")}))
	must(t, <-got)
	b.gets("a retry", "elsewhere", 0)
}

// A transaction goes past the cache. What it commits is seen at once, for what
// it may change is never answered from the cache.
func TestTransactionsNeedNoCache(t *testing.T) {
	t.Parallel()
	b := newEngineBed(t, retrysafe.Policy{Effects: retrysafe.EffectsInTx, Retention: time.Hour}, tiered.Options{MaxAge: 1000 * time.Hour})
	for _, answer := range []string{"one", "two"} { // the second under the expired key
		run, out, err := b.engine.Begin(t.Context(), call)
		if err != nil || out != nil {
			t.Fatalf("%s: Begin: %v, %v", answer, out, err)
		}
		tx, err := b.mem.Begin(t.Context())
		must(t, err)
		must(t, run.CompleteTx(t.Context(), tx, retrysafe.Result{Status: 201, Body: []byte(answer)}))
		must(t, tx.Commit(t.Context()))
		b.gets("after the commit", answer, 1)
		b.gets("a retry", answer, 0)
		b.Advance(time.Hour)
	}

	// The key has expired again, and is claimed in a transaction of its own.
	tx, err := b.mem.Begin(t.Context())
	must(t, err)
	defer tx.Rollback(t.Context())
	r, err := tx.Reserve(t.Context(), ref)
	must(t, err)
	next := settled("three", r)
	next.Overwrite, next.Owner, next.Attempt = true, owner(3), 1
	_, err = tx.Swap(t.Context(), next)
	must(t, err)
	if got, err := b.cache.Load(t.Context(), ref); err != nil || string(got.Result.Body) != "two" || !got.Due() {
		t.Errorf("beside the transaction: %q, %v", got.Result.Body, err)
	}
	must(t, tx.Commit(t.Context()))
	b.gets("after the commit", "three", 1)
}
