package recoverytest

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/retrysafe/retrysafe"
)

// A fate is what happens to an attempt.
type fate int

const (
	ordinary fate = iota
	crashesBefore
	crashesAfter // its effect
	wakesLateBefore
	wakesLateAfter
	quarantines
	releases
	fates
)

func (s *scene) customer(ctx context.Context) {
	defer s.left.Add(-1)
	for range s.cast.visits {
		k := &s.kinds[s.draw(len(s.kinds))]
		s.visit(ctx, k, retrysafe.Ref{Scope: k.name, Key: fmt.Sprint("k", s.draw(s.cast.keys))})
		s.nap(ctx, s.lease/2)
	}
}

// visit is one call of a client, to a process of its own.
func (s *scene) visit(ctx context.Context, k *kind, ref retrysafe.Ref) {
	n := s.node("caller")
	e := s.engine(n, k)
	call := retrysafe.Call{Ref: ref, Operation: k.name}
	var x *retrysafe.Execution
	var out *retrysafe.Outcome
	var err error
	if k.accepted {
		out, err = e.Accept(ctx, call, []byte("request"))
	} else {
		x, out, err = e.Begin(ctx, call)
	}
	switch {
	case out != nil:
		s.show(ref, *out)
	case x != nil:
		s.own(ctx, k, n, x)
	case errors.Is(err, retrysafe.ErrInFlight), errors.Is(err, retrysafe.ErrUnknown), errors.Is(err, retrysafe.ErrAccepted):
	default:
		s.violation("a call for %v: %w", ref, err)
	}
}

func (s *scene) engine(n *node, k *kind) *retrysafe.Engine {
	e, err := retrysafe.New(n, &retrysafe.Options{
		Policy: s.policyOf(k), Clock: s.stage, Rand: s,
		StoreTimeout: time.Hour, SettleTimeout: time.Hour, // long, for slow machines
	})
	if err != nil {
		s.violation("engine: %w", err)
	}
	return e
}

// own runs one attempt.
func (s *scene) own(ctx context.Context, k *kind, n *node, x *retrysafe.Execution) {
	defer x.Stop()
	f := ordinary
	if s.chance(60) {
		f = fate(s.draw(int(fates)))
	}
	switch {
	case f == crashesBefore:
		s.tally("crashed")
		n.crash(x)
		return
	case f == wakesLateBefore:
		n.freeze(ctx)
	case f == releases:
		s.ended(x.Release(ctx, errors.New("nothing was sent")))
		return
	case s.chance(30):
		s.nap(ctx, 2*s.lease) // slow, and alive
	}
	if k.inTx {
		s.commit(ctx, n, x, f)
		return
	}
	receipt, err := s.effect(ctx, x)
	switch {
	case err != nil:
		s.ended(x.Fail(ctx, err))
		return
	case f == crashesAfter:
		s.tally("crashed")
		n.crash(x)
		return
	case f == wakesLateAfter:
		n.freeze(ctx)
	case f == quarantines:
		s.ended(x.Quarantine(ctx, errors.New("no reply")))
		return
	}
	if err := x.Complete(ctx, paid(receipt)); err != nil {
		s.ended(err)
		return
	}
	s.confirm(ctx, x)
}

// effect makes the operation's effect and returns the receipt.
func (s *scene) effect(ctx context.Context, x *retrysafe.Execution) (string, error) {
	r := x.Record()
	if r.Effects == retrysafe.EffectsUnprotected {
		return s.ledger.effect(generationOf(&r), x.Attempt())
	}
	if c := x.Checkpoint(); c.Phase == charge {
		s.tally("resumed")
		return string(c.Data), nil
	}
	receipt := s.ledger.charge(x.Ref(), x.DownstreamKey(charge))
	if r.Lapse == retrysafe.LapseResume {
		s.ended(x.Save(ctx, retrysafe.Checkpoint{Phase: charge, Data: []byte(receipt)}))
	}
	return receipt, nil
}

// books is the scope of the records that transactions write.
const books = "books"

// commit writes an effect and the answer in one transaction.
func (s *scene) commit(ctx context.Context, n *node, x *retrysafe.Execution, f fate) {
	r := x.Record()
	g := generationOf(&r)
	receipt := fmt.Sprintf("%s %d %v", g.ref.Key, g.since, r.Owner)
	done := false
	n.quiet(ctx, func() {
		tx, err := s.begin(ctx)
		if err != nil {
			s.violation("begin: %w", err)
			return
		}
		result := paid(receipt)
		_, err = tx.Create(ctx, retrysafe.Write{Record: retrysafe.Record{
			Ref: retrysafe.Ref{Scope: books, Key: receipt}, State: retrysafe.StateCompleted, Version: retrysafe.RecordVersion,
			Owner: r.Owner, Attempt: 1, Result: &result, Retain: 10_000 * time.Hour,
		}, Term: 10_000 * time.Hour})
		if err != nil {
			s.violation("write in a transaction: %w", err)
		}
		if err != nil || f == quarantines {
			_ = tx.Rollback(ctx)
			n.crash(x)
			return
		}
		if err := x.CompleteTx(ctx, tx, result); err != nil {
			s.ended(err)
			return
		}
		if err := tx.Commit(ctx); err != nil {
			s.violation("commit: %w", err)
		}
		done = true
	})
	switch {
	case f == crashesAfter:
		s.tally("crashed")
		n.crash(x)
	case done:
		s.confirm(ctx, x)
	default:
		n.crash(x) // in both cases it is not tried again
	}
}

func paid(receipt string) retrysafe.Result {
	return retrysafe.Result{Status: 201, Header: map[string][]string{"Content-Type": {"text/plain"}}, Body: []byte(receipt)}
}

// confirm records the answer of a completed execution as shown.
func (s *scene) confirm(ctx context.Context, x *retrysafe.Execution) {
	out, err := x.Outcome(ctx)
	if err != nil {
		s.ended(err)
		return
	}
	s.show(x.Ref(), out)
}

// ended checks the result of a settlement. A late one is refused; any other error is a
// violation.
func (s *scene) ended(err error) {
	switch {
	case err == nil:
	case errors.Is(err, retrysafe.ErrLost):
		s.tally("late and refused")
	case errors.Is(err, retrysafe.ErrConflict), errors.Is(err, retrysafe.ErrTooLong), errors.Is(err, retrysafe.ErrSettled):
		s.tally("set aside")
	default:
		s.violation("settle: %w", err)
	}
}
