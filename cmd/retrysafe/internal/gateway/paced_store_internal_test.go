package gateway

import (
	"context"
	"errors"
	"net/netip"
	"runtime"
	"strconv"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/gateway/admission"
	"github.com/retrysafe/retrysafe/store/memstore"
)

// A slowStore takes its time for each step, and counts the steps at work.
type slowStore struct {
	retrysafe.Store
	steps atomic.Int64
}

func (s *slowStore) Load(ctx context.Context, ref retrysafe.Ref) (retrysafe.Record, error) {
	s.steps.Add(1)
	defer s.steps.Add(-1)
	time.Sleep(10 * time.Millisecond)
	return s.Store.Load(ctx, ref)
}

// Many steps of one consumer take turns at the store while another consumer is at work,
// whose step waits for none of them; steps of no request, as the duties have them, wait
// for none either.
func TestStepsOfOneConsumerDoNotCrowdTheStore(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		below := &slowStore{Store: memstore.New(nil)}
		g := &Gateway{budget: admission.New(1<<30, 1<<30)}
		s := g.paced(below)
		load := func(ctx context.Context, tenant string) {
			if tenant != "" {
				ctx = &proxied{Context: ctx, consumer: admission.ConsumerOf(tenant, netip.Addr{})}
			}
			if _, err := s.Load(ctx, retrysafe.Ref{Scope: tenant, Key: "a key"}); !errors.Is(err, retrysafe.ErrNotFound) {
				t.Errorf("%q: %v", tenant, err)
			}
		}
		load(t.Context(), "honest")
		most := 8 * runtime.GOMAXPROCS(0)
		for range 10 * most {
			go load(t.Context(), "hostile")
		}
		time.Sleep(5 * time.Millisecond)
		if got := below.steps.Load(); got != int64(most) {
			t.Errorf("%d steps of the hostile tenant are at the store, want %d", got, most)
		}
		for _, other := range []string{"honest", ""} {
			began := time.Now()
			load(t.Context(), other)
			if took := time.Since(began); took != 10*time.Millisecond {
				t.Errorf("the step of %q took %v", other, took)
			}
		}
		time.Sleep(time.Second)
		if got := below.steps.Load(); got != 0 {
			t.Errorf("%d steps have not ended", got)
		}
	})
}

// A large answer that is to be stored does not wait for its turn until its lease or the
// step's own deadline is over, however many others wait.
func TestLargeAnswerIsStoredInTime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g := &Gateway{budget: admission.New(1<<30, 1<<30)}
		s := g.paced(memstore.New(nil))
		many, other := admission.ConsumerOf("many", netip.Addr{}), admission.ConsumerOf("other", netip.Addr{})
		if !g.budget.BeginStep(other) {
			t.Fatal("there is no turn")
		}
		defer g.budget.EndStep(other)
		ctx := &proxied{Context: t.Context(), consumer: many}
		r, err := s.Create(ctx, retrysafe.Write{Term: time.Minute, Record: retrysafe.Record{
			Ref: retrysafe.Ref{Scope: "many", Key: "key"}, Owner: retrysafe.Owner{1}, Attempt: 1,
			State: retrysafe.StateInProgress, Version: retrysafe.RecordVersion,
		}})
		if err != nil {
			t.Fatal(err)
		}
		for range 100 * runtime.GOMAXPROCS(0) { // each has its turn for 100 ms
			go g.budget.Turn(many, 1<<40, time.Minute)
		}
		synctest.Wait()
		w := r.Update()
		w.State, w.Term, w.Result = retrysafe.StateCompleted, time.Minute, &retrysafe.Result{Status: 200, Body: make([]byte, 2*largeAnswer)}
		began := time.Now()
		if _, err := s.Swap(ctx, w); err != nil {
			t.Error(err)
		}
		if took := time.Since(began); took > 250*time.Millisecond {
			t.Errorf("it was stored after %v", took)
		}
		time.Sleep(time.Minute)
	})
}

