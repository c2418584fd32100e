package sweep

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"time"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/prove"
	"github.com/retrysafe/retrysafe/janitor"
)

// What the janitors find: keys of the same case beside the one that it is about.
const (
	keyUnknown = "left behind, unprotected"
	keyKept    = "answered, and not due"
	keyStuck   = "in flight for ever"
)

// messageTerm is how long a message may have the key that it settles.
const messageTerm = time.Minute

// put stores a record as an earlier process may have left it.
func (n *node) put(ctx context.Context, key string, r retrysafe.Record, term time.Duration) error {
	r.Ref, r.Operation, r.Version, r.Attempt, r.Retain = n.ref(key), operation, retrysafe.RecordVersion, 1, time.Hour
	_, _ = rand.Read(r.Owner[:]) // it never fails
	_, err := n.store.TxStore.Create(ctx, retrysafe.Write{Record: r, Term: term})
	return err
}

// past is a term that is over at once.
const past = time.Microsecond

// leaveBehind leaves two attempts whose leases are over: one that may run again, and
// one that may not.
func leaveBehind(ctx context.Context, n *node) error {
	return errors.Join(
		n.put(ctx, key, retrysafe.Record{State: retrysafe.StateInProgress, Effects: retrysafe.EffectsKeyed, Lapse: retrysafe.LapseRerun}, past),
		n.put(ctx, keyUnknown, retrysafe.Record{State: retrysafe.StateInProgress}, past),
	)
}

// askAgain asks for both: the calls themselves find that the leases are over.
func askAgain(ctx context.Context, n *node) (retrysafe.Outcome, error) {
	if err := n.askUnknown(ctx); err != nil {
		return retrysafe.Outcome{}, err
	}
	return payKeyed(ctx, n)
}

// askUnknown asks for the attempt that may not run again.
func (n *node) askUnknown(ctx context.Context) error {
	out, err := n.e.Do(ctx, retrysafe.Call{Ref: n.ref(keyUnknown), Operation: operation}, func(context.Context, *retrysafe.Execution) (retrysafe.Result, error) {
		_, err := n.charge(ctx, "", n.name) // shows as a second effect
		return retrysafe.Result{Status: 500}, err
	})
	if errors.Is(err, retrysafe.ErrUnknown) {
		return nil
	}
	if err == nil {
		err = fmt.Errorf("what may have happened was answered with %d", out.Status)
	}
	return err
}

// sweepThenPay has a sweeper see to both.
func sweepThenPay(ctx context.Context, n *node) (retrysafe.Outcome, error) {
	o := n.duties()
	if _, err := janitor.NewSweeper(n.store, &o).RunOnce(ctx); err != nil {
		return retrysafe.Outcome{}, err
	}
	return payKeyed(ctx, n)
}

// leftUnknown makes sure that what may have happened still says so.
func leftUnknown(ctx context.Context, n *node) error {
	return n.is(ctx, keyUnknown, retrysafe.StateUnknown)
}

func (n *node) is(ctx context.Context, key string, want retrysafe.State) error {
	r, err := n.store.TxStore.Load(ctx, n.ref(key))
	if err == nil && r.State != want {
		err = fmt.Errorf("it is %s, want %s", r.State, want)
	}
	if err != nil {
		err = fmt.Errorf("%q: %w", key, err)
	}
	return err
}

var errLostAnswer = errors.New("the provider's answer was lost")

// loseThenReconcile pays and does not hear of it. A reconciler asks the provider.
func loseThenReconcile(ctx context.Context, n *node) (retrysafe.Outcome, error) {
	ask := func() (retrysafe.Outcome, error) {
		return n.e.Do(ctx, n.call(), func(ctx context.Context, x *retrysafe.Execution) (retrysafe.Result, error) {
			n.seen.enters(x)
			if _, err := n.charge(ctx, "", n.name); err != nil {
				return retrysafe.Result{}, err
			}
			return retrysafe.Result{}, errLostAnswer
		})
	}
	if out, err := ask(); err == nil {
		return out, nil
	}
	prove.Pause(ctx, reconcileAfter)
	o := janitor.ReconcilerOptions{Options: n.duties(), Timeout: n.limit, Pause: time.Millisecond, MaxPause: time.Millisecond, Tries: 1000}
	if _, err := janitor.NewReconciler(n.store, janitor.ResolverFunc(n.resolve), &o).RunOnce(ctx); err != nil {
		return retrysafe.Outcome{}, err
	}
	return ask()
}

func (n *node) resolve(ctx context.Context, r retrysafe.Record) (retrysafe.Evidence, error) {
	id, err := n.at.Find(ctx, r.Scope)
	if err != nil || id == "" {
		return janitor.StillUnknown("the provider does not know it"), err
	}
	return janitor.Happened(answerOf("the provider", id), "the provider knows it"), nil
}

// foundOut makes sure that what the provider knows is not left unknown.
func foundOut(ctx context.Context, n *node) error {
	if id, err := n.at.Find(ctx, n.name); err != nil || id == "" {
		return err
	}
	return n.is(ctx, key, retrysafe.StateCompleted)
}

// leaveAnswers leaves an answer whose time is over, one whose time is not, and an
// attempt that must not be deleted.
func leaveAnswers(ctx context.Context, n *node) error {
	old := answerOf("somebody, long ago", "")
	return errors.Join(
		n.put(ctx, key, retrysafe.Record{State: retrysafe.StateCompleted, Effects: retrysafe.EffectsKeyed, Lapse: retrysafe.LapseRerun, Result: &old}, past),
		n.put(ctx, keyKept, retrysafe.Record{State: retrysafe.StateCompleted, Result: &old}, time.Hour),
		n.put(ctx, keyStuck, retrysafe.Record{State: retrysafe.StateInProgress}, past),
	)
}

// reapThenPay has a reaper bury and delete what is due. The key is free then.
func reapThenPay(ctx context.Context, n *node) (retrysafe.Outcome, error) {
	o := janitor.ReaperOptions{Options: n.duties(), Tombstone: time.Millisecond}
	for range 2 { // what it has buried is due a moment later
		if _, err := janitor.NewReaper(n.store, &o).RunOnce(ctx); err != nil {
			return retrysafe.Outcome{}, err
		}
		prove.Pause(ctx, 2*time.Millisecond)
	}
	return payKeyed(ctx, n)
}

func keptWhatIsNotDue(ctx context.Context, n *node) error {
	return errors.Join(n.is(ctx, keyKept, retrysafe.StateCompleted), n.is(ctx, keyStuck, retrysafe.StateInProgress))
}
