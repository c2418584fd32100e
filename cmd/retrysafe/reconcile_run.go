package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/janitor"
)

// reconciling is how the background duties are done by hand.
type reconciling struct {
	stores                   *storeFlags
	url, tokenFile           string
	plainHTTP                bool
	namespace, call          string
	only                     []string
	watch, verbose           bool
	every, settle, tombstone time.Duration
	tombstoneGiven           bool
	tries, workers           int
	format                   *choice
}

func (p *program) reconcileRun() *cobra.Command {
	var c reconciling
	cmd := &cobra.Command{
		Use:   "run",
		Short: "Sweep, ask a resolver, and reap: one pass, or until stopped",
		Long: `Does what background duties do: settles attempts whose owner fell silent (sweep), asks
a resolver about unknown outcomes (reconcile), and deletes what is forgotten (reap).
One pass, or again and again with --watch. It may run beside gateways and programs that
do the same: each change is one compare-and-swap.

The resolver is an HTTP endpoint of yours that knows somebody who knows: it gets a POST
with the operation's names and answers with a verdict, as docs/recovery.md says. Without
--resolver-url unknown outcomes are left as they are. $RETRYSAFE_RESOLVER_TOKEN, or the
file of --resolver-token-file, has a bearer token for it.

Whoever remembers expired keys (janitor.tombstone of a gateway's configuration) names
that here too, by --config or --tombstone: all who delete must agree on it. If there are
such keys and nobody does, nothing is done.

` + storeHelp,
		Example: `  # one pass, with a resolver on this machine
  retrysafe reconcile run --store sqlite:retrysafe.db --resolver-url http://127.0.0.1:9001/resolve
  # only sweep, until stopped
  retrysafe reconcile run --store postgres://app@db/app --only sweep --watch
  # from a scheduled job
  retrysafe reconcile run --config gateway.yaml --resolver-url https://payments.internal/resolve --resolver-token-file token --format json`,
		Args: exactly(),
	}
	c.stores = new(storeFlags)
	flags := cmd.Flags()
	c.stores.add(flags)
	flags.StringVar(&c.url, "resolver-url", "", "endpoint that knows what became of operations")
	flags.StringVar(&c.tokenFile, "resolver-token-file", "", "`FILE` with a bearer token for it")
	flags.BoolVar(&c.plainHTTP, "plain-http", false, "ask it over http on another machine: whoever is on the way can answer instead")
	flags.StringVar(&c.namespace, "namespace", gatewayNamespace, "Options.Namespace of the engine, for downstream keys")
	flags.StringVar(&c.call, "call", gatewayCall, "name of the outside call whose downstream key is sent")
	flags.StringSliceVar(&c.only, "only", nil, "some of sweep, reconcile, reap (default all)")
	flags.BoolVar(&c.watch, "watch", false, "again and again, until stopped")
	flags.DurationVar(&c.every, "every", 0, "with --watch: how often resolvers are asked (default 30s)")
	flags.DurationVar(&c.settle, "settle", 0, "how long an outcome must have been unknown before not_happened is believed (default 1m)")
	flags.IntVar(&c.tries, "tries", 0, "questions in vain before a person has to look (default 12)")
	flags.IntVar(&c.workers, "workers", 0, "questions at once (default 8)")
	flags.DurationVar(&c.tombstone, "tombstone", 0, "how long a key is remembered after its answer")
	flags.BoolVar(&c.verbose, "verbose", false, "say what is done to each record")
	c.format = formats(cmd, "text", "json")
	complete(cmd, "only", "sweep", "reconcile", "reap")
	cmd.RunE = runs(func(cmd *cobra.Command, _ []string) error {
		c.tombstoneGiven = given(cmd.Flags(), "tombstone")
		return p.reconcileNow(cmd.Context(), &c)
	})
	return cmd
}

// The downstream keys that a gateway derives are made of these.
const (
	gatewayNamespace = "retrysafe gateway"
	gatewayCall      = "upstream"
)

