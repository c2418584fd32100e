package gateway_test

import (
	"context"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/gateway"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/gateway/config"
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

// What a dead process has left behind is settled, and what is forgotten deleted.
func TestJanitor(t *testing.T) {
	t.Parallel()
	const lease = 50 * time.Millisecond
	b := setup(t, func(b *bundle) {
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
}

// An operator is told at the start what a setting gives up, and of which route.
func TestWarnsOfShortRetention(t *testing.T) {
	t.Parallel()
	b := build(t, withRoutes(route("POST /payments", func(s *config.Settings) { s.Policy.Retention = time.Minute })))
	all := b.Warnings()
	if len(all) != 1 || !strings.HasPrefix(all[0], "POST /payments: retention 1m0s is under an hour") {
		t.Errorf("warned of %q", all)
	}
	if text := b.log.String(); !strings.Contains(text, "under an hour") || !strings.Contains(text, "POST /payments") {
		t.Errorf("logged %s", text)
	}
}

func TestRoutesHaveNames(t *testing.T) {
	t.Parallel()
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
