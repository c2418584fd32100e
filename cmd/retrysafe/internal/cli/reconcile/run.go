package reconcile

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/cli/build"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/cli/command"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/cli/configfile"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/cli/exit"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/cli/stores"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/duties"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/gateway"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/gateway/config"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/printable"
	"github.com/retrysafe/retrysafe/janitor"
	"github.com/retrysafe/retrysafe/janitor/httpresolver"
	"github.com/retrysafe/retrysafe/telemetry"
)

// tokenVariable has the bearer token for the resolver.
const tokenVariable = "RETRYSAFE_RESOLVER_TOKEN"

// runFlags are what the flags of reconcile run ask for.
type runFlags struct {
	target                   stores.Flags
	url, tokenFile           string
	plainHTTP                bool
	namespace, call          string
	only                     []string
	watch, verbose           bool
	every, settle, tombstone time.Duration
	tombstoneGiven           bool
	tries, workers           int
	metricsListen            string
	format                   *command.Choice
}

func runCommand(env *command.Env) *cobra.Command {
	var f runFlags
	cmd := &cobra.Command{
		Use:   "run",
		Short: "Sweep, ask a resolver, and reap: one pass, or until stopped",
		Long: `Performs the background duties: settles attempts whose lease has ended (sweep), asks a
resolver about unknown outcomes (reconcile), and deletes expired records (reap). It makes
one pass, or repeats them with --watch. It may run beside gateways and programs that do
the same: each change is one compare-and-swap.

The resolver is an HTTP endpoint of yours that can look operations up at the other side.
It gets a POST with the names of the operation and replies with a verdict; see
docs/recovery.md. $` + tokenVariable + `, or the file of --resolver-token-file, has a
bearer token for it. Without --resolver-url the resolvers of --config are asked (reconcile
of a gateway's configuration); without those unknown outcomes are left as they are.

If expired keys are kept as tombstones (janitor.tombstone of a gateway's configuration),
say so here too, by --config or --tombstone: all programs that delete records must agree
on it. If there are tombstones in the store and neither is given, nothing is done.

With --admin URL a gateway makes one pass, by its own configuration and with its own
resolvers; $` + stores.TokenVariable + ` or --admin-token-file has the token.

` + stores.Help,
		Example: `  # one pass, with a resolver on this machine
  retrysafe reconcile run --store sqlite:retrysafe.db --resolver-url http://127.0.0.1:9001/resolve
  # only sweep, until stopped
  retrysafe reconcile run --store postgres://app@db/app --only sweep --watch
  # with the resolvers of a gateway's configuration, and metrics for Prometheus
  retrysafe reconcile run --config gateway.yaml --watch --metrics-listen 127.0.0.1:9464
  # from a scheduled job
  retrysafe reconcile run --config gateway.yaml --resolver-url https://payments.internal/resolve --resolver-token-file token --format json`,
		Args: command.Args(),
	}
	flags := cmd.Flags()
	f.target.Add(flags)
	f.target.AddAdmin(flags)
	flags.StringVar(&f.url, "resolver-url", "", "endpoint that can say what became of operations")
	flags.StringVar(&f.tokenFile, "resolver-token-file", "", "`FILE` with a bearer token for it")
	flags.BoolVar(&f.plainHTTP, "plain-http", false, "ask it over http on another machine: an attacker on the network could answer instead")
	flags.StringVar(&f.namespace, "namespace", config.Namespace, "Options.Namespace of the engine, for downstream keys")
	flags.StringVar(&f.call, "call", config.UpstreamCall, "name of the outside call whose downstream key is sent")
	flags.StringSliceVar(&f.only, "only", nil, "some of sweep, reconcile, reap (default all)")
	flags.BoolVar(&f.watch, "watch", false, "repeat until stopped")
	flags.DurationVar(&f.every, "every", 0, "with --watch: how often resolvers are asked (default 30s)")
	flags.DurationVar(&f.settle, "settle", 0, "how long an outcome must have been unknown before not_happened is believed (default 1m)")
	flags.IntVar(&f.tries, "tries", 0, "how often a resolver is asked before an operator has to look (default 12)")
	flags.IntVar(&f.workers, "workers", 0, "questions at the same time (default 8)")
	flags.DurationVar(&f.tombstone, "tombstone", 0, "how long a key is kept after its answer has expired")
	flags.StringVar(&f.metricsListen, "metrics-listen", "", "with --watch: `ADDRESS` on which /metrics is served to Prometheus")
	flags.BoolVar(&f.verbose, "verbose", false, "log what is done to each record")
	f.format = command.NewFormat(cmd, "text", "json")
	command.Complete(cmd, "only", duties.Names...)
	cmd.RunE = command.Run(func(cmd *cobra.Command, _ []string) error {
		if f.target.AdminURL != "" {
			return f.runAdmin(cmd.Context(), env, cmd.Flags().Changed)
		}
		f.tombstoneGiven = cmd.Flags().Changed("tombstone")
		return f.run(cmd.Context(), env)
	})
	return cmd
}

