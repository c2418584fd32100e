package gateway

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"
	"sync"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/cli/exit"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/cli/stores"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/gateway"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/gateway/admission"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/gateway/config"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/gateway/identity"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/gateway/listener"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/printable"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/storeurl"
	"github.com/retrysafe/retrysafe/httpkey"
	"github.com/retrysafe/retrysafe/janitor"
	"github.com/retrysafe/retrysafe/store/sealed"
	"github.com/retrysafe/retrysafe/telemetry"
)

// An instance is a gateway that serves one configuration, and what has to be released
// when it has ended.
type instance struct {
	*gateway.Gateway
	unknowns  janitor.Duty // nil if other nodes count them
	operators *operators   // nil: there are none
	release   []func() error
	traces    *exporter // nil without tracing
	pushed    *pusher   // nil if no metrics are sent
}

// Drain implements [listener.App].
func (i *instance) Drain(ctx context.Context) error {
	err := errors.Join(i.operators.close(ctx), i.Gateway.Drain(ctx))
	i.traces.flush(ctx)
	i.pushed.flush(ctx)
	for _, f := range i.release {
		err = errors.Join(err, f())
	}
	return err
}

// onRelease adds functions that unregister sources of metrics.
func (i *instance) onRelease(unregister ...func()) {
	for _, f := range unregister {
		i.release = append(i.release, func() error { f(); return nil })
	}
}

// A builder builds an instance for each configuration that is loaded.
type builder struct {
	out     io.Writer
	logger  *slog.Logger
	metrics *telemetry.Metrics
	access  *listener.AccessLog
	stores  storePool
	budget  *admission.Budget // what the requests of all configurations share
	adopt   bool              // settings that differ from those that the store has noted, at the start

	running *deployment // nil at the start; build is not called concurrently

	mu       sync.Mutex
	last     *config.Config // that was built
	warnings []string
}

// build returns an instance for a configuration. Its store is opened, or shared with
// the instance before it.
func (b *builder) build(ctx context.Context, c *config.Config) (listener.App, error) {
	l, err := stores.Parse(c.Store)
	if err != nil {
		return nil, err
	}
	l.KeysFile = c.Encryption.KeysFile
	opened, release, err := b.openStore(ctx, l)
	if err != nil {
		return nil, err
	}
	before, requests := b.budget.Memory().Most, b.budget.Requests().Most
	b.budget.Resize(gateway.BudgetFor(c))
	i, err := b.newInstance(ctx, c, &deployment{at: l, opened: opened, store: opened.Store})
	if err != nil {
		b.budget.Resize(before, requests)
		return nil, errors.Join(err, release())
	}
	i.release = append(i.release, release)
	b.mu.Lock()
	defer b.mu.Unlock()
	reloaded := b.last != nil
	gone := reloaded && hasOperators(b.last) && !hasOperators(c)
	var lost []string
	if reloaded {
		lost = c.NoLongerGuards(b.last)
	}
	b.last, b.warnings = c, slices.Concat(lost, gateway.Warnings(c), l.Address.Warnings(), storeurl.Caveats(ctx, opened.Store))
	if gone {
		b.warnings = append(b.warnings, "the configuration has no admin.listen and no admin.socket any more: the listener of operators is closed, and health, metrics and the console with it")
	}
	if reloaded { // those of the first configuration are announced with the addresses
		for _, w := range b.warnings {
			b.logger.Warn("retrysafe: " + printable.Text(w))
		}
	}
	return i, nil
}

// newInstance returns an instance over an open store. Without their keys the records of
// an encrypted store would not be found and each operation would run again, so that is
// refused, and so are other settings under which records would not be found.
func (b *builder) newInstance(ctx context.Context, c *config.Config, d *deployment) (_ *instance, err error) {
	l := d.at
	former, err := d.formerFields(ctx)
	if err != nil {
		return nil, err
	}
	parts := gateway.Parts{Store: d.store, FormerFields: former, Budget: b.budget, Observer: b.metrics.Observer(), Exchange: b.exchange, Logger: b.logger}
	if l.KeysFile == "" {
		if err := l.CheckNotEncrypted(ctx, d.store); err != nil {
			return nil, err
		}
	} else {
		ring, err := sealed.LoadKeyring(l.KeysFile)
		if err != nil {
			return nil, exit.Usagef("encryption: %v", err).Hintf("create a new one with: retrysafe config genkeys FILE")
		}
		parts.Keyring = ring
		parts.Secrets = []httpkey.Secret{{ID: 1, Key: ring.Derive("fingerprints")}}
	}
	below, closeShared, err := withSharedCache(c, d.store)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			_ = closeShared() // nothing is lost with it
		}
	}()
	parts.Store = below
	traces, err := newExporter(ctx, &c.Tracing, b.logger)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			traces.flush(ctx) // it has nothing to send
		}
	}()
	parts.Tracer = traces.tracer()
	g, err := gateway.New(c, parts)
	if errors.Is(err, retrysafe.ErrUnreadable) {
		return nil, l.WrongKeys(err)
	}
	if err != nil {
		return nil, exit.Usagef("%v", err)
	}
	if err := b.join(ctx, d, identity.Claim{Settings: identity.Of(c, parts.Keyring), Fields: identity.FieldsOf(g.Fields())}); err != nil {
		return nil, err
	}
	i := &instance{Gateway: g, release: []func() error{closeShared}, traces: traces}
	if err := b.addOperators(c, i, d); err != nil {
		return nil, err
	}
	if i.pushed, err = newPusher(&c.Tracing, b.metrics, b.logger); err != nil {
		return nil, err
	}
	b.running = d
	b.metrics.Routes(g.Routes()...)
	i.onRelease(b.metrics.Store(func() bool { return g.Ready() == nil }), b.metrics.Guard(g.Guard()))
	if cache := g.Cache(); cache != nil {
		i.onRelease(b.metrics.Cache(cache))
	}
	if sweeper, reaper := g.Janitor(); sweeper != nil {
		i.onRelease(b.metrics.Janitor(sweeper, reaper))
	}
	if reconciler := g.Reconciler(); reconciler != nil {
		i.onRelease(b.metrics.Janitor(reconciler))
	}
	for name, intake := range g.Webhooks() {
		i.onRelease(b.metrics.Webhook(name, intake))
	}
	if len(c.Ledger) > 0 {
		i.onRelease(b.metrics.Ledgers(func() []telemetry.LedgerStats { return ledgerStats(g.Ledgers()) }))
	}
	i.watchStore(b, below, d.store)
	b.metrics.Tenants(c.Metrics.Tenants)
	return i, nil
}

