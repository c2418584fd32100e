package gateway_test

import (
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"reflect"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/gateway"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/gateway/admission"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/gateway/config"
	"github.com/retrysafe/retrysafe/httpkey"
	"github.com/retrysafe/retrysafe/internal/test/faultstore"
	"github.com/retrysafe/retrysafe/store/memstore"
)

// While the store does not answer, nothing reaches the upstream but what is not
// guarded; when it is back, so is the gateway, also if only a probe asks.
func TestW15_StoreIsDown(t *testing.T) {
	t.Parallel()
	fault := faultstore.New(memstore.New(nil))
	b := setup(t, over(fault))
	if err := b.Ready(); err != nil {
		t.Fatalf("not ready: %v", err)
	}
	fault.Plan(faultstore.FailAll(faultstore.LoseRequest))
	for range 8 {
		got := b.post(t, "/payments", key, `{}`)
		got.refused(t, http.StatusServiceUnavailable, "store-unavailable")
		if got.header.Get("Retry-After") == "" {
			t.Errorf("told %v", got.header)
		}
	}
	b.upstream.called(t, 0)
	if got := b.get(t, "/things"); got.status != 201 {
		t.Errorf("what is not guarded got %d", got.status)
	}
	if b.Ready() == nil {
		t.Error("it is ready without its store")
	}
	fault.Plan(nil)
	if err := b.Ready(); err != nil {
		t.Errorf("it does not notice that the store is back: %v", err)
	}
	b.post(t, "/payments", key, `{}`).is(t, 201, `{"got":{}}`, false)
}

// An answer that the store does not take is offered on, and Drain waits for it.
func TestW42_DrainWaitsForAnswers(t *testing.T) {
	t.Parallel()
	fault := faultstore.New(memstore.New(nil))
	b := setup(t, over(fault))
	fault.Plan(func(s faultstore.Step) faultstore.Fault {
		if s.Op == faultstore.Swap {
			return faultstore.LoseRequest
		}
		return faultstore.None
	})
	b.post(t, "/payments", key, `{}`).refused(t, http.StatusServiceUnavailable, "outcome-pending")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if b.Drain(ctx) == nil {
		t.Error("Drain does not wait")
	}
	fault.Plan(nil)
	must(t, b.Drain(t.Context()))
	b.post(t, "/payments", key, `{}`).is(t, 201, `{"got":{}}`, true)
	b.upstream.called(t, 1)
}

// seen is an observer that counts.
type seen struct {
	mu     sync.Mutex
	events map[retrysafe.EventKind]int
}

func (s *seen) Observe(e retrysafe.Event) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.events == nil {
		s.events = make(map[retrysafe.EventKind]int)
	}
	s.events[e.Kind]++
}

// await waits until there was an event of the kind.
func (s *seen) await(t *testing.T, kind retrysafe.EventKind) {
	t.Helper()
	for {
		s.mu.Lock()
		n := s.events[kind]
		s.mu.Unlock()
		if n > 0 {
			return
		}
		select {
		case <-t.Context().Done():
			t.Fatalf("no %s was observed", kind)
		case <-time.After(time.Millisecond):
		}
	}
}