// duties are those that are to be done.
type duties struct {
	sweeper    *janitor.Sweeper
	reconciler *janitor.Reconciler
	reaper     *janitor.Reaper
}

func (p *program) reconcileNow(ctx context.Context, c *reconciling) error {
	if err := c.check(); err != nil {
		return err
	}
	ask, err := c.resolver(p)
	if err != nil {
		return err
	}
	if c.stores.config != "" && !c.tombstoneGiven {
		file, err := p.loadConfig(c.stores.config)
		if err != nil {
			return err
		}
		c.tombstone = file.Janitor.Tombstone
	}
	d, err := c.stores.open(ctx, p)
	if err != nil {
		return err
	}
	defer d.close(ctx)
	if c.does("reap") && c.tombstone == 0 {
		if err := d.mustHaveNoTombstones(ctx); err != nil {
			return err
		}
	}
	level := slog.LevelError // one pass is reported as a whole
	if c.watch || c.verbose {
		level = slog.LevelInfo
	}
	logger := slog.New(slog.NewTextHandler(p.stderr, &slog.HandlerOptions{Level: level}))
	common := janitor.Options{Logger: logger, Workers: c.workers}
	var all duties
	if c.does("sweep") {
		all.sweeper = janitor.NewSweeper(d.store, &common)
	}
	if ask != nil {
		asking := common
		asking.Every = c.every
		all.reconciler = janitor.NewReconciler(d.store, ask, &janitor.ReconcilerOptions{Options: asking, By: "resolver " + visible(ask.host()), Tries: c.tries, Settle: c.settle})
	}
	if c.does("reap") {
		all.reaper = janitor.NewReaper(d.store, &janitor.ReaperOptions{Options: common, Tombstone: c.tombstone})
	}
	if c.watch {
		fmt.Fprintf(p.stderr, "at work on %s, until stopped\n", d)
		err = janitor.Run(ctx, all.list()...)
	} else {
		err = all.once(ctx, p)
	}
	if err := all.report(p.stdout, c.format.value == "json"); err != nil {
		return err
	}
	if err != nil {
		return d.trouble(err)
	}
	if all.inVain() {
		return failed(exitFailed, "the resolver could not answer any question").hinted("--verbose says why")
	}
	return nil
}

// mustHaveNoTombstones reports that others keep expired keys in the store. A reaper
// that does not would free keys that they have promised to remember.
func (d *desk) mustHaveNoTombstones(ctx context.Context) error {
	kept, err := d.store.List(ctx, retrysafe.Query{States: []retrysafe.State{retrysafe.StateExpired}, Limit: 1})
	if err != nil {
		return d.trouble(err)
	}
	if len(kept) > 0 {
		return misused("expired keys are remembered in %s, and a reaper has to know for how long", d).
			hinted("--config FILE or --tombstone says so, and --only sweep,reconcile leaves reaping to others")
	}
	return nil
}

func (c *reconciling) check() error {
	for _, name := range c.only {
		if !slices.Contains([]string{"sweep", "reconcile", "reap"}, name) {
			return misused("--only %s: there is no such duty", name).hinted("they are sweep, reconcile, reap")
		}
	}
	switch {
	case slices.Contains(c.only, "reconcile") && c.url == "":
		return misused("nobody can be asked: --resolver-url is missing")
	case c.every < 0 || c.settle < 0 || c.tombstone < 0 || c.tries < 0 || c.workers < 0:
		return misused("a flag is negative")
	}
	return nil
}

func (c *reconciling) does(duty string) bool {
	return len(c.only) == 0 || slices.Contains(c.only, duty)
}

