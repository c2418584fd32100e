package sweep

import (
	"context"
	"errors"
	"fmt"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/prove"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/prove/sandbox"
	"github.com/retrysafe/retrysafe/outbox"
)

// A scenario is what happens to one key.
type scenario struct {
	name   string
	policy retrysafe.Policy
	// prepare, if not nil, brings the key to where the scenario begins.
	prepare func(ctx context.Context, n *node) error
	// act is one try of a client to get an answer, and what workers and janitors do
	// meanwhile. It may be repeated.
	act func(ctx context.Context, n *node) (retrysafe.Outcome, error)
	// rows are the effects in the store's database that an answer stands for, once
	// each, and charges says that there is one at the provider, too.
	rows    []string
	charges bool
	// after, if not nil, says what else is wrong when the key is final.
	after func(ctx context.Context, n *node) error
}

// unsure reports whether its outcome may stay unknown.
func (s *scenario) unsure() bool { return !s.policy.Effects.Repeatable() }

var (
	inTx    = retrysafe.Policy{Effects: retrysafe.EffectsInTx, Lapse: retrysafe.LapseRerun}
	keyed   = retrysafe.Policy{Effects: retrysafe.EffectsKeyed, Lapse: retrysafe.LapseRerun}
	resumed = retrysafe.Policy{Effects: retrysafe.EffectsKeyed, Lapse: retrysafe.LapseResume}
)

var scenarios = []scenario{
	{name: "in_tx", policy: inTx, act: payInTx, rows: []string{""}},
	{name: "do_tx", policy: inTx, act: payOneCommit, rows: []string{""}},
	{name: "keyed", policy: keyed, act: payKeyed, charges: true},
	{name: "unprotected", act: payUnprotected, charges: true},
	{name: "phases", policy: resumed, act: payInPhases, rows: []string{"/order", "/receipt"}, charges: true},
	{name: "outbox", policy: keyed, act: payByMessage, rows: []string{""}, charges: true},
	{name: "accept", policy: keyed, act: payByWorker, charges: true},
	{name: "lapsed", policy: keyed, prepare: leaveBehind, act: askAgain, charges: true, after: leftUnknown},
	{name: "sweeper", policy: keyed, prepare: leaveBehind, act: sweepThenPay, charges: true, after: leftUnknown},
	{name: "reconciler", act: loseThenReconcile, charges: true, after: foundOut},
	{name: "reaper", policy: keyed, prepare: leaveAnswers, act: reapThenPay, charges: true, after: keptWhatIsNotDue},
	{name: "heartbeat", act: payForLong, charges: true},
	{name: "release", act: releaseThenPay, charges: true},
	{name: "fail", policy: keyed, act: failThenPay, charges: true},
}

// payInTx books the effect and completes the key in one transaction.
func payInTx(ctx context.Context, n *node) (retrysafe.Outcome, error) {
	return n.e.Do(ctx, n.call(), func(ctx context.Context, x *retrysafe.Execution) (retrysafe.Result, error) {
		n.seen.enters(x)
		by := n.by()
		answer := answerOf(by, "")
		return answer, n.inTx(ctx, func(ctx context.Context, tx retrysafe.Tx, book sandbox.AddEffect) error {
			if err := book(ctx, n.name, by); err != nil {
				return retrysafe.NotExecuted(err) // no commit was sent
			}
			if err := x.CompleteTx(ctx, tx, answer); err != nil {
				return err
			}
			return tx.Commit(ctx)
		})
	})
}

// payOneCommit reserves, books and answers in one transaction.
func payOneCommit(ctx context.Context, n *node) (retrysafe.Outcome, error) {
	return retrysafe.DoTx(ctx, n.e, n.store, n.call(), func(ctx context.Context, book sandbox.AddEffect) (retrysafe.Result, error) {
		n.seen.entersTx()
		by := n.by()
		return answerOf(by, ""), book(ctx, n.name, by)
	})
}

// payKeyed pays at a provider that recognises a second call.
func payKeyed(ctx context.Context, n *node) (retrysafe.Outcome, error) {
	return n.e.Do(ctx, n.call(), func(ctx context.Context, x *retrysafe.Execution) (retrysafe.Result, error) {
		n.seen.enters(x)
		id, err := n.charge(ctx, x.DownstreamKey("charge"), n.name)
		return answerOf(n.by(), id), err
	})
}

// payUnprotected pays at a provider that does not.
func payUnprotected(ctx context.Context, n *node) (retrysafe.Outcome, error) {
	return n.e.Do(ctx, n.call(), func(ctx context.Context, x *retrysafe.Execution) (retrysafe.Result, error) {
		n.seen.enters(x)
		id, err := n.charge(ctx, "", n.name)
		return answerOf(n.by(), id), err
	})
}

// payForLong is payUnprotected for most of a lease, with a heartbeat.
func payForLong(ctx context.Context, n *node) (retrysafe.Outcome, error) {
	return n.e.Do(ctx, n.call(), func(ctx context.Context, x *retrysafe.Execution) (retrysafe.Result, error) {
		n.seen.enters(x)
		id, err := n.charge(ctx, "", n.name)
		if err == nil {
			prove.Pause(ctx, lease*9/10)
			err = ctx.Err()
		}
		return answerOf(n.by(), id), err
	})
}

