//go:build linux

package servers

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/prove"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/prove/effect"
	"github.com/retrysafe/retrysafe/internal/test/testservers"
)

func ha(ctx context.Context, env *prove.Env, r *prove.Result) error {
	return new(failing).run(ctx, env, r)
}

// A failing is the check "ha". The zero value is the real one.
type failing struct {
	lagging bool // the standbys that are to lose nothing lag, for a control
}

func (f *failing) run(ctx context.Context, env *prove.Env, r *prove.Result) error {
	if err := f.failOver(ctx, env, r); err != nil {
		return err
	}
	if err := loseByLag(ctx, env, r); err != nil {
		return err
	}
	return forgetfulRedis(ctx, r)
}

// failOver kills a primary under load and promotes its standby, which is the primary
// of the next round. The nodes know both, and their clients go on.
func (f *failing) failOver(ctx context.Context, env *prove.Env, r *prove.Result) (err error) {
	times, rng := env.Times(), rand.New(rand.NewPCG(env.Seed, 0))
	primary, err := startPrimary(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, primary.Close()) }()
	j, outside := newJournal(r.Violatef), effect.NewProvider()
	for round := range times {
		p := &pair{primary: primary, lagging: f.lagging, class: "A"}
		err := p.round(ctx, j, outside, rng, fmt.Sprint("failover ", round), round == times-1)
		if p.standby != nil {
			err = errors.Join(err, primary.Close())
			primary = p.standby.Postgres
		}
		if err != nil {
			return err
		}
		r.Count("failovers to a synchronous standby", 1)
		env.Step(round+1, times)
		env.Log.Info("promoted a synchronous standby", "failovers", round+1, "keys", len(j.keys), "violations", r.Found)
	}
	j.figures(r)
	return nil
}

// loseByLag is the control: the same with a standby that lags must lose, or this
// check would see no loss at all.
func loseByLag(ctx context.Context, env *prove.Env, r *prove.Result) (err error) {
	primary, err := startPrimary(ctx)
	if err != nil {
		return err
	}
	p := &pair{primary: primary, lagging: true, class: "D"}
	defer func() {
		err = errors.Join(err, primary.Close())
		if p.standby != nil {
			err = errors.Join(err, p.standby.Close())
		}
	}()
	var mu sync.Mutex
	lost, again := map[string]bool{}, map[string]bool{}
	j := newJournal(func(invariant, key, format string, args ...any) {
		mu.Lock()
		defer mu.Unlock()
		switch {
		case invariant == "S1":
			again[key] = true
		case invariant == "S4":
			lost[key] = true
		case key == "": // it is not about the keys, which are bound to suffer
			r.Violatef(invariant, key, format, args...)
		}
	})
	if err := p.round(ctx, j, effect.NewProvider(), rand.New(rand.NewPCG(env.Seed, 1)), "lag", true); err != nil {
		return err
	}
	r.Count("control: acknowledged keys lost by an asynchronous standby", len(lost))
	r.Count("control: unprotected effects repeated by that loss", len(again))
	if len(lost) == 0 {
		r.Violatef("control", "", "an asynchronous standby that lags was promoted and no acknowledged key is lost: this check sees no loss")
	}
	return nil
}

func startPrimary(ctx context.Context) (*testservers.Postgres, error) {
	primary, err := testservers.StartPostgres(ctx, &testservers.PostgresOptions{InMemory: true})
	if err != nil {
		return nil, fmt.Errorf("start a primary: %w", err)
	}
	return primary, nil
}

// A pair is a primary and its standby.
type pair struct {
	primary *testservers.Postgres
	standby *testservers.Standby // nil until it is there
	lagging bool                 // no commit waits for the standby, which lags
	class   string               // what start-up must say of the two
}

// round makes a standby, kills the primary under load and promotes the standby. It
// ends with what has become of the keys, of this round or of all.
func (p *pair) round(ctx context.Context, j *journal, outside *effect.Provider, rng *rand.Rand, name string, all bool) (err error) {
	if p.standby, err = p.primary.Standby(ctx, &testservers.StandbyOptions{Synchronous: !p.lagging}); err != nil {
		return fmt.Errorf("start a standby: %w", err)
	}
	url := fmt.Sprintf("postgres://postgres@%s,%s/postgres?sslmode=disable&target_session_attrs=read-write", p.primary.Addr(), p.standby.Addr())
	nodes, err := openNodes(ctx, 2, url, outside, nil)
	if err != nil {
		return err
	}
	defer closeNodes(nodes)
	d, err := nodes[0].store.Durability(ctx)
	if err != nil {
		return err
	}
	if d.Class != p.class {
		j.broken("S3", "", "Durability reports %q, and the class of this pair is %s", d, p.class)
	}
	if p.lagging {
		// Standing still would not do: what was sent to it arrives later.
		if err := errors.Join(p.standby.CatchUp(ctx), p.standby.Detach(ctx)); err != nil {
			return err
		}
	}
	l := j.load(ctx, nodes, name, rng.Uint64())
	defer l.stop()
	if err := l.await(10 + rng.IntN(30)); err != nil {
		return err
	}
	l.pause(time.Duration(rng.Int64N(int64(5 * time.Millisecond))))
	if err := errors.Join(p.primary.Kill(), p.standby.Promote(ctx)); err != nil {
		return err
	}
	promoted := time.Now()
	if err := l.await(10); err != nil { // they go on there
		return err
	}
	l.stop()
	return j.judge(ctx, nodes, url, promoted, all)
}
