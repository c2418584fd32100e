//go:build linux

package servers

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/prove"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/prove/effect"
	"github.com/retrysafe/retrysafe/internal/test/netfault"
	"github.com/retrysafe/retrysafe/internal/test/testservers"
)

// patient are the options of a node whose network fails: no time-out may hide a lost
// reply. A call that meets its own reservation and does not recognise it waits in vain,
// and is told that the key is in flight. The wait is far longer than a server takes to
// see that the connection of a transaction is gone, which has the key until then.
var patient = retrysafe.Options{
	StoreTimeout: idle, SettleTimeout: idle,
	Policy: retrysafe.Policy{InFlight: retrysafe.InFlightWait, Wait: idle / 3, Lease: idle},
}

// loseReplies cuts the connection at some byte of what the server replies to an
// operation: half of the time before its effect, to the reservation, half of the
// time after it, to the commit or settlement. The call itself must find out what
// became of its steps.
func (k *killing) loseReplies(ctx context.Context, env *prove.Env, r *prove.Result, pg *testservers.Postgres) error {
	outside, j := effect.NewProvider(), newJournal(r.Violatef)
	if err := k.cutReplies(ctx, env, r, pg, j, outside); err != nil {
		return err
	}
	other, err := openNode(ctx, pg.URL("postgres"), outside, patient, nil)
	if err != nil {
		return err
	}
	defer closeNodes([]*node{other})
	return j.judge(ctx, []*node{other}, pg.URL("postgres"), time.Now(), true)
}

// cutsPerKill is how many replies are cut for each kill of the server.
const cutsPerKill = 4

// cutReplies cuts in all effect.Modes, side by side.
func (k *killing) cutReplies(ctx context.Context, env *prove.Env, r *prove.Result, pg *testservers.Postgres, j *journal, outside *effect.Provider) error {
	times := (cutsPerKill*env.Times() + len(effect.Modes) - 1) / len(effect.Modes)
	var lanes sync.WaitGroup
	failed := make([]error, len(effect.Modes))
	for i, m := range effect.Modes {
		lanes.Go(func() {
			failed[i] = k.loseIn(ctx, m, times, rand.New(rand.NewPCG(env.Seed, uint64(i+1))), r, pg, j, outside)
		})
	}
	lanes.Wait()
	return errors.Join(failed...)
}

// A wire is a node, the network between it and its server, and a way past it.
type wire struct {
	*node
	mode  effect.Mode
	proxy *netfault.Proxy
	truth *pgx.Conn
}

// loseIn cuts so many replies to operations of one mode.
func (k *killing) loseIn(ctx context.Context, m effect.Mode, times int, rng *rand.Rand, r *prove.Result, pg *testservers.Postgres, j *journal, outside *effect.Provider) error {
	proxy, err := netfault.New(pg.Addr())
	if err != nil {
		return err
	}
	defer func() { _ = proxy.Close() }()
	url, err := testservers.Via(pg.URL("postgres"), proxy.Addr())
	if err != nil {
		return err
	}
	// A connection that was used before is used again, so that its replies are those
	// to the operation.
	n, err := openNode(ctx, url+"&pool_max_conns=1", outside, patient, k.cuts)
	if err != nil {
		return err
	}
	defer func() {
		proxy.Strike(netfault.Reset) // the driver waits long for a server that does not hang up
		closeNodes([]*node{n})
	}()
	truth, err := pgx.Connect(ctx, pg.URL("postgres"))
	if err != nil {
		return err
	}
	defer func() { _ = truth.Close(ctx) }()
	w := &wire{n, m, proxy, truth}
	for cuts, try := 0, 0; cuts < times; try++ {
		if try > 4*times+10 {
			return fmt.Errorf("of %d replies to operations of mode %s only %d could be cut", try, m, cuts)
		}
		late := cuts%2 == 1
		struck, err := w.cut(ctx, fmt.Sprintf("cut %s %d", m, try), late, rng, r, j)
		switch {
		case err != nil:
			return err
		case !struck: // it was shorter than the one before
			continue
		case late:
			r.Count("replies cut to a commit or settlement", 1)
		default:
			r.Count("replies cut before the effect", 1)
		}
		cuts++
	}
	return nil
}