// The waits of a request leave its exchange all of the route's timeout, within the time that
// an attempt may take.
func TestWaitsForTurnsStayWithinTheAttempt(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ maxRun, timeout, want time.Duration }{
		{10 * time.Minute, 30 * time.Second, 1500 * time.Millisecond},
		{10 * time.Minute, 9 * time.Minute, 5 * time.Second},
		{10 * time.Second, 9 * time.Second, 450 * time.Millisecond},
		{time.Second, 990 * time.Millisecond, 5 * time.Millisecond},
	} {
		rt := &route{timeout: c.timeout, policy: retrysafe.Policy{MaxRun: c.maxRun}}
		if got := rt.turnWait(); got != c.want || 2*got > c.maxRun-c.timeout {
			t.Errorf("MaxRun %v, timeout %v: a request waits up to %v, want %v", c.maxRun, c.timeout, got, c.want)
		}
	}
}

// Each step gives its turn back, so that a consumer never waits for steps that have ended.
func TestStepsGiveTheirTurnsBack(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g := &Gateway{budget: admission.New(1<<30, 1<<30)}
		s := g.paced(memstore.New(nil))
		of := func(tenant string) context.Context {
			return &proxied{Context: t.Context(), consumer: admission.ConsumerOf(tenant, netip.Addr{})}
		}
		_, _ = s.Load(of("another"), retrysafe.Ref{Scope: "another", Key: "key"})
		began := time.Now()
		for i := range 20 * runtime.GOMAXPROCS(0) {
			w := retrysafe.Write{Term: time.Minute, Record: retrysafe.Record{
				Ref: retrysafe.Ref{Scope: "many", Key: strconv.Itoa(i)}, Owner: retrysafe.Owner{1}, Attempt: 1,
				State: retrysafe.StateInProgress, Version: retrysafe.RecordVersion,
			}}
			r, err := s.Create(of("many"), w)
			for _, size := range []int{1, 2 * largeAnswer} {
				if err == nil {
					w = r.Update()
					w.Term = time.Minute
					if size > largeAnswer {
						w.State, w.Result = retrysafe.StateCompleted, &retrysafe.Result{Status: 200, Body: make([]byte, size)}
					}
					r, err = s.Swap(of("many"), w)
				}
			}
			if err == nil {
				_, err = s.Load(of("many"), w.Ref)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		// Large ones have a rate, 8 ms for each, and as many turns as half of the processors:
		// 0.3 s here, and 0.5 s with three. A turn that was not given back would end after
		// 100 ms, which makes it seconds.
		if took := time.Since(began); took > 700*time.Millisecond {
			t.Errorf("one step after the other waited for %v", took)
		}
	})
}

// What a store can do beside its steps it can do behind the turns too, and nothing more.
func TestPacedStoreIsAsCapable(t *testing.T) {
	t.Parallel()
	g := &Gateway{budget: admission.New(1<<30, 1<<30)}
	counting := g.paced(memstore.New(nil))
	for i := range 3 {
		if _, err := counting.Create(t.Context(), retrysafe.Write{Record: retrysafe.Record{
			Ref: retrysafe.Ref{Scope: "a", Key: strconv.Itoa(i)}, Owner: retrysafe.Owner{1}, State: retrysafe.StateInProgress,
		}, Term: time.Minute}); err != nil {
			t.Fatal(err)
		}
	}
	if n, err := counting.(retrysafe.Counter).Count(t.Context(), "a"); n != 3 || err != nil {
		t.Errorf("counted %d, %v", n, err)
	}
	if _, cursor, err := counting.(retrysafe.ChangeFeed).Changes(t.Context(), ""); cursor == "" || err != nil {
		t.Errorf("changes of a store that has a feed: %q, %v", cursor, err)
	}
	plain := g.paced(&slowStore{Store: memstore.New(nil)})
	if _, ok := plain.(retrysafe.Counter); ok {
		t.Error("a store that cannot count says that it can")
	}
	if _, _, err := plain.(retrysafe.ChangeFeed).Changes(t.Context(), ""); !errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("changes of a store that has no feed: %v", err)
	}
}
