package gateway

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/gateway/config"
	"github.com/retrysafe/retrysafe/httpkey"
	"github.com/retrysafe/retrysafe/janitor"
)

// lookedInto reports whether unknown outcomes of the route with this pattern are looked
// into without an operator. "" is the route of the defaults.
func lookedInto(c *config.Config, pattern string) bool {
	return c.Resolves(pattern) || slices.ContainsFunc(c.Webhooks, func(w config.Webhook) bool { return w.Covers(pattern) })
}

// LookedInto returns a function that reports whether unknown outcomes of an operation are
// looked into without an operator.
func LookedInto(c *config.Config) func(operation string) bool {
	routes := map[string]bool{}
	for i := range c.Routes {
		for _, operation := range operationsOf(c.Routes[i].Match) {
			routes[operation] = lookedInto(c, c.Routes[i].Match)
		}
	}
	others := lookedInto(c, "")
	return func(operation string) bool {
		looked, named := routes[operation]
		return looked || !named && others
	}
}

// unclear returns the problem of an attempt whose outcome is unknown.
func (rt *route) unclear() httpkey.Problem {
	if rt.lookedInto {
		return unclearNow
	}
	return unclear
}

// makeReconciler has unknown outcomes found out, where the configuration has resolvers.
func (g *Gateway) makeReconciler(c *config.Config, p *Parts) error {
	if c.Janitor.Off || len(c.Reconcile.Resolvers) == 0 {
		return nil
	}
	resolvers, err := Resolvers(c, g.tracing.engine())
	if err != nil {
		return err
	}
	g.reconciler = janitor.NewReconciler(g.store, resolvers, ReconcilerOptions(c, janitor.Options{Observer: p.Observer, Tracer: g.tracing.engine(), Logger: g.logger}))
	g.duties = append(g.duties, func(ctx context.Context) error { return janitor.Run(ctx, g.reconciler) })
	return nil
}

// Reconciler returns what asks about unknown outcomes, or nil if the configuration has no
// resolver.
func (g *Gateway) Reconciler() *janitor.Reconciler { return g.reconciler }

// ReconcilerOptions returns the options of a reconciler by the configuration. Common are
// those that all duties share.
func ReconcilerOptions(c *config.Config, common janitor.Options) *janitor.ReconcilerOptions {
	r := &c.Reconcile
	common.Every, common.Workers = r.Every, r.Concurrency
	return &janitor.ReconcilerOptions{
		Options: common, Timeout: r.Timeout, Pause: r.Pause, MaxPause: r.MaxPause, Tries: r.Tries,
		BreakAfter: r.BreakAfter, BreakPause: r.BreakPause, MaxBreakPause: r.MaxBreakPause,
	}
}

// Resolvers returns the resolvers of a configuration by the operations of its routes. Tracer
// is that of the reconciler; nil: there is none.
func Resolvers(c *config.Config, tracer retrysafe.Tracer) (janitor.Resolvers, error) {
	all := janitor.Resolvers{}
	for i := range c.Reconcile.Resolvers {
		r := &c.Reconcile.Resolvers[i]
		ask, err := r.Open(httpkey.StoredBody, tracer)
		if err != nil {
			return nil, fmt.Errorf("reconcile.resolvers[%d]: %w", i, err)
		}
		one := &wholeQuestion{ask, c.Reconcile.Timeout}
		if len(r.Routes) == 0 {
			all[""] = one
		}
		for _, pattern := range r.Routes {
			for _, operation := range operationsOf(pattern) {
				all[operation] = one
			}
		}
	}
	return all, nil
}

// A wholeQuestion is a resolver whose questions are not broken off when the reconciler
// stops: what a reload replaces, or a gateway that shuts down, ends its questions first.
type wholeQuestion struct {
	janitor.Resolver
	within time.Duration
}

// Resolve implements [janitor.Resolver].
func (q *wholeQuestion) Resolve(ctx context.Context, r retrysafe.Record) (retrysafe.Evidence, error) {
	within := q.within
	if until, ok := ctx.Deadline(); ok {
		within = min(within, time.Until(until))
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), within)
	defer cancel()
	return q.Resolver.Resolve(ctx, r)
}