var breaks = []netfault.Fault{netfault.Cut, netfault.Reset, netfault.HalfClose}

// cut pays while one reply is cut, of those before the effect or, late, of those
// after it. It reports whether one was.
func (w *wire) cut(ctx context.Context, key string, late bool, rng *rand.Rand, r *prove.Result, j *journal) (struck bool, err error) {
	length, err := w.replies(ctx, key+", whole", late)
	if err != nil {
		return false, err
	}
	plan := atByte(rng.Int64N(max(1, length)), breaks[rng.IntN(len(breaks))], &struck)
	w.plan(plan, late)
	s := j.open(key, w.mode)
	mine, out, err := w.pay(ctx, w.mode, key)
	w.plan(nil, false) // after this, the plan does not write struck any more
	if ctx.Err() != nil {
		return struck, ctx.Err()
	}
	j.told(s, mine, &out, err)
	if err != nil {
		r.Count("calls that a cut has failed", 1)
	}
	own := answer(mine)
	switch {
	case err == nil && !own.Equal(&out.Result):
		r.Violatef("S2", key, "%s: the first answer under a key is not the call's own", w.mode)
	case errors.Is(err, retrysafe.ErrInFlight):
		r.Violatef("S5", key, "%s: after a lost reply the call conflicts with itself: %v", w.mode, err)
	case errors.Is(err, retrysafe.ErrUnknown), errors.Is(err, retrysafe.ErrLost):
		r.Violatef("S5", key, "%s: after a lost reply the call does not recognise its own write: %v", w.mode, err)
	case err != nil && w.mode.InDatabase() && !errors.Is(err, retrysafe.ErrUnsettled):
		had, failed := effects.Of(ctx, w.truth, key)
		if failed != nil {
			return struck, failed
		}
		if len(had) > 0 {
			r.Violatef("S9", key, "%s: the call was told %v, and its effect is there", w.mode, err)
		}
	}
	return struck, nil
}

// plan sets what the proxy does, now or when the operation has had its effect.
func (w *wire) plan(p netfault.Plan, late bool) {
	if late {
		w.proxy.Plan(nil)
		w.within = func() { w.proxy.Plan(p) }
		return
	}
	w.within = nil
	w.proxy.Plan(p)
}

// replies returns how many bytes the server replies to an operation before its
// effect or, late, after it, over connections that are whole.
func (w *wire) replies(ctx context.Context, key string, late bool) (length int64, err error) {
	w.plan(nil, false)
	for try := 0; ; try++ { // what the last cut has broken is made again
		if _, _, err = w.pay(ctx, w.mode, fmt.Sprint(key, " ", try)); err == nil {
			break
		}
		if ctx.Err() != nil || try == 20 {
			return 0, fmt.Errorf("pay over a whole network: %w", err)
		}
	}
	w.plan(nil, false)
	early := int64(0)
	w.within = func() { early = w.proxy.Seen(netfault.ToClient) }
	if _, _, err := w.pay(ctx, w.mode, key); err != nil {
		return 0, fmt.Errorf("pay over a whole network: %w", err)
	}
	if late {
		return w.proxy.Seen(netfault.ToClient) - early, nil
	}
	return early, nil
}

// atByte is a plan in which one connection fails, once: the one that the n-th byte
// to a client, of all connections together, is about to pass through.
func atByte(n int64, f netfault.Fault, struck *bool) netfault.Plan {
	passed := int64(0)
	return netfault.Once(func(c netfault.Chunk) netfault.Verdict {
		if c.Dir != netfault.ToClient {
			return netfault.Verdict{}
		}
		before := passed
		if passed += int64(len(c.Data)); passed <= n {
			return netfault.Verdict{}
		}
		*struck = true
		return netfault.Verdict{Fault: f, Pass: int(n - before)}
	})
}
