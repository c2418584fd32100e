package sweep

import (
	"context"
	"errors"
	"maps"
	"time"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/prove"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/prove/child"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/prove/sandbox"
	"github.com/retrysafe/retrysafe/outbox"
)

// Coarse are the checks at every so many steps.
func Coarse(every int) []prove.Check {
	g := sound
	g.every = every
	return g.checks()
}

// A Flaw is something that is bent, and the invariant that is broken by it.
type Flaw struct {
	rig
	// Breaks is any one of these, by check.
	Breaks map[string][]string
}

// Checks are those of the package, over what is bent.
func (f *Flaw) Checks() []prove.Check { return f.checks() }

// Flaws are what the checks have to find.
var Flaws = map[string]*Flaw{
	"acknowledges before it stores": {
		rig:    rig{every: 1, scenarios: only("keyed"), bend: func(s retrysafe.Store) retrysafe.Store { return hasty{s} }},
		Breaks: map[string][]string{"nth": {"S4"}, "crash": {"S4"}},
	},
	"runs without a reservation": {
		rig:    rig{every: 1, scenarios: only("unprotected"), bend: func(s retrysafe.Store) retrysafe.Store { return failOpen{s} }},
		Breaks: map[string][]string{"nth": {"S8"}},
	},
	"compares neither revision nor owner": {
		rig:    rig{every: 1, scenarios: only("keyed"), bend: func(s retrysafe.Store) retrysafe.Store { return unfenced{s} }},
		Breaks: map[string][]string{"nth": {"S5"}},
	},
	"answers before its effect": {
		rig:    rig{every: 1, scenarios: []scenario{{name: "early", policy: keyed, act: answerThenPay, charges: true}}},
		Breaks: map[string][]string{"nth": {"S1"}, "crash": {"S1"}},
	},
	"commits its effect by itself": {
		rig:    rig{every: 1, scenarios: []scenario{{name: "apart", policy: keyed, act: payApart, rows: []string{""}}}},
		Breaks: map[string][]string{"nth": {"S1"}, "crash": {"S1"}},
	},
	"sends its message by itself": {
		rig:    rig{every: 3, scenarios: []scenario{{name: "outbox", policy: keyed, act: sendApart, rows: []string{""}, charges: true}}},
		Breaks: map[string][]string{"nth": {"S11", "S1"}, "crash": {"S11", "S1"}},
	},
}

func only(name string) []scenario { return []scenario{*sound.scenario(name)} }

// BentRoles are the roles of children in tests.
func BentRoles() map[string]child.Role {
	roles := maps.Clone(Roles())
	for name, f := range Flaws {
		f.role = "sweep.test " + name
		roles[f.role] = f.child
	}
	return roles
}

// hasty says that an answer is stored, and stores it later: late enough that the client
// gets the answer before it is stored, and well within the lease.
type hasty struct{ retrysafe.Store }

func (s hasty) Swap(ctx context.Context, w retrysafe.Write) (retrysafe.Record, error) {
	if w.State != retrysafe.StateCompleted {
		return s.Store.Swap(ctx, w)
	}
	time.AfterFunc(lease/4, func() { _, _ = s.Store.Swap(context.Background(), w) })
	stored := w.Record
	stored.Revision = w.Expect.Revision + 1
	return stored, nil
}

// failOpen takes a store that does not answer for one that has nothing to object.
type failOpen struct{ retrysafe.Store }

func (s failOpen) Create(ctx context.Context, w retrysafe.Write) (retrysafe.Record, error) {
	got, err := s.Store.Create(ctx, w)
	if errors.Is(err, errInjected) {
		granted := w.Record
		granted.ReadAt = time.Now()
		granted.Revision, granted.Deadline = granted.ReadAt.UnixMicro(), granted.ReadAt.Add(w.Term)
		return granted, nil
	}
	return got, err
}

// unfenced writes over whatever is there.
type unfenced struct{ retrysafe.Store }

func (s unfenced) Swap(ctx context.Context, w retrysafe.Write) (retrysafe.Record, error) {
	got, err := s.Store.Swap(ctx, w)
	if errors.Is(err, retrysafe.ErrConflict) {
		w.Expect = got.Fence()
		return s.Store.Swap(ctx, w)
	}
	return got, err
}

// answerThenPay completes the key before it pays.
func answerThenPay(ctx context.Context, n *node) (retrysafe.Outcome, error) {
	return n.e.Do(ctx, n.call(), func(ctx context.Context, x *retrysafe.Execution) (none retrysafe.Result, err error) {
		n.seen.enters(x)
		if err := x.Complete(ctx, answerOf(n.by(), "")); err != nil {
			return none, err
		}
		_, err = n.charge(ctx, x.DownstreamKey("charge"), n.name)
		return none, err
	})
}

// payApart commits its effect, and then completes the key. Its policy says that the effect
// is keyed; if it said in_tx the engine would not store the answer.
func payApart(ctx context.Context, n *node) (retrysafe.Outcome, error) {
	return n.e.Do(ctx, n.call(), func(ctx context.Context, x *retrysafe.Execution) (retrysafe.Result, error) {
		n.seen.enters(x)
		by := n.by()
		return answerOf(by, ""), n.inTx(ctx, func(ctx context.Context, tx retrysafe.Tx, book sandbox.AddEffect) error {
			return errors.Join(book(ctx, n.name, by), tx.Commit(ctx))
		})
	})
}

// sendApart commits its message, and then its effect.
func sendApart(ctx context.Context, n *node) (retrysafe.Outcome, error) {
	_, err := n.e.Do(ctx, n.call(), func(ctx context.Context, x *retrysafe.Execution) (retrysafe.Result, error) {
		n.seen.enters(x)
		by := n.by()
		if err := n.inTx(ctx, func(ctx context.Context, tx retrysafe.Tx, _ sandbox.AddEffect) error {
			m := outbox.Message{Topic: n.name, Key: x.DownstreamKey("charge"), Payload: []byte(by)}
			return errors.Join(tx.(outbox.Enqueuer).Enqueue(ctx, m), tx.Commit(ctx))
		}); err != nil {
			return retrysafe.Result{}, err
		}
		answer := answerOf(by, "")
		return answer, n.inTx(ctx, func(ctx context.Context, tx retrysafe.Tx, book sandbox.AddEffect) error {
			return errors.Join(book(ctx, n.name, by), x.CompleteTx(ctx, tx, answer), tx.Commit(ctx))
		})
	})
	if err != nil {
		return retrysafe.Outcome{}, err
	}
	if err := n.deliver(ctx); err != nil {
		return retrysafe.Outcome{}, err
	}
	return n.e.Do(ctx, n.call(), nil)
}
