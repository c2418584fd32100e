package httpkey_test

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/httpkey"
	"github.com/retrysafe/retrysafe/internal/test/faultstore"
)

// A process that died leaves a record whose lease runs out.
func TestW24_CrashIsExplainedByEffectMode(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		policy retrysafe.Policy
		check  func(*testing.T, *bundle)
	}{
		"unprotected": {retrysafe.Policy{}, func(t *testing.T, b *bundle) {
			got := b.post(t, key, `{"a":1}`)
			if p := got.refused(t, 409, "outcome-unknown"); p.SafeNewKey || !p.Retryable || got.header.Get("Retry-After") == "" {
				t.Errorf("the problem is %+v, %v", p, got.header)
			}
			b.post(t, key, `{"a":2}`).refused(t, 422, "key-reused")
			time.Sleep(100 * time.Hour) // time alone never makes it run again
			b.post(t, key, `{"a":1}`).refused(t, 409, "outcome-unknown")
			b.ranTimes(t, 0)
		}},
		"keyed": {retrysafe.Policy{Effects: retrysafe.EffectsKeyed, Lapse: retrysafe.LapseRerun}, func(t *testing.T, b *bundle) {
			b.post(t, key, `{"a":1}`).ran(t, 1, false)
			b.post(t, key, `{"a":1}`).ran(t, 1, true)
		}},
		"in a transaction": {retrysafe.Policy{Effects: retrysafe.EffectsInTx}, func(t *testing.T, b *bundle) {
			b.post(t, key, `{"a":1}`).ran(t, 1, false)
		}},
		"failed": {retrysafe.Policy{Lapse: retrysafe.LapseFail}, func(t *testing.T, b *bundle) {
			if got := b.look(t, key); got.status != 500 || got.header.Get("Idempotent-Replayed") != "true" {
				t.Errorf("before anybody has stored it the status is %d %s, want the 500", got.status, got.body)
			}
			for range 2 {
				if got := b.post(t, key, `{"a":1}`); got.status != 500 || got.header.Get("Idempotent-Replayed") != "true" {
					t.Errorf("got %d %s, want the stored 500", got.status, got.body)
				}
			}
			b.ranTimes(t, 0)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				b := setup(t, withPolicy(c.policy))
				if c.policy.Effects == retrysafe.EffectsInTx {
					b.Handler = b.guard.Handler(b.counted(func(w http.ResponseWriter, r *http.Request) {
						tx, err := b.mem.Begin(r.Context())
						must(t, err)
						b.created(w, r)
						must(t, httpkey.CompleteTx(r.Context(), w, tx))
						must(t, tx.Commit(r.Context()))
					}))
					b.post(t, other, `{}`) // it is seen to complete in a transaction
				}
				b.plant(t, func(r *retrysafe.Write) { r.Term, r.Lapse = 30*time.Second, b.engine.Policy().Lapse })
				b.post(t, key, `{"a":1}`).refused(t, 409, "in-flight")
				time.Sleep(31 * time.Second)
				c.check(t, b)
			})
		})
	}
}

func TestW24_EveryAttemptCallsWithTheSameDownstreamKey(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var keys []string
		b := setup(t, withPolicy(retrysafe.Policy{Effects: retrysafe.EffectsKeyed, Lapse: retrysafe.LapseRerun}))
		b.Handler = b.guard.Handler(b.counted(func(w http.ResponseWriter, r *http.Request) {
			x, ok := retrysafe.FromContext(r.Context())
			if !ok {
				t.Error("no execution in the handler's context")
				return
			}
			keys = append(keys, x.DownstreamKey("charge"))
			if x.Attempt() < 3 {
				w.WriteHeader(http.StatusBadGateway)
				return
			}
			b.created(w, r)
		}))
		for range 2 {
			if got := b.post(t, key, `{}`); got.status != http.StatusBadGateway {
				t.Fatalf("got %d %s", got.status, got.body)
			}
		}
		b.post(t, key, `{}`).ran(t, 3, false)
		if len(keys) != 3 || keys[0] != keys[1] || keys[1] != keys[2] {
			t.Errorf("downstream keys are %q", keys)
		}
	})
}

