package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"

	"github.com/spf13/cobra"

	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/gateway/config"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/gateway/listener"
	"github.com/retrysafe/retrysafe/telemetry"
)

// fields are the flags that say what a field of the configuration would.
var fields = []struct{ flag, field, usage string }{
	{"upstream", "upstream", "`URL` of the service that is guarded"},
	{"listen", "listen", "`ADDR`ess where clients come in (default 127.0.0.1:8080)"},
	{"store", "store", "`URL` of the store (default sqlite:retrysafe.db)"},
	{"profile", "profile", "how errors look: `ietf|stripe` (default ietf)"},
	{"tenant", "tenant", "how callers are told apart: `header:NAME|bearer|jwt:CLAIM|none`"},
	{"on-5xx", "defaults.on_5xx", "what a 5xx of the service means: `by_proof|retry|store` (default by_proof)"},
	{"admin", "admin.listen", "`ADDR`ess for operators: health, metrics"},
	{"keys-file", "encryption.keys_file", "`FILE` with the keys that records are encrypted with"},
}

const adminToken = "RETRYSAFE_ADMIN_TOKEN"

func (p *program) gateway() *cobra.Command {
	var path string
	var logAll bool
	cmd := &cobra.Command{
		Use:   "gateway",
		Short: "Make the POSTs of any service retry-safe",
		Long: `Stands before a service, in whatever language, and makes its POSTs and PATCHes
retry-safe: a request with an Idempotency-Key runs at most once, every retry gets the
stored answer, and what may have happened is set aside, never sent again. All else
passes through untouched.

It is configured by a file (docs/configuration.md), by flags, or by both: flags count
more. Without a file --upstream and --tenant are needed; there is no default for the
tenant, because callers that are not told apart could see each other's answers.

  --tenant header:NAME   a header, believed only from proxies on this machine
                         (tenant.trusted_proxies of a file says from whom else)
  --tenant bearer        a hash of the bearer token
  --tenant jwt:CLAIM     a claim of a JSON web token; a file says whose
  --tenant none          all callers are one, said aloud

--admin needs a token of at least 16 characters, in $` + adminToken + `. Without --store
and without a file, $` + storeVariable + ` names the store.

SIGTERM and Ctrl-C end it in order: requests that were accepted get their answers, and
what became of them is stored. A second signal ends it at once. SIGHUP, or a change of
the file, lets it read its configuration again: as a whole, or not at all.`,
		Example: `  # before a service on this machine, with a store beside it
  retrysafe gateway --upstream http://127.0.0.1:9000 --tenant bearer
  # behind a proxy on this machine that says who calls, over PostgreSQL
  retrysafe gateway --upstream http://127.0.0.1:9000 --tenant header:X-Tenant-Id --store postgres://app@db/app --listen 127.0.0.1:8080
  # by a file, on another port
  retrysafe gateway --config gateway.yaml --listen 127.0.0.1:8090`,
		Args: exactly(),
	}
	flags := cmd.Flags()
	for _, f := range fields {
		flags.String(f.flag, "", f.usage)
	}
	flags.StringVar(&path, "config", "", "configuration `FILE`")
	flags.BoolVar(&logAll, "log-all", false, "log requests that pass through untouched, too")
	format := chooses(cmd, "log-format", "what log lines look like", "text", "json")
	complete(cmd, "profile", "ietf", "stripe")
	complete(cmd, "tenant", "header:", "bearer", "jwt:", "none")
	complete(cmd, "on-5xx", "by_proof", "retry", "store")
	cmd.RunE = runs(func(cmd *cobra.Command, _ []string) error {
		said := func(name string) (string, bool) {
			v, _ := flags.GetString(name) // it is there
			return v, given(flags, name)
		}
		logger := slog.New(slog.NewTextHandler(p.stderr, nil))
		if format.value == "json" {
			logger = slog.New(slog.NewJSONHandler(p.stderr, nil))
		}
		return p.serve(cmd.Context(), path, p.overrides(path, said), logger, logAll)
	})
	return cmd
}

// overrides returns what is said beside the file.
func (p *program) overrides(path string, said func(name string) (string, bool)) (over []config.Flag) {
	for _, f := range fields {
		if v, ok := said(f.flag); ok {
			over = append(over, config.Flag{Name: "--" + f.flag, Field: f.field, Value: v})
		}
	}
	if _, ok := said("store"); !ok && path == "" && p.getenv(storeVariable) != "" {
		over = append(over, config.Flag{Name: "$" + storeVariable, Field: "store", Value: p.getenv(storeVariable)})
	}
	if _, ok := said("admin"); ok && p.getenv(adminToken) != "" {
		over = append(over, config.Flag{Name: "$" + adminToken, Field: "admin.token", Value: p.getenv(adminToken)})
	}
	return over
}

// serve runs a gateway until ctx ends.
func (p *program) serve(ctx context.Context, path string, over []config.Flag, logger *slog.Logger, logAll bool) error {
	background, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	var w *watching
	read := func() (*config.Config, error) { return p.loadConfig(path, over...) }
	reload := make(chan struct{}, 1)
	again := func() {
		select {
		case reload <- struct{}{}:
		default: // it is asked for already
		}
	}
	var all sync.WaitGroup
	defer all.Wait()
	defer stop()
	hangups := p.hangups(background)
	all.Go(func() {
		for {
			select {
			case <-hangups:
				again()
			case <-background.Done():
				return
			}
		}
	})
	all.Go(func() { p.paceCollector(background) })
	if path != "" {
		w = &watching{ctx: background, path: path, changed: again, logger: logger, all: &all}
	}
	b := &builder{
		program: p, logger: logger, metrics: telemetry.New(&telemetry.Options{Version: thisBuild().Version}),
		access: &listener.AccessLog{Logger: logger, All: logAll},
	}
	server, err := listener.New(listener.Options{
		Load:     func() (*config.Config, error) { return w.load(read) },
		Build:    b.build,
		Metrics:  b.metrics.Handler(),
		Reload:   reload,
		Upgrades: true, // the gateway passes nothing on but a WebSocket
		Ready:    b.say,
		Logger:   logger,
	})
	if err != nil {
		return err
	}
	err = server.Run(ctx)
	if f, ok := errors.AsType[*failure](err); ok {
		return f
	}
	if err != nil {
		return failed(exitFailed, "%v", err)
	}
	return nil
}

// say tells a person what this gateway does.
func (b *builder) say(at listener.Addresses) {
	b.mu.Lock()
	c, warnings := b.last, b.warnings
	b.mu.Unlock()
	out := func(format string, args ...any) { fmt.Fprintf(b.stdout, "retrysafe: "+format+"\n", args...) }
	out("gateway on %s", visible(at.Main))
	out("upstream %s", visible(c.Upstream))
	a := address{url: c.Store}
	out("store %s", &a)
	if c.Encryption.KeysFile != "" {
		out("records are encrypted with the keys in %s", visible(c.Encryption.KeysFile))
	}
	out("tenant: %s", visible(tenantRule(&c.Tenant)))
	if at.Admin != "" {
		out("operators on %s", visible(at.Admin))
	}
	for _, w := range warnings {
		out("warning: %s", visible(w))
	}
}

// tenantRule says how callers are told apart.
func tenantRule(t *config.Tenant) string {
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
