// Package effect is what the operations of checks do, and how a check counts it.
//
// An operation has its effect in one of four modes: in the table of effects, which is
// in the store's own database, or at a provider, which is outside. Neither prevents a
// second effect by itself, except that the provider honours keys: what prevents it is
// what the check is about.
package effect

import (
	"context"
	"crypto/rand"
	"time"

	"github.com/retrysafe/retrysafe"
)

// A Mode is how an operation has its effect.
type Mode string

// The modes.
const (
	InTx        Mode = "in-tx"       // in the database: a reservation, then effect and answer in one transaction
	OneCommit   Mode = "one-commit"  // in the database, with reservation and answer in one transaction
	Keyed       Mode = "keyed"       // at the provider, under a key that it honours
	Unprotected Mode = "unprotected" // at the provider, without a key
)

// Modes are all modes.
var Modes = []Mode{InTx, OneCommit, Keyed, Unprotected}

// InDatabase reports whether the effect is in the store's own database.
func (m Mode) InDatabase() bool { return m == InTx || m == OneCommit }

// Declare sets what a policy says of the mode: the effects, and what a lapsed attempt
// becomes.
func (m Mode) Declare(p *retrysafe.Policy) {
	switch m {
	case InTx, OneCommit:
		p.Effects, p.Lapse = retrysafe.EffectsInTx, retrysafe.LapseRerun
	case Keyed:
		p.Effects, p.Lapse = retrysafe.EffectsKeyed, retrysafe.LapseRerun
	case Unprotected:
		p.Effects = retrysafe.EffectsUnprotected
	}
}

// SeenInTx lets an operation complete in a transaction once. From then on a lapsed attempt
// of it proves a rollback, in every process.
func SeenInTx[X any](ctx context.Context, s retrysafe.TxStore[X], operation string) error {
	e, err := retrysafe.New(s, &retrysafe.Options{
		Policy: retrysafe.Policy{Effects: retrysafe.EffectsInTx}, StoreTimeout: time.Minute, SettleTimeout: time.Minute,
	})
	if err != nil {
		return err
	}
	call := retrysafe.Call{Ref: retrysafe.Ref{Scope: retrysafe.SystemScope("prove"), Key: rand.Text()}, Operation: operation}
	_, err = e.Do(ctx, call, func(ctx context.Context, x *retrysafe.Execution) (retrysafe.Result, error) {
		tx, _, err := s.BeginTx(ctx)
		if err != nil {
			return retrysafe.Result{}, err
		}
		if err := x.CompleteTx(ctx, tx, retrysafe.Result{Status: 201}); err != nil {
			return retrysafe.Result{}, err
		}
		return retrysafe.Result{}, tx.Commit(ctx)
	})
	return err
}
