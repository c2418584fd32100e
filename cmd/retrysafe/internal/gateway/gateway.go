package gateway

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/gateway/admission"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/gateway/config"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/gateway/tenant"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/ledger/daily"
	"github.com/retrysafe/retrysafe/httpkey"
	"github.com/retrysafe/retrysafe/internal/pool"
	"github.com/retrysafe/retrysafe/janitor"
	"github.com/retrysafe/retrysafe/store/sealed"
	"github.com/retrysafe/retrysafe/store/tiered"
	"github.com/retrysafe/retrysafe/telemetry/otel"
)

// Parts are what a [Gateway] is given besides its configuration. Store is required.
type Parts struct {
	// Store keeps the keys. It is opened and closed by the caller. The gateway puts
	// encryption and a cache before it, where the configuration says so.
	Store retrysafe.Store
	// Keyring opens and seals records, where the configuration names keys.
	Keyring *sealed.Keyring
	// Secrets key the fingerprints, so that a reader of the store cannot guess requests; see
	// [httpkey.Options.Secrets].
	Secrets []httpkey.Secret
	// FormerFields are choices of what counts in a fingerprint that records may have
	// been stored under; see [httpkey.Options.FormerFields].
	FormerFields []httpkey.Fields

	// Tenant and Principal say whose request it is, instead of what the configuration
	// names.
	Tenant, Principal tenant.Func

	// Budget is what guarded requests share, and outlives this configuration. Default: one
	// of the configuration's size.
	Budget *admission.Budget
	// Observer is told what happens to keys.
	Observer retrysafe.Observer
	// Tracer makes spans of requests and of what happens to their keys. Nil: there are none.
	Tracer *otel.Tracer
	// Exchange is told of each request at its end, on the request's own path: it must
	// be quick, and is called concurrently.
	Exchange func(Exchange)
	// Logger gets warnings and failures. Default slog.Default().
	Logger *slog.Logger
}

// A Gateway is one configuration at work. It never changes: another configuration is
// another gateway, over the same store. It is safe for concurrent use.
type Gateway struct {
	table          table
	upstream       *upstream
	engine         *retrysafe.Engine
	guard          *httpkey.Guard // of no route: it speaks for the gateway itself
	store          retrysafe.Store
	cache          tiered.Store // nil if there is none
	sweeper        *janitor.Sweeper
	reconciler     *janitor.Reconciler // nil if there is no resolver
	reaper         *janitor.Reaper
	lookedInto     func(pattern string) bool // see [lookedInto]
	ledgers        *daily.Scheduler          // nil if there is none
	tenants        tenants
	trustedHeaders map[string]bool // canonical names of headers; see isAlias
	protected      map[string]bool // canonical names of headers; see removesProtected
	tenantSlots    tenantSlots
	budget         *admission.Budget // memory and requests, shared by all tenants
	limitLog       logPace
	pathLog        logPace
	passthroughs   pool.Of[passthrough]
	statuses       map[string]http.Handler
	duties         []func(context.Context) error
	exchange       func(Exchange)
	logger         *slog.Logger
	made           atomic.Bool // New has returned it
	health         *storeHealth
	webhooks       webhooks
	tracing        tracing
}

// New returns a gateway for a configuration that is complete and checked. It starts
// nothing: what goes on in the background does so in [Gateway.Run].
func New(c *config.Config, p Parts) (*Gateway, error) {
	if c == nil || p.Store == nil {
		return nil, errors.New("gateway: New needs a configuration and a store")
	}
	g := &Gateway{logger: p.Logger, tenantSlots: tenantSlots{max: c.Limits.InFlight}, budget: p.Budget}
	g.tracing = newTracing(p.Tracer, g.serve)
	g.exchange = g.tracing.told(p.Exchange)
	if g.budget == nil {
		g.budget = admission.New(BudgetFor(c))
	}
	if g.logger == nil {
		g.logger = slog.Default()
	}
	g.lookedInto = func(pattern string) bool { return lookedInto(c, pattern) }
	g.passthroughs.New = func() *passthrough { return &passthrough{g: g} }
	for _, step := range []func(*config.Config, *Parts) error{
		g.makeTenants, g.wrapStore, g.openUpstream, g.makeGuard, g.makeRoutes, g.noteTrustedHeaders, g.makeWorkers, g.makeJanitor, g.makeReconciler, g.makeLedgers, g.makeHealth, g.makeWebhooks,
	} {
		if err := step(c, &p); err != nil {
			return nil, fmt.Errorf("gateway: %w", err)
		}
	}
	g.made.Store(true)
	return g, nil
}

// makeGuard makes the guard that those of the routes are made from.
func (g *Gateway) makeGuard(c *config.Config, p *Parts) (err error) {
	g.health = newStoreHealth(p, g.logger)
	g.engine, err = retrysafe.New(g.store, &retrysafe.Options{
		Observer:  g.webhooks.observer(&clockWatch{next: g.health, logger: g.logger}),
		Tracer:    g.tracing.engine(),
		Namespace: config.Namespace,

		StoreTimeout: c.StoreTimeout,
		// An answer that exists is worth twice the wait of one that does not.
		SettleTimeout: 2 * c.StoreTimeout,
	})
	if err != nil {
		return err
	}
	profile := httpkey.IETF
	switch c.Profile {
	case "", httpkey.IETF.Name:
	case httpkey.Stripe.Name:
		profile = httpkey.Stripe
	default:
		return fmt.Errorf("profile: %q is neither ietf nor stripe", c.Profile)
	}
	g.guard, err = httpkey.New(g.engine, g.scope, &httpkey.Options{
		Profile:      profile,
		Secrets:      p.Secrets,
		FormerFields: p.FormerFields,
		Limits: httpkey.Limits{
			NewKeys: c.Limits.NewKeysPerSecond, NewKeysBurst: c.Limits.NewKeysBurst,
			Lookups: c.Limits.LookupsPerSecond, ActiveKeys: c.Limits.ActiveKeys,
		},
		Logger: g.logger,
	})
	return err
}

