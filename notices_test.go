package retrysafe_test

import (
	"context"
	"errors"
	"io"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/internal/test/faultstore"
)

// However an attempt fails, the record says why.
func TestRecordSaysWhyItsAttemptFailed(t *testing.T) {
	t.Parallel()
	why := errors.New("out of coffee")
	for name, fail := range map[string]func(context.Context, *retrysafe.Execution) error{
		"released":    func(ctx context.Context, x *retrysafe.Execution) error { return x.Release(ctx, why) },
		"quarantined": func(ctx context.Context, x *retrysafe.Execution) error { return x.Quarantine(ctx, why) },
		"failed":      func(ctx context.Context, x *retrysafe.Execution) error { return x.Fail(ctx, why) },
		"not executed": func(ctx context.Context, x *retrysafe.Execution) error {
			return x.Fail(ctx, retrysafe.NotExecuted(why))
		},
	} {
		b := setup(t, retrysafe.Policy{})
		must(t, fail(t.Context(), b.begins(t)))
		if got := b.state(t).Reason; !strings.Contains(got, "out of coffee") {
			t.Errorf("%s: the reason is %q", name, got)
		}
	}
	synctest.Test(t, func(t *testing.T) {
		b := setup(t, retrysafe.Policy{})
		x := b.begins(t)
		defer x.Stop()
		time.Sleep(time.Hour)
		if r := b.state(t); r.State != retrysafe.StateUnknown || r.Reason == "" || b.saw(retrysafe.EventQuarantined) != 1 {
			t.Errorf("an attempt that runs too long is %s, reason %q, observed %v", r.State, r.Reason, b.events)
		}
	})
}

// A call that waits in the process of the attempt is told of its end, however it ends, and loads nothing more.
func TestWaitersAreTold(t *testing.T) {
	t.Parallel()
	const took = 61*time.Second + 77*time.Millisecond
	keyed := retrysafe.EffectsKeyed
	for name, c := range map[string]struct {
		effects retrysafe.Effects
		run     func(*testing.T, context.Context, *bank)
	}{
		"completed": {keyed, func(_ *testing.T, ctx context.Context, b *bank) {
			_, _ = b.Do(ctx, call(), func(context.Context, *retrysafe.Execution) (retrysafe.Result, error) {
				time.Sleep(took)
				return answer("a"), nil
			})
		}},
		"quarantined": {keyed, func(_ *testing.T, ctx context.Context, b *bank) {
			_, _ = b.Do(ctx, call(), func(ctx context.Context, x *retrysafe.Execution) (retrysafe.Result, error) {
				time.Sleep(took)
				return retrysafe.Result{}, errors.Join(io.EOF, x.Quarantine(ctx, io.EOF))
			})
		}},
		"run too long": {keyed, func(_ *testing.T, ctx context.Context, b *bank) {
			_, _ = b.Do(ctx, call(), func(context.Context, *retrysafe.Execution) (retrysafe.Result, error) {
				time.Sleep(2 * took)
				return answer("a"), nil
			})
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				p := retrysafe.Policy{Effects: c.effects, Lease: 30 * time.Second, MaxRun: time.Hour, InFlight: retrysafe.InFlightWait, Wait: time.Hour}
				if name == "run too long" {
					p.MaxRun = took
				}
				b := newBank(t, p)
				var before atomic.Int64
				time.AfterFunc(took-1, func() { before.Store(int64(b.fault.Count(faultstore.Load))) })
				var running sync.WaitGroup
				defer running.Wait()
				running.Go(func() { c.run(t, t.Context(), b) })
				synctest.Wait()
				x, _, err := b.Begin(t.Context(), call())
				if loads, after := int(before.Load()), b.fault.Count(faultstore.Load); loads == 0 || after != loads {
					t.Errorf("%d loads while the attempt ran and %d after it: %v", loads, after-loads, err)
				}
				if x != nil {
					x.Stop()
				}
			})
		})
	}
}

// Accept stores nothing for a client that has gone.
func TestAcceptOfAClientThatHasGone(t *testing.T) {
	t.Parallel()
	b := setup(t, retrysafe.Policy{})
	ctx, hangUp := context.WithCancel(t.Context())
	hangUp()
	if _, err := b.Accept(ctx, call(), nil); !errors.Is(err, context.Canceled) {
		t.Errorf("Accept = %v", err)
	}
	if _, err := b.mem.Load(t.Context(), ref); !errors.Is(err, retrysafe.ErrNotFound) {
		t.Errorf("Load = %v", err)
	}
}

// DoJSON returns the error of its function, and one of a result that is no JSON. Neither is stored as an answer.
func TestDoJSONStoresNoError(t *testing.T) {
	t.Parallel()
	b := setup(t, retrysafe.Policy{})
	c := call()
	_, err := retrysafe.DoJSON(t.Context(), b.Engine, c, 1, func(context.Context, *retrysafe.Execution) (int, error) {
		return 0, retrysafe.NotExecuted(io.EOF)
	})
	if r := b.state(t); !errors.Is(err, io.EOF) || r.State != retrysafe.StateRetryable {
		t.Errorf("DoJSON = %v, the record is %s", err, r.State)
	}
	_, err = retrysafe.DoJSON(t.Context(), b.Engine, c, 1, func(context.Context, *retrysafe.Execution) (any, error) { return make(chan int), nil })
	if r := b.state(t); err == nil || !strings.Contains(err.Error(), "no JSON") || r.State != retrysafe.StateUnknown {
		t.Errorf("DoJSON = %v, the record is %s", err, r.State)
	}
}

// An hour is the shortest retention without a caveat.
func TestShortRetentionIsACaveat(t *testing.T) {
	t.Parallel()
	for retention, want := range map[time.Duration]int{time.Hour - 1: 1, time.Hour: 0} {
		if c := (retrysafe.Policy{Retention: retention}).Caveats(); len(c) != want {
			t.Errorf("%v: %q", retention, c)
		}
	}
}

// Evidence needs an answer with a status of three digits.
func TestEvidenceNeedsAStatus(t *testing.T) {
	t.Parallel()
	for status, ok := range map[int]bool{0: false, 99: false, 100: true, 999: true, 1000: false} {
		b := setup(t, retrysafe.Policy{})
		must(t, b.begins(t).Quarantine(t.Context(), io.EOF))
		v := retrysafe.Evidence{Finding: retrysafe.FindingHappened, By: "a person", Result: retrysafe.Result{Status: status}}
		if _, err := retrysafe.DecideEvidence(b.state(t), v, retrysafe.Recheck{}); (err == nil) != ok {
			t.Errorf("a status of %d: %v", status, err)
		}
	}
}