// What a dead process has left behind is settled, and what is forgotten deleted; the
// observer is told.
func TestJanitor(t *testing.T) {
	t.Parallel()
	const lease = 50 * time.Millisecond
	observer := new(seen)
	b := setup(t, func(b *bundle) {
		b.parts.Observer = observer
		b.config.Janitor = config.Janitor{Sweep: 5 * time.Millisecond, Reap: 5 * time.Millisecond}
	}, withRoutes(route("POST /payments", func(s *config.Settings) { s.Policy.Retention = lease })))
	_, err := b.store.Create(t.Context(), retrysafe.Write{Term: lease, Record: retrysafe.Record{
		Ref: retrysafe.Ref{Scope: "header:acme", Key: other}, State: retrysafe.StateInProgress, Version: retrysafe.RecordVersion,
		Owner: retrysafe.Owner{1}, Attempt: 1, Retain: time.Hour,
	}})
	must(t, err)
	b.post(t, "/payments", key, `{}`).is(t, 201, `{"got":{}}`, false)
	b.run(t)
	sweeper, reaper := b.Janitor()
	for {
		all := b.records(t)
		settled := len(all) == 1 && all[0].Key == other && all[0].State == retrysafe.StateUnknown
		// A pass counts when it is over, a moment after its records show it.
		if settled && sweeper.Stats().Quarantined == 1 && reaper.Stats().Deleted == 1 {
			break
		}
		select {
		case <-t.Context().Done():
			t.Fatalf("left behind: %+v; %+v, %+v", all, sweeper.Stats(), reaper.Stats())
		case <-time.After(time.Millisecond):
		}
	}
	observer.await(t, retrysafe.EventLapsed)
	observer.await(t, retrysafe.EventReserved) // of the engine
	b = setup(t, func(b *bundle) {
		b.config.Janitor = config.Janitor{Sweep: time.Hour, Reap: 5 * time.Millisecond, Tombstone: time.Hour}
	}, withRoutes(route("POST /payments", func(s *config.Settings) { s.Policy.Retention = lease })))
	b.post(t, "/payments", key, `{}`).is(t, 201, `{"got":{}}`, false)
	time.Sleep(2 * lease) // a record that is due between the reaper's walk and its purge leaves no tombstone
	b.run(t)
	for b.state(t, key).State != retrysafe.StateExpired {
		time.Sleep(time.Millisecond)
	}

	b = build(t, func(b *bundle) { b.config.Janitor.Off = true })
	if sweeper, reaper := b.Janitor(); sweeper != nil || reaper != nil {
		t.Error("a janitor that is off is there")
	}
	b.run(t) // it has nothing to do, and ends when it is told to
}

// Replays come from memory, unless there is to be none.
func TestCache(t *testing.T) {
	t.Parallel()
	fault := faultstore.New(memstore.New(nil))
	b := setup(t, over(fault))
	b.post(t, "/payments", key, `{}`).is(t, 201, `{"got":{}}`, false)
	fault.Plan(faultstore.FailAll(faultstore.LoseRequest))
	b.post(t, "/payments", key, `{}`).is(t, 201, `{"got":{}}`, true)
	if s := b.Cache().Stats(); s.Hits != 1 || s.Entries != 1 {
		t.Errorf("%+v", s)
	}
	b = setup(t, over(memstore.New(nil)), func(b *bundle) { b.config.Cache.Bytes = -1 })
	if _, forgets := b.Gateway.Store().(retrysafe.Forgetter); b.Cache() != nil || forgets {
		t.Error("there is a cache")
	}
}

// What an operator changes on another node takes effect here long before max_age; where the
// store cannot tell, an operator is told so.
func TestCacheFollowsTheChangesOfOtherNodes(t *testing.T) {
	t.Parallel()
	old := func(b *bundle) { b.config.Cache.MaxAge = time.Hour }
	b := setup(t, over(memstore.New(nil)), old)
	b.run(t)
	b.post(t, "/payments", key, `{}`).is(t, 201, `{"got":{}}`, false)
	b.post(t, "/payments", key, `{}`).is(t, 201, `{"got":{}}`, true)
	r := b.state(t, key)
	w := r.Update()
	w.Result = &retrysafe.Result{Status: 200, Header: r.Result.Header, Body: []byte(`{"right":{}}`)}
	w.Term, w.Announce = time.Hour, true
	_, err := b.store.Swap(t.Context(), w)
	must(t, err)
	for b.post(t, "/payments", key, `{}`).body != `{"right":{}}` {
		select {
		case <-t.Context().Done():
			t.Fatal("the answer of before is still replayed")
		case <-time.After(time.Millisecond):
		}
	}

	b = build(t, over(struct{ retrysafe.Store }{memstore.New(nil)}), old)
	b.run(t)
	for !strings.Contains(b.log.String(), "takes effect here after cache.max_age, 1h0m0s, not within a second") {
		select {
		case <-t.Context().Done():
			t.Fatalf("nobody is told that changes are not followed: %s", b.log)
		case <-time.After(time.Millisecond):
		}
	}
}