// payInPhases books an order, pays for it and books the receipt.
func payInPhases(ctx context.Context, n *node) (retrysafe.Outcome, error) {
	book := func(ctx context.Context, phase string) (string, error) {
		return retrysafe.PhaseTx(ctx, n.store, phase, func(ctx context.Context, book sandbox.AddEffect) (string, error) {
			by := n.by()
			return by, book(ctx, n.name+"/"+phase, by)
		})
	}
	return n.e.Do(ctx, n.call(), func(ctx context.Context, x *retrysafe.Execution) (none retrysafe.Result, err error) {
		n.seen.enters(x)
		order, err := book(ctx, "order")
		if err != nil {
			return none, err
		}
		id, err := retrysafe.Effect(ctx, "charge", []byte(n.by()), func(ctx context.Context, a retrysafe.Attempt) (string, error) {
			id, err := n.charge(ctx, a.Key, string(a.Request)) // no two attempts would send the same
			a.Provider(id)
			return id, err
		})
		if err != nil {
			return none, err
		}
		receipt, err := book(ctx, "receipt")
		return answerOf(order+" "+receipt, id), err
	})
}

// payByMessage hands the key to a message, in the transaction that books the order.
// A worker pays, and so answers.
func payByMessage(ctx context.Context, n *node) (retrysafe.Outcome, error) {
	ask := func() (retrysafe.Outcome, error) {
		return n.e.Do(ctx, n.call(), func(ctx context.Context, x *retrysafe.Execution) (none retrysafe.Result, err error) {
			n.seen.enters(x)
			by := n.by()
			return none, n.inTx(ctx, func(ctx context.Context, tx retrysafe.Tx, book sandbox.AddEffect) error {
				if err := book(ctx, n.name, by); err != nil {
					return err
				}
				rec, err := x.HandOver(ctx, tx, messageTerm)
				if err != nil {
					return err
				}
				if err := tx.(outbox.Enqueuer).Enqueue(ctx, outbox.Message{
					Topic: n.name, Key: x.DownstreamKey("charge"), Payload: []byte(by), Settles: &rec,
				}); err != nil {
					return err
				}
				return tx.Commit(ctx)
			})
		})
	}
	out, err := ask()
	if !errors.Is(err, retrysafe.ErrAccepted) {
		return out, err
	}
	if err := n.deliver(ctx); err != nil {
		return out, err
	}
	return ask()
}

// payByWorker stores the call; a worker takes it up and pays.
func payByWorker(ctx context.Context, n *node) (retrysafe.Outcome, error) {
	out, err := n.e.Accept(ctx, n.call(), []byte("request"))
	if errors.Is(err, retrysafe.ErrAccepted) {
		if err := n.work(ctx); err != nil {
			return retrysafe.Outcome{}, err
		}
		out, err = n.e.Accept(ctx, n.call(), []byte("request"))
	}
	if err != nil {
		return retrysafe.Outcome{}, err
	}
	return *out, nil
}

func (n *node) work(ctx context.Context) error {
	list, err := n.store.List(ctx, retrysafe.Query{States: []retrysafe.State{retrysafe.StateAccepted}})
	if err != nil {
		return err
	}
	for _, r := range list {
		x, err := n.e.TakeUp(ctx, r)
		if err != nil {
			return err
		}
		n.seen.enters(x)
		id, err := n.charge(x.Context(), x.DownstreamKey("charge"), n.name)
		if err != nil {
			err = x.Fail(ctx, err)
		} else {
			err = x.Complete(ctx, answerOf(n.by(), id))
		}
		x.Stop()
		if err != nil {
			return err
		}
	}
	return nil
}

// releaseThenPay proves that nothing happened the first time.
func releaseThenPay(ctx context.Context, n *node) (retrysafe.Outcome, error) {
	return n.twice(ctx, func(ctx context.Context, x *retrysafe.Execution) (retrysafe.Result, error) {
		if x.Attempt() == 1 {
			return retrysafe.Result{}, retrysafe.NotExecuted(errors.New("nothing was sent"))
		}
		id, err := n.charge(ctx, "", n.name)
		return answerOf(n.by(), id), err
	})
}

// failThenPay pays, and does not know it the first time.
func failThenPay(ctx context.Context, n *node) (retrysafe.Outcome, error) {
	return n.twice(ctx, func(ctx context.Context, x *retrysafe.Execution) (retrysafe.Result, error) {
		id, err := n.charge(ctx, x.DownstreamKey("charge"), n.name)
		if x.Attempt() == 1 && err == nil {
			err = fmt.Errorf("the answer about %s was lost", id)
		}
		return answerOf(n.by(), id), err
	})
}

// twice asks once more if the first time was in vain.
func (n *node) twice(ctx context.Context, fn func(context.Context, *retrysafe.Execution) (retrysafe.Result, error)) (out retrysafe.Outcome, err error) {
	for range 2 {
		out, err = n.e.Do(ctx, n.call(), func(ctx context.Context, x *retrysafe.Execution) (retrysafe.Result, error) {
			n.seen.enters(x)
			return fn(ctx, x)
		})
		if err == nil {
			break
		}
	}
	return out, err
}
