// Package gateway is the command "retrysafe gateway": it serves a configuration until
// it is stopped, and reloads it on demand. In its files the name gateway refers to the
// package that handles requests.
package gateway

import (
	"context"
	"errors"
	"log/slog"
	"strconv"
	"strings"
	"sync"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/cli/build"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/cli/command"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/cli/configfile"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/cli/exit"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/cli/stores"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/gateway/admission"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/gateway/config"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/gateway/listener"
	"github.com/retrysafe/retrysafe/telemetry"
	"github.com/retrysafe/retrysafe/telemetry/otel"
)

// configFlags are the flags that set a field of the configuration.
var configFlags = []struct{ flag, field, usage string }{
	{"upstream", "upstream", "`URL` of the service"},
	{"listen", "listen", "`ADDRESS` for clients (default 127.0.0.1:8080)"},
	{"store", "store", "`URL` of the store (default sqlite:retrysafe.db)"},
	{"profile", "profile", "format of errors: `ietf|stripe` (default ietf)"},
	{"tenant", "tenant", "how callers are told apart: `header:NAME|bearer|jwt:CLAIM|none`"},
	{"on-5xx", "defaults.on_5xx", "what a 5xx of the service means: `by_proof|retry|store` (default by_proof)"},
	{"admin", "admin.listen", "`ADDRESS` for operators: health, metrics"},
	{"keys-file", "encryption.keys_file", "`FILE` with the keys that records are encrypted with"},
}

// defaultFlags are the flags without a value that set a field of the configuration, and
// what they set it to.
var defaultFlags = []struct {
	flag, field string
	to          bool
	usage       string
}{
	{"observe", "defaults.observe", true, "enforce nothing: forward every request, and log what would be refused or replayed"},
	{"optional", "defaults.required", false, "forward requests without a key unguarded, instead of refusing them"},
}

// adminTokenVariable has the token of operators.
const adminTokenVariable = "RETRYSAFE_ADMIN_TOKEN"

// Command returns the command.
func Command(env *command.Env) *cobra.Command {
	var path string
	var logAll, adopt bool
	cmd := &cobra.Command{
		Use:   "gateway",
		Short: "Make the POSTs of any service retry-safe",
		Long: `A reverse proxy for a service in any language that makes its POSTs and PATCHes
retry-safe: a request with an Idempotency-Key runs at most once, every retry gets the
stored answer, and an operation that may have happened is set aside, never sent again.
All other requests pass through unchanged.

It is configured by a file (docs/configuration.md), by flags, or by both: flags override
the file. Without a file --upstream and --tenant are required; there is no default for
the tenant, because callers that are not told apart could see each other's answers.

  --tenant header:NAME   a header, believed only from proxies on this machine
                         (tenant.trusted_proxies of a file names others)
  --tenant bearer        a hash of the bearer token
  --tenant jwt:CLAIM     a claim of a JSON web token; a file says whose
  --tenant none          all callers are one tenant; logged as a warning at startup

By default a POST or PATCH without a key is refused (400), and so is one with a key whose
caller cannot be told (401, 403) or whose body is over 1 MiB (413). For a first try before a
service whose clients send no keys yet:

  --observe    enforces nothing: every request is forwarded, and the log says what would
               have been refused or replayed
  --optional   forwards requests without a key unguarded; those with a key are guarded

A store belongs to the settings that its keys were stored under: tenant, key header,
scope, bind, profile and encryption. A gateway with others does not start, because it
would find none of the keys and run every retry again. --adopt-identity lets it start,
and gives the store to the new settings. For the same reason a reload that changes one
of them, or the store, is refused (docs/configuration.md#what-a-reload-may-not-change).

--admin needs a token of at least 16 characters, in $` + adminTokenVariable + `. Without
--store and without a file, $` + stores.URLVariable + ` names the store.

SIGTERM and Ctrl-C shut it down gracefully: accepted requests get their answers, and
their outcomes are stored. A second signal ends it at once. SIGHUP, or a change of the
file, reloads the configuration: completely, or not at all.`,
		Example: `  # before a service on this machine, with a store beside it
  retrysafe gateway --upstream http://127.0.0.1:9000 --tenant bearer
  # behind a proxy on this machine that names the caller, over PostgreSQL
  retrysafe gateway --upstream http://127.0.0.1:9000 --tenant header:X-Tenant-Id --store postgres://app@db/app --listen 127.0.0.1:8080
  # at first only watch what it would do
  retrysafe gateway --upstream http://127.0.0.1:9000 --tenant bearer --observe
  # guard requests that have a key, and forward the others
  retrysafe gateway --upstream http://127.0.0.1:9000 --tenant bearer --optional
  # by a file, on another port
  retrysafe gateway --config gateway.yaml --listen 127.0.0.1:8090
  # once, after the key header was changed and no client retries an old request
  retrysafe gateway --config gateway.yaml --adopt-identity`,
		Args: command.Args(),
	}
	flags := cmd.Flags()
	for _, f := range configFlags {
		flags.String(f.flag, "", f.usage)
	}
	for _, f := range defaultFlags {
		flags.Bool(f.flag, false, f.usage)
	}
	flags.StringVar(&path, "config", "", "configuration `FILE`")
	flags.BoolVar(&adopt, "adopt-identity", false, "use the store with these settings, though its keys were stored under others")
	flags.BoolVar(&logAll, "log-all", false, "log requests that pass through unchanged, too")
	format := command.NewChoice(cmd, "log-format", "format of log lines", "text", "json")
	command.Complete(cmd, "profile", "ietf", "stripe")
	command.Complete(cmd, "tenant", "header:", "bearer", "jwt:", "none")
	command.Complete(cmd, "on-5xx", "by_proof", "retry", "store")
	cmd.RunE = command.Run(func(cmd *cobra.Command, _ []string) error {
		given := func(name string) (string, bool) {
			if f := flags.Lookup(name); f.Changed {
				return f.Value.String(), true
			}
			return "", false
		}
		logger := slog.New(slog.NewTextHandler(env.Err, nil))
		if format.Is("json") {
			logger = slog.New(slog.NewJSONHandler(env.Err, nil))
		}
		b := &builder{
			out: env.Out, logger: logger, metrics: telemetry.New(&telemetry.Options{Version: build.Current().Version, TraceID: otel.TraceID}),
			access: &listener.AccessLog{Logger: logger, All: logAll}, adopt: adopt,
			budget: admission.New(0, 0), // each configuration sets its size
		}
		return serve(cmd.Context(), env, path, overrides(env, path, given), b)
	})
	return cmd
}