func (f *runFlags) run(ctx context.Context, env *command.Env) error {
	if err := f.check(); err != nil {
		return err
	}
	ask, err := f.resolver(env)
	if err != nil {
		return err
	}
	asking := &janitor.ReconcilerOptions{}
	if f.target.Config != "" {
		c, err := configfile.Load(env, f.target.Config)
		if err != nil {
			return err
		}
		if !f.tombstoneGiven {
			f.tombstone = c.Janitor.Tombstone
		}
		if ask == nil && f.includes("reconcile") && len(c.Reconcile.Resolvers) > 0 {
			all, err := gateway.Resolvers(c, nil)
			if err != nil {
				return exit.Usagef("%v", err)
			}
			ask, asking = all, gateway.ReconcilerOptions(c, janitor.Options{})
		}
	}
	if slices.Contains(f.only, "reconcile") && ask == nil {
		return exit.Usagef("there is no resolver to ask").Hintf("--resolver-url names one, or reconcile.resolvers in the file of --config")
	}
	s, err := f.target.Open(ctx, env)
	if err != nil {
		return err
	}
	defer s.Close(ctx)
	if f.includes("reap") && f.tombstone == 0 {
		if err := checkNoTombstones(ctx, s); err != nil {
			return err
		}
	}
	metrics := telemetry.New(&telemetry.Options{Version: build.Current().Version})
	all := f.makeDuties(env, s.Store, metrics.Observer(), ask, asking)
	if f.watch {
		stop, wrong := f.serveMetrics(ctx, env, metrics, all)
		if wrong != nil {
			return wrong
		}
		defer stop()
		fmt.Fprintf(env.Err, "working on %s, until stopped\n", s)
		err = janitor.Run(ctx, f.watched(env, s.Store, metrics, all)...)
	} else {
		err = all.RunOnce(ctx, func(pass func() error) error {
			stop := env.Progress().Watch(func() (int64, string) { return handled(all), "records handled" })
			defer stop()
			return pass()
		})
	}
	counts := all.Counts()
	if err := report(env.Out, counts, f.format.Is("json")); err != nil {
		return err
	}
	if err != nil {
		return s.StoreError(err)
	}
	if resolverFailed(counts) {
		return exit.Errorf(exit.Failed, "the resolver could not answer any question").Hintf("--verbose says why")
	}
	return nil
}

// runAdmin has a gateway make one pass, by its own configuration.
func (f *runFlags) runAdmin(ctx context.Context, env *command.Env, given func(flag string) bool) error {
	for _, name := range []string{
		"resolver-url", "resolver-token-file", "plain-http", "namespace", "call", "watch", "every", "settle", "tries", "workers", "tombstone", "metrics-listen", "verbose",
	} {
		if given(name) {
			return exit.Usagef("with --admin the gateway makes one pass, by its own configuration").Hintf("leave out --%s", name)
		}
	}
	if err := f.check(); err != nil {
		return err
	}
	a, err := f.target.OpenAdmin(ctx, env)
	if err != nil {
		return err
	}
	defer a.Close(ctx)
	counts, err := a.Reconcile(ctx, f.only)
	switch {
	case errors.Is(err, errors.ErrUnsupported):
		return exit.Usagef("there is no resolver to ask").Hintf("reconcile.resolvers of the gateway's configuration names them")
	case err != nil:
		return a.StoreError(err)
	}
	if err := report(env.Out, counts, f.format.Is("json")); err != nil {
		return err
	}
	if resolverFailed(counts) {
		return exit.Errorf(exit.Failed, "the resolver could not answer any question").Hintf("the gateway's log says why")
	}
	return nil
}

