// Package storetest holds the contract of [retrysafe.Store] as a suite of rules. A
// store exists when the suite passes.
//
// Each rule is a promise in words with the reason why it matters; a store that fails
// prints the promise that it broke. A store's own test needs one function:
//
//	func TestContract(t *testing.T) {
//		storetest.Run(t, func(t *testing.T) storetest.Harness {
//			return storetest.Harness{Store: mystore.New(nil)}
//		})
//	}
//
// The rules do not depend on any store. A store declares in its [Harness] what it can
// do beyond the five methods, and the rules that need it run.
package storetest

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/retrysafe/retrysafe"
)

// A Harness is a store under test and its capabilities. All but Store is optional.
type Harness struct {
	// Store is empty and used by nothing else.
	Store retrysafe.Store
	// Peers are further handles on the same data, as other nodes of a
	// deployment hold them. Rules about races spread over Store and Peers.
	Peers []retrysafe.Store

	// Advance moves the store's clock forward, for all handles. Without it the rules
	// wait, by the store's own clock.
	Advance func(time.Duration)

	// SetBack sets the store's clock back, for all handles, or moves all that is stored
	// ahead of it, which is the same. Nil: the rule about it is skipped.
	SetBack func(time.Duration)

	// Begin opens a transaction of a store that shares one with its callers.
	Begin func(context.Context) (retrysafe.Tx, error)
	// OneWriter says that an open transaction which has taken a step delays the writes of
	// every other key, as in SQLite. The rule that forbids it is skipped; the package
	// comment of the store says that it does.
	OneWriter bool
	// BeginWaits says that Begin waits while another transaction is open, as the begin of
	// SQLite's driver does. Rules that open two transactions are skipped, and the one by
	// which a plain Create knows what an open transaction holds.
	BeginWaits bool

	// Reopen ends the store as a crash would, kills its server if it can, and opens it
	// again over the same data. A transaction that was open must not be able to commit
	// after it. An embedded store copies its file first, then rolls open transactions back,
	// then opens the copy: to close the old store may write, or wait for a transaction.
	// Begin, if set, must then work on the reopened store. A store that does not survive a
	// crash leaves it nil.
	Reopen func() retrysafe.Store

	// Damage corrupts the stored bytes of a record, for example by flipping a bit, so that
	// it cannot be read. If a record is kept in several parts it damages one that a Swap
	// without Overwrite leaves alone. A store that keeps no bytes leaves it nil.
	Damage func(ref retrysafe.Ref) error

	// MaxBody is the largest answer body that the store can keep, in bytes. Zero means
	// that it keeps 1 MiB at least.
	MaxBody int

	ordinaryTerms bool // see withOrdinaryTerms
}

// Run tests the store that open returns against every rule of the contract, and against
// the rules about writes once more with the terms that most operations have. Each rule
// is a parallel subtest with a store of its own; Run returns when all are done.
func Run(t *testing.T, open func(t *testing.T) Harness) {
	t.Helper()
	hold(t, "contract", rules(), open)
	hold(t, "contract with ordinary terms", ordinaryRules(), func(t *testing.T) Harness { return open(t).withOrdinaryTerms() })
}

// RunTx tests only the rules about transactions, for a store that has several kinds of
// them. [Run] tests one kind against every rule.
func RunTx(t *testing.T, open func(t *testing.T) Harness) {
	t.Helper()
	hold(t, "contract", slices.Concat(txRules, txWriteRules, txWholeRules, besideRules, finishRules), open)
}

// A rule is one promise of the contract.
type rule = ruleFor[Harness, *kit]

func (h Harness) kit(t trial) *kit { return &kit{Harness: h, trial: t} }

// rules returns the whole contract.
func rules() []rule {
	return slices.Concat(createRules, swapRules, writeRules, fenceRules, uniformRules, clockRules, fidelityRules, wholeRules, inquiryRules, acceptedRules, keyRules, purgeRules, listRules, changeRules, damageRules, callRules, txRules, txWriteRules, txWholeRules, besideRules, finishRules, crashRules)
}
