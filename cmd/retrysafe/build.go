package main

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/gateway"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/gateway/config"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/gateway/listener"
	"github.com/retrysafe/retrysafe/httpkey"
	"github.com/retrysafe/retrysafe/store/sealed"
	"github.com/retrysafe/retrysafe/telemetry"
)

// builder makes configurations work.
type builder struct {
	*program
	logger  *slog.Logger
	metrics *telemetry.Metrics
	access  *listener.AccessLog
	shared  sharedStores

	mu       sync.Mutex
	last     *config.Config // that was built
	warnings []string
}

// build makes a configuration work, over a store that is opened, or that another
// configuration at work has open.
func (b *builder) build(ctx context.Context, c *config.Config) (listener.App, error) {
	a := &address{url: c.Store, keysFile: c.Encryption.KeysFile}
	store, release, err := b.shared.open(ctx, a)
	if err != nil {
		return nil, err
	}
	app, err := b.over(ctx, c, a, store)
	if err != nil {
		return nil, errors.Join(err, release())
	}
	app.release = append(app.release, release)
	b.mu.Lock()
	defer b.mu.Unlock()
	again := b.last != nil
	b.last, b.warnings = c, warningsOf(c, app.Gateway)
	if again { // at the start they are said with the addresses
		for _, w := range b.warnings {
			b.logger.Warn("retrysafe: " + visible(w))
		}
	}
	return app, nil
}

// warningsOf returns what a person should know of a configuration. What the file has
// a line for is not said a second time.
func warningsOf(c *config.Config, g *gateway.Gateway) []string {
	all := c.Warnings()
	for _, w := range g.Warnings() {
		_, text, _ := strings.Cut(w, ": ")
		if !slices.ContainsFunc(all, func(said string) bool { return strings.HasSuffix(said, text) }) {
			all = append(all, w)
		}
	}
	return all
}

// over builds over an open store. Records that are sealed cannot be found without
// their keys: each operation would run again.
func (b *builder) over(ctx context.Context, c *config.Config, a *address, store retrysafe.Store) (*app, error) {
	parts := gateway.Parts{Store: store, Observer: b.metrics.Observer(), Exchange: b.exchange, Logger: b.logger}
	if a.keysFile == "" {
		if err := a.mustBePlain(ctx, store); err != nil {
			return nil, err
		}
	} else {
		ring, err := sealed.LoadKeyring(a.keysFile)
		if err != nil {
			return nil, misused("encryption: %v", err).hinted("a new one is made by: retrysafe config genkeys FILE")
		}
		parts.Keyring = ring
		parts.Secrets = []httpkey.Secret{{ID: 1, Key: ring.Derive("fingerprints")}}
	}
	g, err := gateway.New(c, parts)
	if errors.Is(err, retrysafe.ErrUnreadable) {
		return nil, misused("the keys in %s are not those of %s: %v", a.keysFile, a, err)
	}
	if err != nil {
		return nil, misused("%v", err)
	}
	app := &app{Gateway: g}
	b.metrics.Routes(g.Routes()...)
	app.shows(b.metrics.Store(func() bool { return g.Ready() == nil }), b.metrics.Guard(g.Guard()))
	if cache := g.Cache(); cache != nil {
		app.shows(b.metrics.Cache(cache))
	}
	if sweeper, reaper := g.Janitor(); sweeper != nil {
		app.shows(b.metrics.Janitor(sweeper, reaper))
	}
	return app, nil
}

// exchange counts and logs a request that has ended.
func (b *builder) exchange(x gateway.Exchange) {
	if !x.Later { // no client has waited for it
		b.metrics.Exchange(x.Route, string(x.Handling), x.Status, x.Took)
	}
	b.access.Write(context.Background(), listener.Line{
		Method: x.Method, Path: x.Path, Route: x.Route, Status: x.Status, Bytes: x.Bytes, Took: x.Took, Upstream: x.Upstream,
		Tenant: x.ScopeHash, Key: x.KeyHash, Outcome: string(x.Handling), Code: x.Code, Attempt: x.Attempt, Later: x.Later, Guarded: x.Guarded(),
	})
}

// app is a gateway at work, and what has to be given back at its end.
type app struct {
	*gateway.Gateway
	release []func() error
}

// shows notes what forgets the sources of metrics.
func (a *app) shows(forget ...func()) {
	for _, f := range forget {
		a.release = append(a.release, func() error { f(); return nil })
	}
}

// Drain implements [listener.App].
func (a *app) Drain(ctx context.Context) error {
	err := a.Gateway.Drain(ctx)
	for _, f := range a.release {
		err = errors.Join(err, f())
	}
	return err
}