// makeJanitor has what others left behind settled, and what is forgotten deleted.
func (g *Gateway) makeJanitor(c *config.Config, p *Parts) error {
	if c.Janitor.Off {
		return nil
	}
	o := janitor.Options{Observer: p.Observer, Logger: g.logger, Every: c.Janitor.Sweep}
	g.sweeper = janitor.NewSweeper(g.store, &o)
	o.Every = c.Janitor.Reap
	g.reaper = janitor.NewReaper(g.store, &janitor.ReaperOptions{Options: o, Tombstone: c.Janitor.Tombstone})
	g.duties = append(g.duties, func(ctx context.Context) error { return janitor.Run(ctx, g.sweeper, g.reaper) })
	return nil
}

// makeHealth has the health of the store watched.
func (g *Gateway) makeHealth(*config.Config, *Parts) error {
	g.health.engine = g.engine
	g.duties = append(g.duties, g.health.run)
	return nil
}

// ownPrefix is the path below which everything is the gateway's own.
const ownPrefix = "/.retrysafe/"

// ServeHTTP serves one request, in a span if there is tracing.
func (g *Gateway) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if !g.tracing.serves(w, r) {
		g.serve(w, r)
	}
}

func (g *Gateway) serve(w http.ResponseWriter, r *http.Request) {
	if hook := g.webhooks.at[r.URL.Path]; hook != nil {
		hook.ServeHTTP(w, r)
		return
	}
	switch {
	case strings.HasPrefix(r.URL.Path, ownPrefix):
		g.serveOwn(w, r)
		return
	case r.Method == http.MethodConnect:
		w.WriteHeader(http.StatusMethodNotAllowed) // a gateway is no tunnel
		return
	case r.URL.Opaque != "":
		w.WriteHeader(http.StatusBadRequest) // of "x:http://host/path" routes see no path, and the upstream one
		return
	case g.removesProtected(r.Header):
		g.refuse(w, r, "", &removal)
		return
	}
	switch rt, rival := g.table.find(r); {
	case rival != nil:
		g.refuseAmbiguous(w, r, rt, rival)
	case rt == nil:
		g.pass(w, r, "")
	default:
		rt.serve(w, r)
	}
}

// Run does what goes on in the background, until ctx ends: requests that are run later,
// the janitor's duties, ledgers that are compared, keys of tokens that are refreshed, the probe of the store. Then it takes up nothing
// more, waits for what is running and returns nil.
func (g *Gateway) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	failures := make(chan error, len(g.duties))
	var all sync.WaitGroup
	for _, duty := range g.duties {
		all.Go(func() {
			if err := duty(ctx); err != nil {
				failures <- err
				cancel()
			}
		})
	}
	<-ctx.Done()
	all.Wait()
	g.upstream.closeIdle()
	select {
	case err := <-failures:
		return fmt.Errorf("gateway: %w", err)
	default:
		return nil
	}
}

// Drain waits until every answer that exists is stored, or ctx ends. It is called when
// the last request has ended.
func (g *Gateway) Drain(ctx context.Context) error {
	defer g.upstream.closeIdle()
	return g.engine.Drain(ctx)
}

// Ready says what keeps the gateway from serving guarded requests. It follows the writes
// of requests and, while there are none, those of a probe; see [storeHealth].
func (g *Gateway) Ready() error {
	if err := g.health.ready(); err != nil {
		return err
	}
	return g.tenants.ready()
}

// Routes are the names of the routes, as [Exchange.Route] has them, and of their
// operations, as events have them: all that is known before requests come.
func (g *Gateway) Routes() []string { return append(g.table.names(), g.webhooks.names()...) }

// Fields are the choices of what counts in a fingerprint that the routes have.
func (g *Gateway) Fields() []httpkey.Fields {
	var all []httpkey.Fields
	for _, rt := range g.table.order {
		if rt.guards() {
			all = append(all, rt.fields())
		}
	}
	return all
}

// Guard is what counts refusals, see [httpkey.Guard.Counts].
func (g *Gateway) Guard() *httpkey.Guard { return g.guard }

// Budget is what guarded requests share.
func (g *Gateway) Budget() *admission.Budget { return g.budget }

// Store is the store as the gateway uses it: sealed and cached where it is.
func (g *Gateway) Store() retrysafe.Store { return g.store }

// Cache is the memory for finished answers, or nil if there is none.
func (g *Gateway) Cache() tiered.Store { return g.cache }

// Janitor returns the sweeper and the reaper; both are nil if the configuration turns
// them off.
func (g *Gateway) Janitor() (*janitor.Sweeper, *janitor.Reaper) { return g.sweeper, g.reaper }
