package gateway

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"

	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/cli/build"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/cli/exit"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/duties"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/gateway"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/gateway/config"
	"github.com/retrysafe/retrysafe/console"
	"github.com/retrysafe/retrysafe/janitor"
	"github.com/retrysafe/retrysafe/operator"
	"github.com/retrysafe/retrysafe/outbox"
)

// operators is the operators' side of one instance.
type operators struct {
	service *operator.Service
	console *console.Handler
}

// Operators implements [listener.Operated]. It is nil if the configuration names no
// operators.
func (i *instance) Operators() http.Handler {
	if i.operators == nil {
		return nil
	}
	return i.operators.console
}

// hasOperators reports whether a configuration has a listener for operators.
func hasOperators(c *config.Config) bool { return c.Admin.Listen != "" || c.Admin.Socket != "" }

// close stops what operators have begun, and stores what is known of it.
func (o *operators) close(ctx context.Context) error {
	if o == nil {
		return nil
	}
	return errors.Join(o.console.Close(ctx), o.service.Drain(ctx))
}

// addOperators adds the operators' API to an instance. It works on the store as the engine
// of the gateway uses it: with its cache, its encryption and its outbox.
func (b *builder) addOperators(c *config.Config, i *instance, d *deployment) error {
	people := c.Admin.People()
	if len(people) == 0 || !hasOperators(c) {
		return nil
	}
	receipts, _ := d.opened.Outbox.(outbox.ReceiptKeeper) // nil: the store keeps none
	service, err := operator.New(i.Store(), &operator.Options{StoreTimeout: c.StoreTimeout, Observer: b.metrics.Observer(), Receipts: receipts})
	if err != nil {
		return err
	}
	o := console.Options{Service: service, Outbox: d.opened.Outbox, Logger: b.logger, Overview: console.Overview{
		Status: func(ctx context.Context) (any, error) {
			f, err := d.at.Facts(ctx, d.opened)
			f.Version = build.Current().Version
			return f, err
		},
		Reconcile: func(ctx context.Context, only []string) (map[string]map[string]uint64, error) {
			return b.pass(ctx, c, i.Gateway, only)
		},
		Facts: b.facts(c, i.Gateway),
	}}
	for _, p := range people {
		o.Tokens = append(o.Tokens, console.Token{Name: p.Name, Role: p.Role, Secret: string(p.Token)})
	}
	h, err := console.New(o)
	if err != nil {
		return exit.Usagef("admin: %v", err)
	}
	i.operators = &operators{service, h}
	return nil
}

// pass makes one pass of background duties by the configuration, beside those that the
// gateway performs anyway.
func (b *builder) pass(ctx context.Context, c *config.Config, g *gateway.Gateway, only []string) (map[string]map[string]uint64, error) {
	wanted := func(name string) bool { return len(only) == 0 || slices.Contains(only, name) }
	opts, set := janitor.Options{Observer: b.metrics.Observer(), Logger: b.logger}, &duties.Set{}
	if wanted("sweep") {
		set.Sweeper = janitor.NewSweeper(g.Store(), &opts)
	}
	if wanted("reconcile") && len(c.Reconcile.Resolvers) > 0 {
		resolvers, err := gateway.Resolvers(c, nil)
		if err != nil {
			return nil, err
		}
		set.Reconciler = janitor.NewReconciler(g.Store(), resolvers, gateway.ReconcilerOptions(c, opts))
	} else if slices.Contains(only, "reconcile") {
		return nil, fmt.Errorf("there is no resolver: %w", errors.ErrUnsupported)
	}
	if wanted("reap") {
		set.Reaper = janitor.NewReaper(g.Store(), &janitor.ReaperOptions{Options: opts, Tombstone: c.Janitor.Tombstone})
	}
	err := set.RunOnce(ctx, nil)
	return set.Counts(), err
}