// overrides returns what the command line and the environment set besides the file.
// Given returns the value of a flag that is on the command line.
func overrides(env *command.Env, path string, given func(flag string) (string, bool)) (over []config.Flag) {
	for _, f := range configFlags {
		if v, ok := given(f.flag); ok {
			over = append(over, config.Flag{Name: "--" + f.flag, Field: f.field, Value: v})
		}
	}
	for _, f := range defaultFlags {
		if v, ok := given(f.flag); ok {
			over = append(over, config.Flag{Name: "--" + f.flag, Field: f.field, Value: strconv.FormatBool((v == "true") == f.to)})
		}
	}
	if _, ok := given("store"); !ok && path == "" && env.Getenv(stores.URLVariable) != "" {
		over = append(over, config.Flag{Name: "$" + stores.URLVariable, Field: "store", Value: env.Getenv(stores.URLVariable)})
	}
	if _, ok := given("admin"); ok && env.Getenv(adminTokenVariable) != "" {
		over = append(over, config.Flag{Name: "$" + adminTokenVariable, Field: "admin.token", Value: env.Getenv(adminTokenVariable)})
	}
	return over
}

// serve runs the gateways that b builds until ctx ends.
func serve(ctx context.Context, env *command.Env, path string, over []config.Flag, b *builder) error {
	background, stop := context.WithCancel(context.WithoutCancel(ctx)) // until the gateway has shut down
	defer stop()
	var watch *watcher // nil without a file
	read := func() (*config.Config, error) { return configfile.Load(env, path, over...) }
	reloads := make(chan struct{}, 1)
	reload := func() {
		select {
		case reloads <- struct{}{}:
		default: // a reload is pending, and will see this change too
		}
	}
	var running sync.WaitGroup
	defer running.Wait()
	defer stop()
	hangups := env.Hangups(background)
	running.Go(func() {
		for {
			select {
			case <-hangups:
				reload()
			case <-background.Done():
				return
			}
		}
	})
	running.Go(func() { paceCollector(background, env.Getenv, admission.ContainerMemory()) })
	if path != "" {
		watch = &watcher{ctx: background, path: path, changed: reload, logger: b.logger, running: &running}
	}
	server, err := listener.New(listener.Options{
		Load:     func() (*config.Config, error) { return watch.load(read) },
		Build:    b.build,
		Metrics:  b.metrics.Handler(),
		Reload:   reloads,
		Upgrades: true, // WebSockets pass through; the gateway passes no other upgrade on
		Ready:    b.announce,
		Logger:   b.logger,
	})
	if err != nil {
		return err
	}
	b.metrics.Guard(&process{b.budget, server}) // for as long as the process runs
	err = server.Run(ctx)
	if errors.Is(err, syscall.EADDRINUSE) && strings.HasPrefix(err.Error(), "admin listener: ") {
		return exit.Errorf(exit.Failed, "%v", err).Hintf("another process listens there: stop it, or choose another address (--admin, or admin.listen in the configuration)")
	}
	if e, ok := errors.AsType[*exit.Error](err); ok {
		return e
	}
	return err
}