// How long and how much is remembered is the configuration's.
func TestCacheHasItsSettings(t *testing.T) {
	t.Parallel()
	for size, kept := range map[int64]bool{1 << 20: false, 1 << 30: true} { // a record may take a 64th of it
		synctest.Test(t, func(t *testing.T) {
			b := build(t, at("http://127.0.0.1:1"), func(b *bundle) { b.config.Cache = config.Cache{Bytes: size, MaxAge: 10 * time.Minute} })
			small, large := retrysafe.Ref{Scope: "s", Key: "small"}, retrysafe.Ref{Scope: "s", Key: "large"}
			for ref, length := range map[retrysafe.Ref]int{small: 1, large: 64 << 10} {
				_, err := b.Gateway.Store().Create(t.Context(), retrysafe.Write{Term: time.Hour, Record: retrysafe.Record{
					Ref: ref, State: retrysafe.StateCompleted, Version: retrysafe.RecordVersion, Owner: retrysafe.Owner{1}, Attempt: 1, Retain: time.Hour,
					Result: &retrysafe.Result{Status: 201, Body: make([]byte, length)},
				}})
				must(t, err)
			}
			hit := func(ref retrysafe.Ref) bool {
				before := b.Cache().Stats().Hits
				_, err := b.Gateway.Store().Load(t.Context(), ref)
				must(t, err)
				return b.Cache().Stats().Hits > before
			}
			hit(small) // if it was not remembered when it was stored
			hit(large)
			time.Sleep(5 * time.Minute)
			if !hit(small) {
				t.Error("after half of max_age an answer is not remembered")
			}
			if got := hit(large); got != kept {
				t.Errorf("with %d bytes 64 KiB are remembered: %t", size, got)
			}
			time.Sleep(6 * time.Minute)
			if hit(small) {
				t.Error("after max_age an answer is still remembered")
			}
		})
	}
}

// As many connections to the upstream are kept as the configuration says.
func TestConnectionsToTheUpstreamAreKept(t *testing.T) {
	t.Parallel()
	for most, want := range map[int]int32{1: 3, 0: 2} { // by default all of these
		var opened atomic.Int32
		arrived, leave := make(chan struct{}), make(chan struct{})
		server := httptest.NewUnstartedServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
			arrived <- struct{}{}
			<-leave
		}))
		server.Config.ConnState = func(_ net.Conn, s http.ConnState) {
			if s == http.StateNew {
				opened.Add(1)
			}
		}
		server.Start()
		t.Cleanup(server.Close)
		b := build(t, at(server.URL), func(b *bundle) { b.config.Server.UpstreamConnections = most })
		for range 2 { // twice two requests at a time
			var both sync.WaitGroup
			for range 2 {
				both.Go(func() {
					r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/things", nil)
					w := httptest.NewRecorder()
					if b.ServeHTTP(w, r); w.Code != http.StatusOK {
						t.Errorf("got %d %s", w.Code, w.Body)
					}
				})
			}
			<-arrived
			<-arrived
			leave <- struct{}{}
			leave <- struct{}{}
			both.Wait()
		}
		if n := opened.Load(); n != want {
			t.Errorf("with server.upstream_connections %d: %d connections were opened, want %d", most, n, want)
		}
	}
}

