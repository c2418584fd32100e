package field

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/prove/effect"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/prove/sandbox"
	"github.com/retrysafe/retrysafe/httpkey"
	"github.com/retrysafe/retrysafe/janitor"
)

// A task is what a node is told.
type task struct {
	Name string
	// Store is the sandbox's URL, Provider that of the provider.
	Store, Provider string
	Lease           time.Duration
	// Wait, if not zero, lets retries wait for an attempt in flight.
	Wait time.Duration
	// StoreTimeout bounds how long a call waits for the store, and its answer. Zero
	// is the default.
	StoreTimeout time.Duration
	// Patience is how long the provider is waited for.
	Patience time.Duration
	// NoJanitor leaves the node without a sweeper, a reconciler and a reaper.
	NoJanitor bool
	// Flaw is planted in the node, if it is not empty.
	Flaw string
}

// flaws are what tests plant in nodes to see that it is found. A released program
// has none.
var flaws map[string]func(*node)

// A node is a server as a user would write it.
type node struct {
	task
	db       *sandbox.DB
	provider effect.Client
	log      *slog.Logger

	// What flaws change.
	store      retrysafe.Store
	scope      httpkey.ScopeFunc
	policies   map[effect.Mode]retrysafe.Policy
	downstream func(*retrysafe.Execution) string
	complete   func(context.Context, http.ResponseWriter, retrysafe.Tx) error
	guarded    func(m effect.Mode, g *httpkey.Guard, next http.Handler) http.Handler
}

// serve is the role of a node: it prints its address and serves until it is killed.
func serve(ctx context.Context, told []byte) error {
	n := &node{log: slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelError}))}
	if err := json.Unmarshal(told, &n.task); err != nil {
		return fmt.Errorf("read the node's task: %w", err)
	}
	n.provider = effect.Client{URL: n.Provider, HTTP: &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 100}}}
	db, err := sandbox.Open(ctx, n.Store)
	if err != nil {
		return err
	}
	n.build(db)
	if n.Flaw != "" {
		plant, known := flaws[n.Flaw]
		if !known {
			return fmt.Errorf("this program has no flaw %q", n.Flaw)
		}
		plant(n)
	}
	handler, err := n.routes()
	if err != nil {
		return err
	}
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	if !n.NoJanitor {
		go func() { _ = janitor.Run(ctx, n.duties()...) }() // it ends with the process
	}
	if _, err := fmt.Fprintf(os.Stdout, "http://%s\n", l.Addr()); err != nil {
		return err
	}
	server := &http.Server{Handler: handler, ReadHeaderTimeout: bound}
	return server.Serve(l)
}

func (n *node) build(db *sandbox.DB) {
	n.db, n.store = db, db.Store
	n.scope = func(r *http.Request) (string, error) { return tenantOf(r), nil }
	n.downstream = func(x *retrysafe.Execution) string { return x.DownstreamKey("charge") }
	n.complete = httpkey.CompleteTx
	n.guarded = func(_ effect.Mode, g *httpkey.Guard, next http.Handler) http.Handler { return g.Handler(next) }
	n.policies = map[effect.Mode]retrysafe.Policy{}
	for _, m := range effect.Modes {
		n.policies[m] = policy(m, n.Lease, n.Wait)
	}
}

// tenantOf stands for the user's authentication.
func tenantOf(r *http.Request) string { return r.Header.Get("Tenant") }

func (n *node) routes() (http.Handler, error) {
	engine, err := retrysafe.New(n.store, &retrysafe.Options{StoreTimeout: n.StoreTimeout, SettleTimeout: n.StoreTimeout})
	if err != nil {
		return nil, err
	}
	guard, err := httpkey.New(engine, n.scope, &httpkey.Options{Logger: n.log})
	if err != nil {
		return nil, err
	}
	mux := http.NewServeMux()
	for m, work := range map[effect.Mode]http.HandlerFunc{effect.InTx: n.inTx, effect.Keyed: n.keyed, effect.Unprotected: n.unprotected} {
		p := n.policies[m]
		g, err := guard.With(func(o *httpkey.Options) { o.Policy = &p })
		if err != nil {
			return nil, err
		}
		mux.Handle("POST /"+string(m), n.guarded(m, g, work))
	}
	one, err := engine.With(n.policies[effect.OneCommit])
	if err != nil {
		return nil, err
	}
	mux.HandleFunc("POST /"+string(effect.OneCommit), func(w http.ResponseWriter, r *http.Request) { n.oneCommit(w, r, one) })
	return mux, nil
}

// duties are done by each node, often enough for its lease.
func (n *node) duties() []janitor.Duty {
	often := janitor.Options{Every: n.Lease / 2, Logger: n.log}
	return []janitor.Duty{
		janitor.NewSweeper(n.store, &often),
		janitor.NewReconciler(n.store, janitor.ResolverFunc(n.resolve), &janitor.ReconcilerOptions{
			Options: often, Pause: n.Lease / 2, MaxPause: n.Lease, Settle: n.Lease / 2, Tries: 1_000_000, Timeout: n.Patience,
		}),
		janitor.NewReaper(n.store, &janitor.ReaperOptions{Options: often}),
	}
}

// resolve asks the provider what became of an operation.
func (n *node) resolve(ctx context.Context, r retrysafe.Record) (retrysafe.Evidence, error) {
	tenant, _ := httpkey.Caller(r.Ref)
	id := jobID(tenant, effect.Mode(strings.TrimPrefix(r.Operation, "POST /")), r.Key)
	receipt, err := n.lookUp(ctx, id)
	switch {
	case err != nil:
		return retrysafe.Evidence{}, err
	case receipt == "":
		return janitor.NotHappened("the provider does not know of it"), nil
	}
	return janitor.Happened(report{Job: id, By: n.signature("resolver"), Receipt: receipt}.result(), receipt), nil
}
