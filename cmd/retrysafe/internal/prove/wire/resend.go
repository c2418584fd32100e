package wire

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"sync"
	"time"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/prove"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/prove/sandbox"
)

// resendConf is the gateway's configuration before a dying service. The downstream
// key is in the very header that tempts net/http's transport to send again.
const resendConf = `upstream: %s
defaults: { timeout: 4s }
server: { drain: %s }
routes:
  - { match: "POST /unprotected/{op}" }
  - { match: "POST /hung/unprotected/{op}", timeout: 250ms }
  - { match: "POST /keyed/{op}", effects: keyed, derive_key: Idempotency-Key, lapse: rerun }
  - { match: "POST /hung/keyed/{op}", effects: keyed, derive_key: Idempotency-Key, lapse: rerun, timeout: 250ms }
  - { match: "POST /passed/{op}", off: true }
`

// resend lets services die under requests of the gateway, of the outbox's worker and
// of clients that retry, and compares what reached them with what is recorded.
func resend(ctx context.Context, env *prove.Env, r *prove.Result) (err error) {
	ctx, end := context.WithCancel(ctx)
	defer end()
	cert, err := certify(env.Dir)
	if err != nil {
		return err
	}
	db, err := sandbox.Open(ctx, env.Store)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	one, err := serveHTTP1(ctx)
	if err != nil {
		return err
	}
	defer one.close()
	two, err := serveHTTP2(ctx, cert)
	if err != nil {
		return err
	}
	defer two.close()

	all := env.Times()
	tell := &progress{env: env, of: all}
	var lanes []*lane
	for i, s := range []*service{one, two} {
		conf := fmt.Sprintf(resendConf, s.url, drain)
		if s == two {
			conf += fmt.Sprintf("upstream_tls: { ca_file: %q }\n", cert.certFile)
		}
		g, err := start(ctx, env, fmt.Sprintf("resend%d", i+1), conf)
		if err != nil {
			return err
		}
		defer func() {
			if ended := g.stop(); ended != nil {
				r.Violatef("G15", "", "%v", ended)
			}
		}()
		l := &lane{
			name: fmt.Sprintf("gateway, HTTP/%d", i+1), front: g.url, service: s, deaths: [][]death{deaths1, deaths2}[i],
			routes: []string{unprotected, keyed, passed}, record: recordIn(db.Store), result: r, tell: tell,
			client: &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: mostTogether}},
			random: rand.New(rand.NewPCG(env.Seed, uint64(i))),
		}
		defer l.client.CloseIdleConnections()
		lanes = append(lanes, l)
	}
	post := &letters{
		outbox: db.Outbox, enqueue: enqueueIn(db), services: map[string]*service{"HTTP/1": one, "HTTP/2": two},
		random: rand.New(rand.NewPCG(env.Seed, 2)), result: r, tell: tell,
	}
	if post.sink, err = httpSink(post.services, cert); err != nil {
		return err
	}
	var wg sync.WaitGroup
	errs := make([]error, len(lanes)+1)
	for i, l := range lanes {
		wg.Go(func() { errs[i] = l.run(ctx, all*7/20) })
	}
	wg.Go(func() { errs[len(lanes)] = post.run(ctx, all-len(lanes)*(all*7/20)) })
	wg.Wait()
	if kept, calls := r.Figure("calls on kept connections"), r.Figure("calls"); kept == 0 || kept == calls {
		errs = append(errs, fmt.Errorf("of %.0f calls %.0f came on kept connections: the check shows nothing", calls, kept))
	}
	return errors.Join(errs...)
}

// recordIn returns what loads the record of a key from a store. All callers are one,
// so that a key has one record.
func recordIn(s retrysafe.Store) func(ctx context.Context, key string) (retrysafe.Record, error) {
	return func(ctx context.Context, key string) (retrysafe.Record, error) {
		return s.Load(ctx, retrysafe.Ref{Scope: everybody, Key: key})
	}
}

// progress tells how many deaths are behind us.
type progress struct {
	env  *prove.Env
	of   int
	mu   sync.Mutex
	done int
}

func (p *progress) add(n int) {
	if p == nil {
		return
	}
	p.mu.Lock()
	p.done += n
	done := p.done
	p.mu.Unlock()
	p.env.Step(min(done, p.of), p.of)
}

// patience is how long a client waits for an answer. Nothing here takes that long.
const patience = 30 * time.Second