// exchange counts and logs a request that has ended.
func (b *builder) exchange(x gateway.Exchange) {
	if !x.Later { // a worker's attempt has no client whose latency could be measured
		b.metrics.ExchangeIn(x.Context, x.Route, string(x.Handling), x.Status, x.Took)
	}
	b.access.Write(context.Background(), listener.Line{
		Method: x.Method, Path: x.Path, Route: x.Route, Status: x.Status, Bytes: x.Bytes, Took: x.Took, Upstream: x.Upstream,
		Tenant: x.ScopeHash, Key: x.KeyHash, Outcome: string(x.Handling), Code: x.Code, Attempt: x.Attempt, Later: x.Later, Guarded: x.Guarded(), Trace: traceOf(x.Context),
	})
}

// announce prints the addresses of the gateway and its most important settings, in one
// write: requests are served by then, and a line of the log may not fall in between.
func (b *builder) announce(at listener.Addresses) {
	b.mu.Lock()
	c, warnings := b.last, b.warnings
	b.mu.Unlock()
	store := &stores.Location{URL: c.Store}
	if l, err := stores.Parse(c.Store); err == nil {
		store = l
	}
	var text bytes.Buffer
	say := func(format string, args ...any) { fmt.Fprintf(&text, "retrysafe: "+format+"\n", args...) }
	say("gateway on %s", printable.Text(at.Main))
	say("upstream %s", printable.Text(c.Upstream))
	say("store %s", store.Absolute())
	if c.Encryption.KeysFile != "" {
		say("records are encrypted with the keys in %s", printable.Text(c.Encryption.KeysFile))
	}
	say("tenant: %s", printable.Text(tenantText(&c.Tenant)))
	keyless := "POST and PATCH without a key"
	if len(c.Routes) > 0 {
		keyless = "POST and PATCH that match no route, without a key"
	}
	say("%s: %s", keyless, keylessText(&c.Defaults))
	for i := range c.Webhooks {
		w := &c.Webhooks[i]
		say("webhook %s on %s", printable.Text(w.Name), printable.Text(at.Main+w.Path))
	}
	for i := range c.Reconcile.Resolvers {
		say("resolver %s", printable.Text(resolverText(&c.Reconcile.Resolvers[i], c.Janitor.Off)))
	}
	if c.Tracing.Endpoint != "" {
		say("traces to %s", printable.Text(c.Tracing.URL()))
		if c.Tracing.MetricsEvery > 0 {
			say("metrics to %s every %v", printable.Text(c.Tracing.MetricsURL()), c.Tracing.MetricsEvery)
		}
	}
	if at.Admin != "" {
		say("operators on %s", printable.Text(at.Admin))
	}
	if at.Socket != "" {
		say("operators on %s", printable.Text(at.Socket))
	}
	for _, w := range warnings {
		say("warning: %s", printable.Text(w))
	}
	_, _ = b.out.Write(text.Bytes())
}

// keylessText returns what becomes of requests without a key that no route matches.
func keylessText(s *config.Settings) string {
	switch {
	case s.Off:
		return "forwarded, as all others: the defaults are off"
	case s.Observe:
		return "forwarded and logged, as all others: nothing is enforced"
	case s.Required:
		return "refused with a 400"
	default:
		return "forwarded unguarded"
	}
}

// tenantText returns how callers are told apart.
func tenantText(t *config.Tenant) string {
	switch t.From {
	case "header":
		var from []string
		for _, p := range t.TrustedProxies {
			from = append(from, p.String())
		}
		return fmt.Sprintf("the header %s, from %s only", t.Name, strings.Join(from, ", "))
	case "bearer":
		return "a hash of the bearer token"
	case "jwt":
		return fmt.Sprintf("the claim %s of tokens of %s", t.Claim, t.Issuer)
	default:
		return "none: all callers are one"
	}
}
