package tiered_test

import (
	"bytes"
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/store/memstore"
	"github.com/retrysafe/retrysafe/store/sealed"
	"github.com/retrysafe/retrysafe/store/tiered"
)

// A feed is a store in memory whose changes and loads a test can hold up.
type feed struct {
	*memstore.Store
	mu      sync.Mutex
	fails   error         // what Changes returns, if not nil
	loading chan struct{} // if not nil, a Load has read the record, and waits to return it
}

func (f *feed) Changes(ctx context.Context, cursor string) ([]retrysafe.Ref, string, error) {
	f.mu.Lock()
	err := f.fails
	f.mu.Unlock()
	if err != nil {
		return nil, "", err
	}
	return f.Store.Changes(ctx, cursor)
}

func (f *feed) fail(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.fails = err
}

func (f *feed) Load(ctx context.Context, ref retrysafe.Ref) (retrysafe.Record, error) {
	got, err := f.Store.Load(ctx, ref)
	f.mu.Lock()
	loading := f.loading
	f.mu.Unlock()
	if loading != nil {
		loading <- struct{}{}
		<-loading
	}
	return got, err
}

// followed calls test with a cache of an hour that follows a store, in virtual time.
func followed(t *testing.T, test func(t *testing.T, f *feed, cache tiered.Store, stop func())) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		f := &feed{Store: memstore.New(nil)}
		cache := tiered.New(f, &tiered.Options{MaxAge: time.Hour})
		ctx, cancel := context.WithCancel(t.Context())
		var ended sync.WaitGroup
		ended.Go(func() {
			if err := cache.Run(ctx); err != nil {
				t.Errorf("Run: %v", err)
			}
		})
		stop := func() { cancel(); ended.Wait() }
		defer stop()
		synctest.Wait()
		test(t, f, cache, stop)
	})
}

// announced changes the answer under ref on another node, as an operator does.
func announced(t *testing.T, s retrysafe.Store, body string) {
	t.Helper()
	r, err := s.Load(t.Context(), ref)
	must(t, err)
	w := settled(body, r)
	w.Announce = true
	swap(t, s, w)
}

// answers checks what a retry gets, and whether the cache knew it.
func answers(t *testing.T, when string, cache tiered.Store, body string, cached bool) {
	t.Helper()
	before := cache.Stats().Hits
	got, err := retry(t.Context(), cache, ref)
	if !errors.Is(err, retrysafe.ErrExists) || got.Result == nil || string(got.Result.Body) != body {
		t.Errorf("%s: a retry got %+v, %v, want %q", when, got.Result, err, body)
	}
	if hit := cache.Stats().Hits > before; hit != cached {
		t.Errorf("%s: the cache has answered: %t, want %t", when, hit, cached)
	}
}

// What an operator changes on another node is served within a second, however long the
// cache trusts its records.
func TestChangeOfAnotherNodeIsServedWithinASecond(t *testing.T) {
	t.Parallel()
	followed(t, func(t *testing.T, f *feed, cache tiered.Store, _ func()) {
		complete(t, cache, ref, "wrong")
		other := retrysafe.Ref{Scope: ref.Scope, Key: "other"}
		complete(t, cache, other, "kept")
		answers(t, "before", cache, "wrong", true)
		announced(t, f.Store, "right")
		time.Sleep(time.Second)
		answers(t, "after a second", cache, "right", false)
		answers(t, "again", cache, "right", true)
		if _, err := cache.Load(t.Context(), other); err != nil || cache.Stats().Hits != 3 {
			t.Errorf("the answers of other keys are dropped: %+v, %v", cache.Stats(), err)
		}
	})
}

// A record that is being read while its change arrives is not cached.
func TestChangeDuringAReadIsNotOverwritten(t *testing.T) {
	t.Parallel()
	followed(t, func(t *testing.T, f *feed, cache tiered.Store, _ func()) {
		complete(t, f.Store, ref, "wrong")
		loading := make(chan struct{})
		f.loading = loading
		var reading sync.WaitGroup
		reading.Go(func() {
			if got, err := cache.Load(t.Context(), ref); err != nil || string(got.Result.Body) != "wrong" {
				t.Errorf("the reader got %+v, %v", got.Result, err)
			}
		})
		<-loading // it has read the wrong answer
		f.mu.Lock()
		f.loading = nil
		f.mu.Unlock()
		announced(t, f.Store, "right")
		time.Sleep(time.Second)
		loading <- struct{}{}
		reading.Wait()
		answers(t, "after the read", cache, "right", false)
	})
}

// A cache that cannot read the changes asks the store below, and goes on where it was when
// it can.
func TestCacheThatCannotFollowDoesNotAnswer(t *testing.T) {
	t.Parallel()
	followed(t, func(t *testing.T, f *feed, cache tiered.Store, _ func()) {
		complete(t, cache, ref, "wrong")
		f.fail(errors.New("the line is cut"))
		time.Sleep(4 * time.Second)
		answers(t, "after 4 s", cache, "wrong", true)
		announced(t, f.Store, "right")
		time.Sleep(2 * time.Second)
		if got, err := cache.Load(t.Context(), ref); err != nil || string(got.Result.Body) != "right" {
			t.Errorf("after 6 s: Load = %+v, %v", got.Result, err)
		}
		answers(t, "after 6 s", cache, "right", false)
		answers(t, "again", cache, "right", false)
		if n := cache.Stats().Bypassed; n != 3 {
			t.Errorf("%d calls have bypassed the cache, want 3", n)
		}
		f.fail(nil)
		time.Sleep(time.Second)
		answers(t, "when it can read again", cache, "right", false) // the change of before has dropped it
		answers(t, "again", cache, "right", true)
	})
}