// A node executes the effect and dies before it can say so; another one meets
// the retry.
func TestW31_CrashAfterTheEffect(t *testing.T) {
	t.Parallel()
	for _, effects := range []retrysafe.Effects{retrysafe.EffectsUnprotected, retrysafe.EffectsKeyed} {
		synctest.Test(t, func(t *testing.T) {
			policy := retrysafe.Policy{Effects: effects}
			if effects == retrysafe.EffectsKeyed {
				policy.Lapse = retrysafe.LapseRerun
			}
			calls, charged := 0, map[string]int{} // what the provider did, by the key that it honours
			pay := func(w http.ResponseWriter, r *http.Request) {
				x, _ := retrysafe.FromContext(r.Context())
				calls++
				charged[x.DownstreamKey("charge")] = 1
				w.WriteHeader(http.StatusCreated)
			}
			dying := setup(t, withPolicy(policy))
			dying.Handler = dying.guard.Handler(dying.counted(func(w http.ResponseWriter, r *http.Request) {
				pay(w, r)
				dying.fault.Plan(faultstore.FailAll(faultstore.LoseRequest)) // for ever
			}))
			dying.post(t, key, `{}`).refused(t, 503, "outcome-pending")

			e, err := retrysafe.New(dying.mem, &retrysafe.Options{Policy: policy})
			must(t, err)
			g, err := httpkey.New(e, tenant, &httpkey.Options{Logger: discard})
			must(t, err)
			living := &bundle{Handler: g.Handler(http.HandlerFunc(pay))}
			living.post(t, key, `{}`).refused(t, 409, "in-flight")
			time.Sleep(31 * time.Second)
			got := living.post(t, key, `{}`)
			if effects == retrysafe.EffectsUnprotected {
				got.refused(t, 409, "outcome-unknown")
				if calls != 1 {
					t.Errorf("the provider was called %d times", calls)
				}
				return
			}
			if got.status != http.StatusCreated || calls != 2 || len(charged) != 1 {
				t.Errorf("got %d %s after %d calls under %d keys, want a second call under the same key", got.status, got.body, calls, len(charged))
			}
		})
	}
}

func TestW25_HeartbeatKeepsALongRequest(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := setup(t, withPolicy(retrysafe.Policy{Lease: 10 * time.Second}))
		b.Handler = b.guard.Handler(b.counted(func(w http.ResponseWriter, r *http.Request) {
			time.Sleep(5 * time.Minute)
			if err := r.Context().Err(); err != nil {
				t.Errorf("the handler's context ended: %v", err)
			}
			b.created(w, r)
		}))
		var wg sync.WaitGroup
		wg.Go(func() { b.post(t, key, `{}`).ran(t, 1, false) })
		for range 10 {
			time.Sleep(29 * time.Second)
			b.post(t, key, `{}`).refused(t, 409, "in-flight")
		}
		wg.Wait()
		b.post(t, key, `{}`).ran(t, 1, true)
	})
}

// Retry-After follows how long the operation takes, never the whole lease.
func TestRetryAfterFollowsTheOperation(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := setup(t, withPolicy(retrysafe.Policy{Lease: time.Hour}))
		b.Handler = b.guard.Handler(b.counted(func(w http.ResponseWriter, r *http.Request) {
			time.Sleep(7 * time.Second)
			b.created(w, r)
		}))
		b.post(t, other, `{}`).ran(t, 1, false)
		var wg sync.WaitGroup
		wg.Go(func() { b.post(t, key, `{}`).ran(t, 2, false) })
		synctest.Wait()
		if got := b.post(t, key, `{}`).header.Get("Retry-After"); got != "7" {
			t.Errorf("Retry-After is %q, want 7", got)
		}
		wg.Wait()
	})
}

