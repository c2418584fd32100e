package gateway_test

import (
	"context"
	"net/http"
	"sync"
	"testing"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/gateway"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/gateway/config"
	"github.com/retrysafe/retrysafe/store/memstore"
)

// occupied is a gateway whose upstream holds one request, and how to let it go.
func occupied(t *testing.T, change ...func(*bundle)) (b *bundle, release func()) {
	t.Helper()
	started, hold := make(chan struct{}), make(chan struct{})
	let := sync.OnceFunc(func() { close(hold) })
	b = setup(t, append(change, answering(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("X-Slow") != "" {
			close(started)
			<-hold
		}
		created(w, r)
	}))...)
	done := make(chan *response, 1)
	slow := b.request(t, http.MethodPost, "/payments", `{}`, with("X-Slow", "yes"), with("Idempotency-Key", key+"slow"))
	go func() {
		res, err := b.client.Do(slow)
		if err == nil {
			res.Body.Close()
		}
		close(done)
	}()
	<-started
	t.Cleanup(func() {
		let()
		<-done
	})
	return b, func() {
		let()
		<-done
	}
}

// A route that has reached its concurrency limit refuses new requests before anything
// is reserved; a retry of an answered request gets its answer.
func TestConcurrencyOfARoute(t *testing.T) {
	t.Parallel()
	one := func(s *config.Settings) { s.Concurrency = 1 }
	b := setup(t, withRoutes(route("POST /payments", one)))
	b.post(t, "/payments", key, `{}`).is(t, 201, `{"got":{}}`, false)
	store := b.store

	b, release := occupied(t, over(store), withRoutes(route("POST /payments", one), route("POST /others", one)))
	got := b.post(t, "/payments", other, `{}`)
	got.refused(t, http.StatusServiceUnavailable, "upstream-busy")
	if got.header.Get("Retry-After") != "1" {
		t.Errorf("told %v", got.header)
	}
	if _, err := store.Load(t.Context(), retrysafe.Ref{Scope: "header:acme", Key: other}); err == nil {
		t.Error("a refused request has left a record")
	}
	b.post(t, "/payments", key, `{}`).is(t, 201, `{"got":{}}`, true)
	b.post(t, "/payments", key+"slow", `{}`).refused(t, http.StatusConflict, "in-flight")
	b.post(t, "/payments", key, `[]`).refused(t, http.StatusUnprocessableEntity, "key-reused")
	b.post(t, "/others", key+"o", `{}`).is(t, 201, `{"got":{}}`, false)
	b.upstream.called(t, 2)
	release()
	b.post(t, "/payments", other, `{}`).is(t, 201, `{"got":{}}`, false)
}

// A tenant that has all its requests at the upstream leaves room for the others.
func TestW78_InFlightOfATenant(t *testing.T) {
	t.Parallel()
	b, release := occupied(t, func(b *bundle) { b.config.Limits.InFlight = 1 })
	got := b.post(t, "/keyed", key, `{}`)
	got.refused(t, http.StatusTooManyRequests, "too-many-in-flight")
	if got.header.Get("Retry-After") != "1" {
		t.Errorf("told %v", got.header)
	}
	b.post(t, "/keyed", key, `{}`, with("X-Tenant-Id", "rival")).is(t, 201, `{"got":{}}`, false)
	b.get(t, "/things")
	release()
	b.post(t, "/keyed", key, `{}`).is(t, 201, `{"got":{}}`, false)
	b.upstream.called(t, 4)
}

// meddler is a store that calls a function of the test first.
type meddler struct {
	retrysafe.Store
	before func(retrysafe.Write) // each Create
}

func (m *meddler) Create(ctx context.Context, w retrysafe.Write) (retrysafe.Record, error) {
	m.before(w)
	return m.Store.Create(context.WithoutCancel(ctx), w) // before may have taken all of its time
}