// If it is not known what was changed, everything may be.
func TestLostChangesDropEverything(t *testing.T) {
	t.Parallel()
	followed(t, func(t *testing.T, f *feed, cache tiered.Store, _ func()) {
		complete(t, cache, ref, "wrong")
		f.fail(retrysafe.ErrChangesLost)
		time.Sleep(time.Second)
		announced(t, f.Store, "right")
		f.fail(nil)
		time.Sleep(time.Second)
		answers(t, "after the gap", cache, "right", false)
		answers(t, "again", cache, "right", true)
	})
}

// A cache that has stopped following is not served, even if its records are young.
func TestCacheDoesNotAnswerAfterRun(t *testing.T) {
	t.Parallel()
	followed(t, func(t *testing.T, f *feed, cache tiered.Store, stop func()) {
		complete(t, cache, ref, "wrong")
		stop()
		announced(t, f.Store, "right")
		time.Sleep(6 * time.Second)
		answers(t, "6 s after the end of Run", cache, "right", false)
	})
}

// What was cached before Run may be outdated: it is read anew.
func TestRunDropsWhatWasCachedBefore(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := memstore.New(nil)
		cache := tiered.New(f, &tiered.Options{MaxAge: time.Hour})
		complete(t, cache, ref, "wrong")
		announced(t, f, "right")
		answers(t, "before Run", cache, "wrong", true)
		ctx, cancel := context.WithCancel(t.Context())
		var ended sync.WaitGroup
		ended.Go(func() { must(t, cache.Run(ctx)) })
		synctest.Wait()
		answers(t, "with Run", cache, "right", false)
		cancel()
		ended.Wait()
	})
}

// Over a store that cannot tell its changes the cache works as without Run.
func TestRunWithoutAFeed(t *testing.T) {
	t.Parallel()
	for name, below := range map[string]retrysafe.Store{
		"no feed":   plain{memstore.New(nil)},
		"no tables": &feed{Store: memstore.New(nil), fails: errors.ErrUnsupported},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cache := tiered.New(below, nil)
			complete(t, cache, ref, "paid")
			if err := cache.Run(t.Context()); !errors.Is(err, errors.ErrUnsupported) {
				t.Errorf("Run: got %v, want ErrUnsupported", err)
			}
			answers(t, "after Run", cache, "paid", true)
		})
	}
}

// A store that stops telling its changes, for its tables were taken away, leaves the cache
// as without Run.
func TestFeedThatEnds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := &feed{Store: memstore.New(nil)}
		cache := tiered.New(f, &tiered.Options{MaxAge: time.Hour})
		var ended sync.WaitGroup
		ended.Go(func() {
			if err := cache.Run(t.Context()); !errors.Is(err, errors.ErrUnsupported) {
				t.Errorf("Run: got %v, want ErrUnsupported", err)
			}
		})
		synctest.Wait()
		f.fail(errors.ErrUnsupported)
		ended.Wait()
		time.Sleep(time.Minute)
		complete(t, cache, ref, "paid")
		answers(t, "after Run", cache, "paid", true)
	})
}

// A sealing store tells the true names, which the store below does not know. A record
// that is gone has none, so that everything may have changed.
func TestChangesThroughASealingStore(t *testing.T) {
	t.Parallel()
	secret := func(s string) []byte { return bytes.Repeat([]byte(s), sealed.KeySize) }
	keys, err := sealed.NewKeyring(secret("i"), 1, map[uint32][]byte{1: secret("1")})
	must(t, err)
	synctest.Test(t, func(t *testing.T) {
		below := memstore.New(nil)
		there, err := sealed.New(below, keys)
		must(t, err)
		here, err := sealed.New(below, keys)
		must(t, err)
		cache := tiered.New(here, &tiered.Options{MaxAge: time.Hour})
		ctx, cancel := context.WithCancel(t.Context())
		var ended sync.WaitGroup
		ended.Go(func() { must(t, cache.Run(ctx)) })
		synctest.Wait()

		complete(t, cache, ref, "wrong")
		answers(t, "before", cache, "wrong", true)
		announced(t, there, "right")
		time.Sleep(time.Second)
		answers(t, "after a second", cache, "right", false)
		answers(t, "again", cache, "right", true)

		r, err := there.Load(ctx, ref)
		must(t, err)
		w := r.Update() // forgotten, and purged at once
		w.State, w.Result, w.Term, w.Announce = retrysafe.StateRetryable, nil, 0, true
		swap(t, there, w)
		if n, err := there.Purge(ctx, 10); n != 1 || err != nil {
			t.Fatalf("purged %d, %v", n, err)
		}
		time.Sleep(time.Second)
		if got, err := retry(ctx, cache, ref); err != nil || got.State != retrysafe.StateInProgress {
			t.Errorf("after it was forgotten: %v, %v", got.State, err)
		}
		cancel()
		ended.Wait()
	})
}
