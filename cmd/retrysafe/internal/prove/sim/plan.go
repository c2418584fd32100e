package sim

import (
	"time"

	"github.com/retrysafe/retrysafe"
)

// A plan is what is drawn for one schedule as a whole: how many nodes, under which
// policy, and the rate of each kind of fault. Most schedules have only some kinds of
// faults, so that each kind also meets the others' absence.
type plan struct {
	nodeCount   int
	policy      retrysafe.Policy
	way         way
	rates       rates
	waits       bool // a swap of a key that a transaction holds waits; otherwise it is told so
	onePush     bool // transactions can insert and commit in one round trip
	tombstones  bool // the provider can be told to refuse an attempt from now on
	lag         time.Duration
	keeperRest  time.Duration
	heals, ends time.Duration
	remembers   time.Duration // what clients were promised of an answer's retention
	term        time.Duration // of a key that a message has
	sluggish    bool          // leases, reads and sinks of the workers are slow
}

// rates are chances in 1,000, for each step.
type rates struct {
	crash, freeze, slow       int
	lostRequest, lostReply    int
	late, twice               int
	fails, panics, hangs      int
	hangsUp, jumps, permanent int
	restarts                  int
}

// A way is how an operation is run.
type way uint8

// The ways.
const (
	byDo         way = iota // Do, with a call of the provider
	byBegin                 // Begin and settle, as a middleware does
	byEffect                // Do, with the call as an Effect between two phases
	byDoTx                  // one transaction
	byCompleteTx            // Do, with CompleteTx
	byPhaseTx               // Do, with a PhaseTx, and CompleteTx
	byMessage               // Do, with HandOver to a message of the outbox
	byWorker                // Accept, and a worker that takes it up
	ways
)

var wayNames = [ways]string{"Do", "Begin", "Effect", "DoTx", "CompleteTx", "PhaseTx", "HandOver", "Accept"}

const (
	maxNodes   = 3
	maxClients = 5
)

// draws decides the plan.
func (w *world) draws() {
	p := &w.plan
	*p = plan{}
	p.nodeCount = 1 + w.draw(maxNodes)
	p.drawPolicy(w)
	p.drawWay(w)
	p.drawRates(w)
	p.waits, p.onePush, p.tombstones = w.draw(2) == 0, w.draw(2) == 1, w.draw(2) == 1
	p.lag = time.Duration(w.draw(5)) * 20 * time.Second
	p.keeperRest = time.Duration(20+w.draw(100)) * time.Second
	p.heals = time.Duration(300+w.draw(180)) * time.Second
	p.ends = p.heals + 10*time.Minute
	p.term = time.Duration(20+w.draw(240)) * time.Second
	p.sluggish = w.draw(3) == 2
	w.tracef("%d nodes, %s, effects %s, lapse %s, on failure %d, in flight %d, expired %d, asynchronous %t, lease %v, at most %v, retention %v",
		p.nodeCount, wayNames[p.way], p.policy.Effects, p.policy.Lapse, p.policy.OnFailure, p.policy.InFlight, p.policy.OnExpired, p.policy.AsyncReserve,
		p.policy.Lease, p.policy.MaxRun, p.policy.Retention)
	w.tracef("chances in 1,000: %+v", p.rates)
}

// drawPolicy draws one of all policies that are allowed.
func (p *plan) drawPolicy(w *world) {
	leases := [...]time.Duration{30 * time.Second, 10 * time.Second, 5 * time.Second}
	for {
		lease := leases[w.draw(len(leases))]
		p.policy = retrysafe.Policy{
			Effects:   retrysafe.EffectsUnprotected + retrysafe.Effects(w.draw(3)),
			Lapse:     retrysafe.LapseQuarantine + retrysafe.Lapse(w.draw(4)),
			OnFailure: retrysafe.FailurePolicy(w.draw(4)),
			InFlight:  retrysafe.InFlightConflict + retrysafe.InFlightPolicy(w.draw(3)),
			OnExpired: retrysafe.ExpiredRerun + retrysafe.ExpiredPolicy(w.draw(2)),
			Lease:     lease,
			MaxRun:    []time.Duration{10 * time.Minute, 2 * time.Minute, lease}[w.draw(3)],
			Wait:      time.Duration(1+w.draw(2)) * time.Second,
			Reconcile: time.Duration(10+w.draw(50)) * time.Second,
			Patience:  []time.Duration{time.Hour, 90 * time.Second}[w.draw(2)],
			Retention: 24 * time.Hour,
		}
		if w.draw(3) == 2 {
			p.policy.Retention = time.Duration(10+w.draw(120)) * time.Second
		}
		p.policy.AsyncReserve = p.policy.Effects != retrysafe.EffectsUnprotected && w.draw(3) == 2
		p.remembers = p.policy.Retention
		if p.policy.Check() == nil {
			return
		}
	}
}

// drawWay draws a way that the policy allows.
func (p *plan) drawWay(w *world) {
	inTx, phases := p.policy.Effects == retrysafe.EffectsInTx, p.policy.Lapse != retrysafe.LapseRerun
	allowed := [ways]bool{
		byDo: !inTx, byBegin: !inTx, byEffect: !inTx && phases,
		byDoTx: inTx, byCompleteTx: inTx, byPhaseTx: inTx && phases,
		byMessage: p.policy.Effects != retrysafe.EffectsUnprotected, byWorker: true,
	}
	n := 0
	for _, yes := range allowed {
		if yes {
			n++
		}
	}
	n = w.draw(n)
	for i, yes := range allowed {
		if yes {
			if n == 0 {
				p.way = way(i)
			}
			n--
		}
	}
}

// drawRates draws how often what goes wrong.
func (p *plan) drawRates(w *world) {
	some := func(most int) int {
		if w.draw(2) == 0 {
			return 0
		}
		return w.draw(most)
	}
	p.rates = rates{
		crash: some(40), freeze: some(15), slow: some(60),
		lostRequest: some(120), lostReply: some(120), late: some(80), twice: some(40),
		fails: some(300), panics: some(100), hangs: some(250),
		hangsUp: some(200), jumps: some(1000), permanent: some(200), restarts: some(1000),
	}
}