// Whatever a node believes the time to be, expiry is the store's.
func TestW26_ExpiryIsTheStoresClock(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		skew := 5 * time.Hour
		b := setup(t, func(c *config) { c.store.Now = func() time.Time { return time.Now().Add(skew) } })
		got := b.post(t, key, `{}`)
		want := time.Now().Add(skew + 24*time.Hour).UTC().Format(http.TimeFormat)
		if got.header.Get("Idempotency-Expires") != want {
			t.Errorf("expires %q, want %q", got.header.Get("Idempotency-Expires"), want)
		}
		skew = -5 * time.Hour // it jumps back: nothing expires early, nothing runs twice
		b.post(t, key, `{}`).ran(t, 1, true)
	})
}

func TestW30_HandlerThatRunsTooLongIsSetAside(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := setup(t, withPolicy(retrysafe.Policy{Lease: 10 * time.Second, MaxRun: time.Minute}))
		var told atomic.Bool
		b.Handler = b.guard.Handler(b.counted(func(w http.ResponseWriter, r *http.Request) {
			<-r.Context().Done()
			told.Store(true)
			time.Sleep(time.Minute) // and it does not care
			b.created(w, r)
		}))
		var wg sync.WaitGroup
		wg.Go(func() { b.post(t, key, `{}`).ran(t, 1, false) })
		time.Sleep(61 * time.Second)
		if !told.Load() {
			t.Error("the handler was not told to stop")
		}
		b.post(t, key, `{}`).refused(t, 409, "outcome-unknown")
		wg.Wait() // it came to an answer after all, and that answer stands
		b.post(t, key, `{}`).ran(t, 1, true)
		b.ranTimes(t, 1)
	})
}

func TestW30_LateAnswerOfARerunIsNotShown(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := setup(t, withPolicy(retrysafe.Policy{Effects: retrysafe.EffectsKeyed, MaxRun: time.Minute}))
		b.Handler = b.guard.Handler(b.counted(func(w http.ResponseWriter, r *http.Request) {
			n := b.runs.Load()
			if n == 1 {
				time.Sleep(5 * time.Minute)
			}
			w.WriteHeader(http.StatusCreated)
			fmt.Fprintf(w, `{"run":%d}`, n)
		}))
		var wg sync.WaitGroup
		wg.Go(func() { b.post(t, key, `{}`).ran(t, 2, true) }) // the stored answer, not its own
		time.Sleep(2 * time.Minute)
		b.post(t, key, `{}`).ran(t, 2, false)
		wg.Wait()
	})
}

func TestW44_ZombieGetsTheStoredAnswer(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := setup(t, withPolicy(retrysafe.Policy{Effects: retrysafe.EffectsKeyed, Lapse: retrysafe.LapseRerun, Lease: 10 * time.Second}))
		b.Handler = b.guard.Handler(b.counted(func(w http.ResponseWriter, r *http.Request) {
			n := b.runs.Load()
			if n == 1 {
				time.Sleep(time.Minute)
			}
			w.WriteHeader(http.StatusCreated)
			fmt.Fprintf(w, `{"run":%d}`, n)
		}))
		b.fault.Plan(func(s faultstore.Step) faultstore.Fault {
			if s.Op == faultstore.Swap && s.Write.Attempt == 1 && s.Write.State == retrysafe.StateInProgress && !s.Write.Overwrite {
				return faultstore.LoseRequest // its heartbeats do not get through
			}
			return faultstore.None
		})
		var wg sync.WaitGroup
		var late *response
		wg.Go(func() { late = b.post(t, key, `{}`) })
		time.Sleep(11 * time.Second)
		b.post(t, key, `{}`).ran(t, 2, false)
		wg.Wait()
		late.ran(t, 2, true)
	})
}