// A request that reserves its key and then finds the limit reached releases the key;
// nothing of it runs.
func TestLastPlaceIsLost(t *testing.T) {
	t.Parallel()
	for name, limit := range map[string]func(*bundle){
		"upstream-busy":      withRoutes(route("POST /payments", func(s *config.Settings) { s.Concurrency = 1 })),
		"too-many-in-flight": func(b *bundle) { b.config.Limits.InFlight = 1 },
	} {
		started, hold, done := make(chan struct{}), make(chan struct{}), make(chan struct{})
		m := &meddler{Store: memstore.New(nil)}
		b := setup(t, over(m), limit, answering(func(w http.ResponseWriter, r *http.Request) {
			if r.Header.Get("X-Slow") != "" {
				close(started)
				<-hold
			}
			created(w, r)
		}))
		overtake := sync.OnceFunc(func() { // between the guard's look and the reservation
			slow := b.request(t, http.MethodPost, "/payments", `{}`, with("X-Slow", "yes"), with("Idempotency-Key", other))
			go func() {
				defer close(done)
				if res, err := b.client.Do(slow); err == nil {
					res.Body.Close()
				}
			}()
			<-started
		})
		m.before = func(r retrysafe.Write) {
			if r.Key == key {
				overtake()
			}
		}
		got := b.post(t, "/payments", key, `{}`)
		x := b.last(t)
		close(hold)
		<-done
		if x.Handling != gateway.HandlingRefused || x.Code != name || x.Attempt != 0 {
			t.Errorf("told of %+v", x)
		}
		got.refused(t, map[string]int{"upstream-busy": 503, "too-many-in-flight": 429}[name], name)
		b.is(t, key, retrysafe.StateRetryable)
		b.upstream.called(t, 1)
		b.post(t, "/payments", key, `{}`).is(t, 201, `{"got":{}}`, false)
	}
}

// Requests without a key take places too, where none is required.
func TestConcurrencyWithoutKeys(t *testing.T) {
	t.Parallel()
	b, release := occupied(t, withRoutes(route("POST /payments", func(s *config.Settings) { s.Required, s.Concurrency = false, 1 })))
	b.do(t, b.request(t, http.MethodPost, "/payments", `{}`)).refused(t, http.StatusServiceUnavailable, "upstream-busy")
	release()
	b.do(t, b.request(t, http.MethodPost, "/payments", `{}`)).is(t, 201, `{"got":{}}`, false)
}

// Many at once never exceed the bound, and each key has run once in the end.
func TestConcurrencyIsNeverExceeded(t *testing.T) {
	t.Parallel()
	const places = 3
	var mu sync.Mutex
	now, most := 0, 0
	b := setup(t, withRoutes(route("POST /payments", func(s *config.Settings) { s.Concurrency = places })), answering(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		now++
		most = max(most, now)
		mu.Unlock()
		created(w, r)
		mu.Lock()
		now--
		mu.Unlock()
	}))
	var all sync.WaitGroup
	for i := range 40 {
		all.Go(func() {
			for {
				got := b.post(t, "/payments", key+string(rune('a'+i%26))+string(rune('a'+i/26)), `{}`)
				if got.status != http.StatusServiceUnavailable {
					got.is(t, 201, `{"got":{}}`, false)
					return
				}
			}
		})
	}
	all.Wait()
	b.upstream.called(t, 40)
	if most > places {
		t.Errorf("%d were at the upstream at once, want at most %d", most, places)
	}
}

// The limits of new keys are the guard's own.
func TestW78_NewKeysOfATenant(t *testing.T) {
	t.Parallel()
	b := setup(t, func(b *bundle) { b.config.Limits = config.Limits{NewKeysPerSecond: 0.001, NewKeysBurst: 1} })
	b.post(t, "/payments", key, `{}`).is(t, 201, `{"got":{}}`, false)
	b.post(t, "/keyed", other, `{}`).refused(t, http.StatusTooManyRequests, "too-many-new-keys")
	b.post(t, "/payments", key, `{}`).is(t, 201, `{"got":{}}`, true)
	b.post(t, "/payments", other, `{}`, with("X-Tenant-Id", "rival")).is(t, 201, `{"got":{}}`, false)
}

// The bodies of all guarded requests together are bounded. A request that exceeds the
// bound is refused unread; a request that no route guards does not count.
func TestW78_BodiesAreBounded(t *testing.T) {
	t.Parallel()
	b, release := occupied(t, func(b *bundle) { b.config.Server.MaxBodies = 20 }) // of which the slow one has two
	long := `{"amount": 1234567}`
	b.post(t, "/payments", other, long).refused(t, http.StatusServiceUnavailable, "gateway-busy")
	if _, err := b.store.Load(t.Context(), retrysafe.Ref{Scope: "header:acme", Key: other}); err == nil {
		t.Error("a refused request has left a record")
	}
	chunked := func(r *http.Request) { r.ContentLength = -1 }
	b.post(t, "/payments", other, `{}`, chunked).refused(t, http.StatusServiceUnavailable, "gateway-busy")
	b.post(t, "/payments", other+"s", `{}`).is(t, 201, `{"got":{}}`, false)
	b.do(t, b.request(t, http.MethodPut, "/payments", long)).is(t, 201, `{"got":`+long+`}`, false)
	release()
	b.post(t, "/payments", other, long).is(t, 201, `{"got":`+long+`}`, false)
	b.post(t, "/payments", other+"c", long, chunked).is(t, 201, `{"got":`+long+`}`, false) // alone it may be as large as the route allows
}
