// Package field checks what retrysafe promises of several programs over one store,
// with real processes: stormed by retries, stopped in the middle and woken up late,
// killed and started again.
//
// A node is this program started again: an HTTP server as a user would write it,
// with a route for each effect mode. The client and the provider that nodes call
// live in the parent, which outlives them all and so can judge: by the table of
// effects, by the provider's ledger and by each answer that the client was shown.
package field

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/prove"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/prove/child"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/prove/effect"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/prove/sandbox"
)

const roleNode = "field.node"

// Roles are what children of these checks do.
func Roles() map[string]child.Role { return map[string]child.Role{roleNode: serve} }

// Checks returns the checks of this package.
func Checks() []prove.Check {
	return []prove.Check{
		{
			Name: "storm", Goal: "G9", Needs: prove.Store | prove.Processes, Size: prove.Size{Of: "rounds", Change: 10, Release: 100},
			Holds: []string{"S1", "S2", "S3", "S4", "S7", "L1", "L3"},
			Shows: "a thousand requests at once under one key, and thousands of keys sent twenty times, over three processes with four connections each: one effect per key, the same answer for every client, and no server error.",
			Run: func(ctx context.Context, env *prove.Env, r *prove.Result) error {
				return sizedStorm(env).run(ctx, env, r)
			},
		},
		{
			Name: "zombie", Goal: "G10", Needs: prove.Store | prove.Processes, Size: prove.Size{Of: "rounds", Change: 15, Release: 200},
			Holds: []string{"S1", "S2", "S4", "S5", "S9", "L1", "L3"},
			Shows: "a process that is stopped for longer than its lease, while others take over, and then goes on: it causes no second effect, unprotected operations are not run again automatically, and no client gets its late answer.",
			Run: func(ctx context.Context, env *prove.Env, r *prove.Result) error {
				return sizedZombie(env).run(ctx, env, r)
			},
		},
		{
			Name: "wait", Goal: "G9", Needs: prove.Store | prove.Processes, Size: prove.Size{Of: "rounds", Change: 4, Release: 100},
			Holds: []string{"S1", "S2", "S4", "S9", "L1", "L3"},
			Shows: "calls that wait on one process for an attempt on another: each gets the stored answer when there is one, and learns that the lease has lapsed when the other process was killed.",
			Run: func(ctx context.Context, env *prove.Env, r *prove.Result) error {
				return sizedWaiting(env).run(ctx, env, r)
			},
		},
		{
			Name: "kill", Goal: "G6", Needs: prove.Store | prove.Processes, Size: prove.Size{Of: "kills", Change: 250, Release: 2500},
			Holds: []string{"S1", "S2", "S3", "S4", "S9", "L1", "L3"},
			Shows: "processes that are killed at any moment under load, before a provider that loses answers: no second effect, and each answer that was ever shown is still given.",
			Run: func(ctx context.Context, env *prove.Env, r *prove.Result) error {
				return sizedKill(env).run(ctx, env, r)
			},
		},
	}
}

const (
	nodeCount = 3
	// bound is how long a client may be kept waiting once nothing goes wrong any
	// more. It is generous: what is broken for ever stays so, and machines are slow.
	bound = 60 * time.Second
)

// A field is where one check takes db.
type field struct {
	r        *prove.Result
	db       *sandbox.DB
	provider *effect.Server
	nodes    []*process
	http     *http.Client
	// noErrors says that a server error breaks a promise.
	noErrors bool

	mu   sync.Mutex
	jobs []*job
}

// openField opens a field with nodes that do as they are told. Name and provider of
// the task are the field's to say.
func openField(ctx context.Context, env *prove.Env, r *prove.Result, tell func(i int) task) (*field, error) {
	db, err := sandbox.Open(ctx, env.Store)
	if err != nil {
		return nil, err
	}
	if db.Can(effect.InTx) {
		if err := effect.SeenInTx(ctx, db.TxStore(), "POST /"+string(effect.InTx)); err != nil {
			return nil, errors.Join(err, db.Close())
		}
	}
	provider, err := effect.NewProvider().Serve(ctx)
	if err != nil {
		return nil, errors.Join(err, db.Close())
	}
	f := &field{
		r: r, db: db, provider: provider,
		http: &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 2000, DisableCompression: true}},
	}
	for i := range nodeCount {
		t := tell(i)
		t.Name, t.Store, t.Provider = fmt.Sprint("node ", i+1), frugal(env.Store), provider.URL
		p := &process{task: t}
		f.nodes = append(f.nodes, p)
		if err := p.start(ctx); err != nil {
			return nil, errors.Join(err, f.close())
		}
	}
	return f, nil
}

// frugal returns a store's URL with four connections in its pool, where there is
// one.
func frugal(store string) string {
	u, err := url.Parse(store)
	if err != nil || !strings.HasPrefix(u.Scheme, "postgres") {
		return store
	}
	q := u.Query()
	q.Set("pool_max_conns", "4")
	u.RawQuery = q.Encode()
	return u.String()
}

func (f *field) close() error {
	for _, p := range f.nodes {
		p.kill()
	}
	f.http.CloseIdleConnections()
	return errors.Join(f.provider.Close(), f.db.Close())
}

// job returns a new job.
func (f *field) job(m effect.Mode, tenant, key string) *job {
	j := &job{mode: m, tenant: tenant, key: key}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.jobs = append(f.jobs, j)
	return j
}

// alive returns an error if a node has ended that was not killed: then the check shows
// nothing.
func (f *field) alive() error {
	for _, p := range f.nodes {
		if err := p.ended(); err != nil {
			return err
		}
	}
	return nil
}

// each calls do for all of n things at once, at most so many at a time.
func each(n, atATime int, do func(i int)) {
	var wg sync.WaitGroup
	room := make(chan struct{}, atATime)
	for i := range n {
		room <- struct{}{}
		wg.Go(func() {
			defer func() { <-room }()
			do(i)
		})
	}
	wg.Wait()
}