// makeDuties returns the duties that the flags ask for. Ask is nil for no resolver; asking are
// the options of its questions that flags override.
func (f *runFlags) makeDuties(env *command.Env, store retrysafe.Store, seen retrysafe.Observer, ask janitor.Resolver, asking *janitor.ReconcilerOptions) *duties.Set {
	level := slog.LevelError // the report has the numbers of one pass
	if f.watch || f.verbose {
		level = slog.LevelInfo
	}
	opts := janitor.Options{Observer: seen, Logger: slog.New(slog.NewTextHandler(env.Err, &slog.HandlerOptions{Level: level})), Workers: f.workers}
	all := new(duties.Set)
	if f.includes("sweep") {
		all.Sweeper = janitor.NewSweeper(store, &opts)
	}
	if ask != nil {
		o := *asking
		o.Options = opts
		o.Every, o.Workers = cmp.Or(f.every, asking.Every), cmp.Or(f.workers, asking.Workers)
		o.Tries, o.Settle = cmp.Or(f.tries, asking.Tries), cmp.Or(f.settle, asking.Settle)
		all.Reconciler = janitor.NewReconciler(store, ask, &o)
	}
	if f.includes("reap") {
		all.Reaper = janitor.NewReaper(store, &janitor.ReaperOptions{Options: opts, Tombstone: f.tombstone})
	}
	return all
}

// checkNoTombstones returns an error if the store has tombstones. A reaper that does not
// know for how long they are kept would free keys that other programs promised to keep.
func checkNoTombstones(ctx context.Context, s *stores.Session) error {
	kept, err := s.Store.List(ctx, retrysafe.Query{States: []retrysafe.State{retrysafe.StateExpired}, Limit: 1})
	if err != nil {
		return s.StoreError(err)
	}
	if len(kept) > 0 {
		return exit.Usagef("expired keys are kept in %s, and a reaper has to know for how long", s).
			Hintf("--config FILE or --tombstone says so, and --only sweep,reconcile leaves reaping to other programs")
	}
	return nil
}

func (f *runFlags) check() error {
	for _, name := range f.only {
		if !slices.Contains(duties.Names, name) {
			return exit.Usagef("--only %s: there is no such duty", name).Hintf("they are %s", strings.Join(duties.Names, ", "))
		}
	}
	switch {
	case f.metricsListen != "" && !f.watch:
		return exit.Usagef("--metrics-listen is for a program that goes on: add --watch")
	case f.every < 0 || f.settle < 0 || f.tombstone < 0 || f.tries < 0 || f.workers < 0:
		return exit.Usagef("a flag is negative")
	}
	return nil
}

// includes reports whether a duty is to be performed.
func (f *runFlags) includes(duty string) bool {
	return len(f.only) == 0 || slices.Contains(f.only, duty)
}

// resolver returns the resolver to ask, or nil for none.
func (f *runFlags) resolver(env *command.Env) (janitor.Resolver, error) {
	if f.url == "" || !f.includes("reconcile") {
		return nil, nil
	}
	opts := &httpresolver.Options{Name: resolverName(f.url), Token: env.Getenv(tokenVariable), Namespace: f.namespace, Call: f.call, PlainHTTP: f.plainHTTP}
	if f.tokenFile != "" {
		text, err := os.ReadFile(f.tokenFile)
		if err != nil {
			return nil, exit.Usagef("--resolver-token-file: %v", err)
		}
		opts.Token = strings.TrimSpace(string(text))
	}
	if strings.ContainsFunc(opts.Token, func(c rune) bool { return c <= ' ' || c > '~' }) {
		return nil, exit.Usagef("the resolver's token contains characters that no token has")
	}
	r, err := httpresolver.New(f.url, opts)
	switch {
	case errors.Is(err, httpresolver.ErrPassword):
		return nil, exit.Usagef("--resolver-url: %v", err).Hintf("give a token with --resolver-token-file")
	case errors.Is(err, httpresolver.ErrPlainHTTP):
		return nil, exit.Usagef("--resolver-url: %v: an attacker on the network could answer instead, and make an operation run twice", err).
			Hintf("--plain-http trusts the network")
	case err != nil:
		return nil, exit.Usagef("--resolver-url: %v", err)
	}
	return r, nil
}

// resolverName returns the name of a resolver in notes: its host, made printable.
func resolverName(address string) string {
	u, err := url.Parse(address)
	if err != nil {
		return ""
	}
	return printable.Text(u.Host)
}
