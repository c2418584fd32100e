package recoverytest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/retrysafe/retrysafe"
)

// A kind is one sort of operation. Its name is the scope of its keys.
type kind struct {
	name     string
	policy   retrysafe.Policy
	accepted bool // it is stored for a worker
	inTx     bool
}

var kinds = []kind{
	{name: "keyed, rerun", policy: retrysafe.Policy{Effects: retrysafe.EffectsKeyed, Lapse: retrysafe.LapseRerun}},
	{name: "keyed, resume", policy: retrysafe.Policy{Effects: retrysafe.EffectsKeyed, Lapse: retrysafe.LapseResume}},
	{name: "keyed, accepted", policy: retrysafe.Policy{Effects: retrysafe.EffectsKeyed, Lapse: retrysafe.LapseResume}, accepted: true},
	{name: inTxScope, policy: retrysafe.Policy{Effects: retrysafe.EffectsInTx, Lapse: retrysafe.LapseRerun}, inTx: true},
	{name: "unprotected", policy: retrysafe.Policy{}},
	{name: "unprotected, failing", policy: retrysafe.Policy{Lapse: retrysafe.LapseFail}},
	{name: "unprotected, accepted", policy: retrysafe.Policy{}, accepted: true},
}

// inTxScope is the scope of operations in transactions.
const inTxScope = "in tx, rerun"

// charge names the one outside call of a keyed operation.
const charge = "charge"

// A cast is the number of actors: keys of each kind, customers with so many visits
// each, and actors with background duties.
type cast struct {
	keys, customers, visits                 int
	workers, sweepers, reapers, reconcilers int
	retention                               time.Duration
}

// A scene is one run.
type scene struct {
	*witness
	stage  stage
	place  Place
	ledger *ledger
	lease  time.Duration
	real   bool // the stage is wall
	cast   cast
	kinds  []kind
	left   atomic.Int64 // customers with visits left
	under  atomic.Int64 // steps of nodes that are under way

	mu   sync.Mutex
	rng  *rand.Rand
	next int // the handle of the next node

	// How duties are done. Tests replace them by wrong ones.
	sweepOne func(ctx context.Context, s retrysafe.Store, found retrysafe.Record, next retrysafe.Write) error
	purge    func(ctx context.Context, s retrysafe.Store) (int, error)
	absent   func(r *retrysafe.Record) retrysafe.Evidence
}

func newScene(p Place, on stage, seed uint64, lease time.Duration, c cast) *scene {
	s := &scene{
		witness: newWitness(), stage: on, place: p, ledger: newLedger(), lease: lease, cast: c,
		rng: rand.New(rand.NewPCG(seed, 2)), kinds: kinds,
	}
	_, s.real = on.(*wall)
	s.sweepOne, s.purge, s.absent = swapIn, purgeAll, s.tombstoned
	if p.Begin == nil {
		s.kinds = slices.DeleteFunc(slices.Clone(kinds), func(k kind) bool { return k.inTx })
	}
	return s
}

// policyOf returns the kind's policy, scaled to the scene's lease.
func (s *scene) policyOf(k *kind) retrysafe.Policy {
	p := k.policy
	p.Lease, p.MaxRun, p.Retention = s.lease, 4*s.lease, s.cast.retention
	p.Patience, p.Reconcile = 2*s.lease, s.lease/2
	return p
}

// perform runs all actors until the customers have made their visits, and then the
// duties until nothing is left to do.
func (s *scene) perform(ctx context.Context) {
	s.left.Store(int64(s.cast.customers))
	for range s.cast.customers {
		s.stage.Go(func() { s.customer(ctx) })
	}
	background := []struct {
		n    int
		duty func(context.Context) func()
	}{{s.cast.workers, s.worker}, {s.cast.sweepers, s.sweeper}, {s.cast.reapers, s.reaper}, {s.cast.reconcilers, s.reconciler}}
	for _, b := range background {
		for range b.n {
			duty := b.duty(ctx)
			s.stage.Go(func() {
				for s.left.Load() > 0 && ctx.Err() == nil {
					duty()
					s.nap(ctx, s.lease/2)
				}
			})
		}
	}
	s.stage.Wait()
	s.settleDown(ctx)
}

// settleDown sweeps until nothing is in flight any more, and no step is under way: a
// heartbeat may still be on its way to the store when its process has crashed.
func (s *scene) settleDown(ctx context.Context) {
	sweep := s.sweeper(ctx)
	for range 10_000 {
		sweep()
		left, err := s.handle("end").List(ctx, retrysafe.Query{States: []retrysafe.State{retrysafe.StateInProgress, retrysafe.StateAccepted}, Limit: 1})
		if err != nil {
			s.violation("list what is in flight: %w", err)
			return
		}
		if len(left) == 0 && s.under.Load() == 0 {
			return
		}
		if s.stage.Sleep(ctx, s.lease/4) != nil {
			break
		}
	}
	s.violation("L1: records stay in flight although sweepers run")
}

// node returns a new process.
func (s *scene) node(by string) *node {
	return &node{Store: s.handle(by), scene: s}
}

// handle returns one of the handles on the store, observed by the witness.
func (s *scene) handle(by string) retrysafe.Store {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.next++
	if i := s.next % (len(s.place.Peers) + 1); i > 0 {
		return watched{s.place.Peers[i-1], s.witness, by}
	}
	return watched{s.place.Store, s.witness, by}
}

// begin opens a transaction, observed by the witness.
func (s *scene) begin(ctx context.Context) (retrysafe.Tx, error) {
	tx, err := s.place.Begin(ctx)
	if err != nil {
		return nil, err
	}
	return &watchedTx{Tx: tx, w: s.witness}, nil
}

func (s *scene) draw(n int) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.rng.IntN(n)
}

// chance is true with the given probability.
func (s *scene) chance(percent int) bool { return s.draw(100) < percent }

// nap sleeps for up to most.
func (s *scene) nap(ctx context.Context, most time.Duration) {
	_ = s.stage.Sleep(context.WithoutCancel(ctx), time.Duration(s.draw(int(most))))
}

// Read makes the scene a source of randomness for engines.
func (s *scene) Read(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range p {
		p[i] = byte(s.rng.Uint32())
	}
	return len(p), nil
}

// summary reports what happened, so that a run that tests nothing is noticed.
func (s *scene) summary() string {
	s.witness.mu.Lock()
	defer s.witness.mu.Unlock()
	text := fmt.Sprintf("%d answers shown", len(s.shown))
	for _, what := range slices.Sorted(maps.Keys(s.counts)) {
		text += fmt.Sprintf(", %s %d", what, s.counts[what])
	}
	return text
}

// answers reports whether err is the store's answer to a swap of a record that has
// changed.
func answers(err error) bool {
	return err == nil || errors.Is(err, retrysafe.ErrConflict) || errors.Is(err, retrysafe.ErrNotFound) || errors.Is(err, retrysafe.ErrBusy)
}