func TestW44_ZombieWhoseRecordIsUnknownOrGone(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		change func(*testing.T, *bundle)
		status int
		code   string
	}{
		"taken over": {func(t *testing.T, b *bundle) { b.take(t, retrysafe.StateInProgress) }, 409, "in-flight"},
		"forgotten": {func(t *testing.T, b *bundle) {
			b.take(t, retrysafe.StateRetryable)
			time.Sleep(48 * time.Hour)
			_, err := b.mem.Purge(t.Context(), 10)
			must(t, err)
		}, 409, "outcome-unknown"},
		"released by an operator": {func(t *testing.T, b *bundle) { b.take(t, retrysafe.StateRetryable) }, 409, "outcome-unknown"},
		"forgotten, and used for another request": {func(t *testing.T, b *bundle) {
			b.take(t, retrysafe.StateRetryable)
			time.Sleep(48 * time.Hour)
			_, err := b.mem.Purge(t.Context(), 10)
			must(t, err)
			_, err = b.engine.Do(t.Context(), retrysafe.Call{Ref: retrysafe.Ref{Scope: "acme", Key: key}, Operation: payments, Fingerprint: retrysafe.Fingerprint{Alg: 2}},
				func(context.Context, *retrysafe.Execution) (retrysafe.Result, error) {
					return retrysafe.Result{Status: 201}, nil
				})
			must(t, err)
		}, 409, "outcome-unknown"},
		"store down": {func(t *testing.T, b *bundle) {
			b.take(t, retrysafe.StateInProgress)
			b.fault.Plan(func(s faultstore.Step) faultstore.Fault {
				if s.Op == faultstore.Load {
					return faultstore.LoseRequest
				}
				return faultstore.None
			})
		}, 503, "outcome-pending"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				b := setup(t, withPolicy(retrysafe.Policy{Lease: 100 * time.Hour, MaxRun: 1000 * time.Hour}))
				b.Handler = b.guard.Handler(b.counted(func(w http.ResponseWriter, r *http.Request) {
					c.change(t, b)
					b.created(w, r)
				}))
				got := b.post(t, key, `{}`)
				p := got.refused(t, c.status, c.code)
				if p.SafeNewKey || got.header.Get("Retry-After") == "" {
					t.Errorf("the problem is %+v, %v", p, got.header)
				}
			})
		})
	}
}

// take hands the record to another owner, as an operator or another node would.
func (b *bundle) take(t *testing.T, s retrysafe.State) {
	t.Helper()
	r := b.state(t).Update()
	r.State, r.Owner, r.Overwrite, r.Attempt, r.Term = s, retrysafe.Owner{0xff}, true, 2, time.Hour
	_, err := b.mem.Swap(t.Context(), r)
	must(t, err)
}

func TestW53_RetentionCountsFromTheAnswer(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := setup(t, withPolicy(retrysafe.Policy{Retention: 2 * time.Hour, MaxRun: 24 * time.Hour}))
		b.Handler = b.guard.Handler(b.counted(func(w http.ResponseWriter, r *http.Request) {
			time.Sleep(10 * time.Hour) // longer than answers are kept
			b.created(w, r)
		}))
		var wg sync.WaitGroup
		wg.Go(func() { b.post(t, key, `{}`).ran(t, 1, false) })
		time.Sleep(9 * time.Hour)
		if n, err := b.mem.Purge(t.Context(), 10); n != 0 || err != nil {
			t.Errorf("Purge = %d, %v: what is in flight never expires", n, err)
		}
		b.post(t, key, `{}`).refused(t, 409, "in-flight")
		wg.Wait()
		time.Sleep(119 * time.Minute)
		b.post(t, key, `{}`).ran(t, 1, true)
	})
}

func TestW53_HandlerMaySayHowLong(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := setup(t)
		b.Handler = b.guard.Handler(b.counted(func(w http.ResponseWriter, r *http.Request) {
			x, _ := retrysafe.FromContext(r.Context())
			x.Retain(time.Hour)
			b.created(w, r)
		}))
		got := b.post(t, key, `{}`)
		want := time.Now().Add(time.Hour).UTC().Format(http.TimeFormat)
		if got.header.Get("Idempotency-Expires") != want {
			t.Errorf("expires %q, want %q", got.header.Get("Idempotency-Expires"), want)
		}
		time.Sleep(59 * time.Minute)
		b.post(t, key, `{}`).same(t, got)
		time.Sleep(time.Hour)
		b.post(t, key, `{}`).ran(t, 2, false)
	})
}