// What cannot work is refused when the gateway is made, in words that say where.
func TestNewRefuses(t *testing.T) {
	t.Parallel()
	for want, change := range map[string]func(*bundle){
		"needs a configuration and a store": func(b *bundle) { b.parts.Store = nil },
		"upstream: it is http":              func(b *bundle) { b.config.Upstream = "ftp://example.com" },
		"how callers are told apart":        func(b *bundle) { b.config.Tenant = config.Tenant{} },
		"needs the header's name":           func(b *bundle) { b.config.Tenant.Name = "" },
		"tenant: ":                          func(b *bundle) { b.config.Tenant = config.Tenant{From: "jwt"} },
		"neither ietf nor stripe":           func(b *bundle) { b.config.Profile = "paypal" },
		`route "POST /a": effects: keyed`:   withRoutes(route("POST /a", func(s *config.Settings) { s.Policy.Effects = retrysafe.EffectsKeyed })),
		`route "POST /b": effects: a gateway`: withRoutes(route("POST /b", func(s *config.Settings) {
			s.Policy.Effects = retrysafe.EffectsInTx
		})),
		`route "POST /c": forward_key and`: withRoutes(route("POST /c", func(s *config.Settings) { s.ForwardKey, s.DeriveKey = "A", "B" })),
		`route "POST /d": bind`:            withRoutes(route("POST /d", func(s *config.Settings) { s.BindPrincipal = true })),
		`route "POST /e": a limit`:         withRoutes(route("POST /e", func(s *config.Settings) { s.Concurrency = -1 })),
		`route "POST /f{": `:               withRoutes(route("POST /f{")),
		`route "POST /g/{a}": `:            withRoutes(route("POST /g/{b}"), route("POST /g/{a}")),
		`route "POST /h": httpkey`:         withRoutes(route("POST /h", func(s *config.Settings) { s.ReplayHeaders = []string{"Set-Cookie"} })),
		"own":                              withRoutes(route("POST /.retrysafe/requests/x")),
		"defaults: ":                       func(b *bundle) { b.config.Defaults.Policy.Lapse = retrysafe.LapseRerun },
		"no certificate":                   func(b *bundle) { b.config.UpstreamTLS.CAFile = "doc.go" },
		"upstream: open":                   func(b *bundle) { b.config.UpstreamTLS.CAFile = "nowhere.pem" },
		"upstream: load certificate":       func(b *bundle) { b.config.UpstreamTLS.CertFile = "nowhere.pem" },
		"ActiveKeys":                       func(b *bundle) { b.config.Limits.ActiveKeys, b.parts.Store = 1, faultstore.New(b.store) },
	} {
		b := build(t)
		change(b)
		if _, err := gateway.New(&b.config, b.parts); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
	for _, url := range []string{"", "example.com", "http://", "http://user:word@example.com", "http://example.com?a=b", "http://example.com/#a"} {
		b := build(t)
		b.config.Upstream = url
		if _, err := gateway.New(&b.config, b.parts); err == nil || !strings.Contains(err.Error(), "upstream: it is http") {
			t.Errorf("upstream %q: %v", url, err)
		}
	}
}

// An operator is told at the start of a route whose requests may hold more than a tenant gets.
func TestWarnsOfLargeRequests(t *testing.T) {
	t.Parallel()
	for memory, warned := range map[int64]bool{1 << 20: true, 1 << 30: false} {
		b := build(t, func(b *bundle) {
			b.config.Server.MaxMemory = memory
			b.config.Routes = append(b.config.Routes, route("POST /large", func(s *config.Settings) { s.MaxResponse = 2 << 20 }))
		})
		all, want := strings.Join(gateway.Warnings(&b.config), "\n"), 0
		if warned {
			want = 2 // the defaults, and with them most routes; and one of its own size
		}
		if strings.Count(all, "max_request and max_response allow") != want || strings.Contains(all, "routes[2]: max_request") != warned || strings.Contains(all, "defaults: max_request") != warned {
			t.Errorf("%d bytes: warned of %q", memory, all)
		}
	}
}

// What a setting gives up is in the warnings of the configuration, with its place; the guard
// of the route does not log it a second time. What it finds later it logs.
func TestCaveatsAreSaidOnce(t *testing.T) {
	t.Parallel()
	b := setup(t, withRoutes(route("POST /payments", func(s *config.Settings) { s.Policy.Retention = time.Minute })))
	if all := strings.Join(gateway.Warnings(&b.config), "\n"); strings.Count(all, "routes[0].retention: retention 1m0s is under an hour") != 1 {
		t.Errorf("warned of %q", all)
	}
	if text := b.log.String(); strings.Contains(text, "under an hour") {
		t.Errorf("logged %s", text)
	}
	b.post(t, "/payments", "short", `{}`)
	if text := b.log.String(); !strings.Contains(text, "key-too-short") || !strings.Contains(text, `route="POST /payments"`) {
		t.Errorf("the guard does not log what it finds: %s", text)
	}
}

// What counts in fingerprints is said of each route that has any, and of the defaults.
func TestFieldsOfTheRoutes(t *testing.T) {
	t.Parallel()
	b := build(t, withRoutes(
		route("POST /a", func(s *config.Settings) { s.Include, s.FingerprintHeaders = []string{"/x"}, []string{"X-Version"} }),
		route("POST /b", keyed, func(s *config.Settings) { s.Exclude, s.FingerprintHeaders = []string{"/y"}, []string{"X-Version"} }),
		route("POST /c", func(s *config.Settings) { s.Off = true }),
	), func(b *bundle) { b.config.Defaults.Exclude = []string{"/z"} })
	want := []httpkey.Fields{
		{Include: []string{"/x"}, Headers: []string{"X-Version"}},
		{Exclude: []string{"/y"}, Headers: []string{"X-Version", "Idempotency-Key"}},
		{Exclude: []string{"/z"}},
	}
	if got := b.Fields(); !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

// The budget has the configuration's size, unless there is one that outlives it.
func TestBudgetOfAGateway(t *testing.T) {
	t.Parallel()
	small := func(b *bundle) { b.config.Server.MaxMemory, b.config.Server.MaxConnections = 1<<20, 7 }
	if b := build(t, small); b.Budget().Memory().Most != 1<<20 || b.Budget().Requests().Most != 7 {
		t.Errorf("the budget has %+v and %+v", b.Budget().Memory(), b.Budget().Requests())
	}
	if _, requests := gateway.BudgetFor(new(config.Config)); requests != 10_000 {
		t.Errorf("by default there are %d requests", requests)
	}
	kept := admission.New(2<<20, 8)
	if b := build(t, small, func(b *bundle) { b.parts.Budget = kept }); b.Budget() != kept || kept.Memory().Most != 2<<20 {
		t.Errorf("the budget is another one, or was changed: %+v", kept.Memory())
	}
}

func TestRoutesHaveNames(t *testing.T) {
	t.Parallel()
	if b := build(t, hooked()); !slices.Contains(b.Routes(), "webhook pay") {
		t.Errorf("the webhook has no name: %q", b.Routes())
	}
	b := build(t, withRoutes(route("POST /payments"), route("/legacy/{rest...}")))
	if got := strings.Join(b.Routes(), ", "); got != "POST /payments, /legacy/{rest...}, POST /legacy/{rest...}, PATCH /legacy/{rest...}, default" {
		t.Errorf("got %s", got)
	}
}

// Tenant and principal functions in Parts take precedence over the configuration.
func TestGivenTenant(t *testing.T) {
	t.Parallel()
	b := setup(t, withRoutes(route("POST /payments", func(s *config.Settings) { s.BindPrincipal = true })), func(b *bundle) {
		b.config.Tenant = config.Tenant{}
		b.parts.Tenant = func(*http.Request) (string, error) { return "given", nil }
		b.parts.Principal = func(*http.Request) (string, error) { return "ann", nil }
	})
	b.post(t, "/payments", key, `{}`).is(t, 201, `{"got":{}}`, false)
	if r := b.records(t)[0]; !strings.HasPrefix(r.Scope, "given\x1f") || !strings.HasSuffix(r.Scope, "\x1fann") {
		t.Errorf("the scope is %q", r.Scope)
	}
}