// resolver returns who is to be asked, or nobody.
func (c *reconciling) resolver(p *program) (*resolver, error) {
	if c.url == "" || !c.does("reconcile") {
		return nil, nil
	}
	r, err := newResolver(c.url, c.plainHTTP)
	if err != nil {
		return nil, err
	}
	r.namespace, r.call, r.token = c.namespace, c.call, p.getenv("RETRYSAFE_RESOLVER_TOKEN")
	if c.tokenFile != "" {
		text, err := os.ReadFile(c.tokenFile)
		if err != nil {
			return nil, misused("--resolver-token-file: %v", err)
		}
		r.token = strings.TrimSpace(string(text))
	}
	if strings.ContainsFunc(r.token, func(c rune) bool { return c <= ' ' || c > '~' }) {
		return nil, misused("the resolver's token has characters that no token has")
	}
	return r, nil
}

func (d *duties) list() (all []janitor.Duty) {
	if d.sweeper != nil {
		all = append(all, d.sweeper)
	}
	if d.reconciler != nil {
		all = append(all, d.reconciler)
	}
	if d.reaper != nil {
		all = append(all, d.reaper)
	}
	return all
}

// once does each duty once, in an order in which what one leaves the next finds.
func (d *duties) once(ctx context.Context, p *program) error {
	for _, duty := range d.list() {
		g := p.progress()
		stop := g.watch(func() (int64, string) { return d.counts(), "records seen to" })
		_, err := duty.RunOnce(ctx)
		stop()
		if err == nil {
			err = ctx.Err()
		}
		if err != nil {
			return fmt.Errorf("%s: %w", duty.Schedule().Name, err)
		}
	}
	return nil
}

// counts is how many records were seen to so far.
func (d *duties) counts() (n int64) {
	if d.sweeper != nil {
		s := d.sweeper.Stats()
		n += int64(s.Quarantined + s.Failed + s.Released + s.Requeued + s.Abandoned)
	}
	if d.reconciler != nil {
		n += int64(d.reconciler.Stats().Asked)
	}
	if d.reaper != nil {
		s := d.reaper.Stats()
		n += int64(s.Deleted + s.Expired)
	}
	return n
}

// inVain reports whether whoever was asked could not answer once.
func (d *duties) inVain() bool {
	if d.reconciler == nil {
		return false
	}
	s := d.reconciler.Stats()
	return s.Asked > 0 && s.Asked == s.ResolverErrors
}

// report says what was done, leaving out what was not.
func (d *duties) report(w io.Writer, asJSON bool) error {
	out := map[string]map[string]uint64{}
	if d.sweeper != nil {
		s := d.sweeper.Stats()
		out["sweep"] = map[string]uint64{
			"quarantined": s.Quarantined, "failed": s.Failed, "released": s.Released, "requeued": s.Requeued, "abandoned": s.Abandoned,
			"overtaken": s.Overtaken, "unreadable": uint64(s.Unreadable),
		}
	}
	if d.reconciler != nil {
		s := d.reconciler.Stats()
		out["reconcile"] = map[string]uint64{
			"asked": s.Asked, "resolver errors": s.ResolverErrors, "completed": s.Completed, "released": s.Released,
			"still unknown": s.StillUnknown, "dead": s.Dead, "contradicted": s.Contradicted, "overtaken": s.Overtaken, "unreadable": uint64(s.Unreadable),
		}
	}
	if d.reaper != nil {
		s := d.reaper.Stats()
		out["reap"] = map[string]uint64{"deleted": s.Deleted, "expired": s.Expired}
	}
	if asJSON {
		for _, counts := range out {
			for name, n := range counts {
				if plain := strings.ReplaceAll(name, " ", "_"); plain != name {
					delete(counts, name)
					counts[plain] = n
				}
			}
		}
		return writeJSON(w, out)
	}
	for _, duty := range []string{"sweep", "reconcile", "reap"} {
		counts, ok := out[duty]
		if !ok {
			continue
		}
		var parts []string
		for _, name := range slices.Sorted(maps.Keys(counts)) {
			if n := counts[name]; n > 0 {
				parts = append(parts, grouped(int64(n))+" "+name)
			}
		}
		if len(parts) == 0 {
			parts = []string{"nothing to do"}
		}
		fmt.Fprintf(w, "%-10s %s\n", duty, strings.Join(parts, ", "))
	}
	return nil
}
