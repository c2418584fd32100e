//go:build linux

package servers

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/prove"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/prove/effect"
	"github.com/retrysafe/retrysafe/internal/test/testservers"
)

// leg is after how many kills the clients rest and their keys are judged.
const leg = 5

func killdb(ctx context.Context, env *prove.Env, r *prove.Result) error {
	return new(killing).run(ctx, env, r)
}

// A killing is the check "killdb". The zero value is the real one.
type killing struct {
	kills, cuts wrapper // what stands before the store, for controls
}

func (k *killing) run(ctx context.Context, env *prove.Env, r *prove.Result) error {
	pg, err := startVictim(ctx)
	if err != nil {
		return fmt.Errorf("start a server to kill: %w", err)
	}
	err = k.killServer(ctx, env, r, pg)
	if err == nil {
		err = k.loseReplies(ctx, env, r, pg)
	}
	return errors.Join(err, pg.Close())
}

// startVictim starts a server that is soon back after a kill. Its commits take as long
// as those of a disk, so that a kill meets them.
func startVictim(ctx context.Context) (*testservers.Postgres, error) {
	return testservers.StartPostgres(ctx, &testservers.PostgresOptions{
		InMemory: true, Settings: map[string]string{"commit_delay": "2000", "commit_siblings": "0"},
	})
}

// killServer kills the server again and again, at any moment, and starts it again.
// The nodes and their clients live on.
func (k *killing) killServer(ctx context.Context, env *prove.Env, r *prove.Result, pg *testservers.Postgres) error {
	times, rng := env.Times(), rand.New(rand.NewPCG(env.Seed, 0))
	url, outside, j := pg.URL("postgres"), effect.NewProvider(), newJournal(r.Violatef)
	nodes, err := openNodes(ctx, 3, url, outside, k.kills)
	if err != nil {
		return err
	}
	defer closeNodes(nodes)
	for done := 0; done < times; {
		l := j.load(ctx, nodes, fmt.Sprint("kill ", done), rng.Uint64())
		for range min(leg, times-done) {
			if err = kill(ctx, l, pg, rng); err != nil {
				break
			}
			done++
			r.Count("server kills", 1)
			env.Step(done, times)
		}
		back := time.Now()
		l.stop()
		if err == nil {
			err = j.judge(ctx, nodes, url, back, done == times)
		}
		if err != nil {
			return err
		}
		env.Log.Info("killed a server under load", "kills", done, "keys", len(j.keys), "violations", r.Found)
	}
	j.figures(r)
	return nil
}

// kill kills the server at some moment, not that of an answer, and starts it again.
func kill(ctx context.Context, l *load, pg *testservers.Postgres, rng *rand.Rand) error {
	if err := l.await(1 + rng.IntN(60)); err != nil {
		return err
	}
	l.pause(time.Duration(rng.Int64N(int64(5 * time.Millisecond))))
	return errors.Join(pg.Kill(), pg.Restart(ctx))
}

// figures adds what the journal has counted.
func (j *journal) figures(r *prove.Result) {
	r.Count("keys", len(j.keys))
	r.Count("answers shown under load", int(j.shown.Load()))
	r.Count("unprotected outcomes left unknown", int(j.unknown.Load()))
}
