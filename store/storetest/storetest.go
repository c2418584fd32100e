// Package storetest holds the contract of [retrysafe.Store] as a suite of
// rules. A store exists when the suite passes.
//
// Each rule is a promise in words with the reason why it matters; a store that
// fails prints the promise it broke. A store's own test needs one function:
//
//	func TestContract(t *testing.T) {
//		storetest.Run(t, func(t *testing.T) storetest.Harness {
//			return storetest.Harness{Store: mystore.New(nil)}
//		})
//	}
//
// The rules know nothing of any store. What a store can do beyond the five
// methods it declares in its [Harness], and the rules that need it run.
package storetest

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/retrysafe/retrysafe"
)

// A Harness is a store under test and what may be done to it. All but Store is
// optional.
type Harness struct {
	// Store is empty, and nobody else uses it or its data.
	Store retrysafe.Store
	// Peers are further handles on the same data, as other nodes of a
	// deployment hold them. Rules about races spread over Store and Peers.
	Peers []retrysafe.Store

	// Advance moves the store's clock forward, for all handles. Without it the
	// rules wait, by what the store itself says the time is.
	Advance func(time.Duration)

	// Begin opens a transaction of a store that shares one with its callers.
	Begin func(context.Context) (retrysafe.Tx, error)
	// OneWriter says that an open transaction which has taken a step holds up
	// every other writer, as in SQLite. Rules that write beside one are left out.
	OneWriter bool

	// Reopen ends the store as a crash would, kills whatever stands behind it if
	// it can, and opens it again over the same data. Begin, if set, must serve the
	// reopened store then. A store that does not survive a crash leaves it nil.
	Reopen func() retrysafe.Store

	// MaxBody is the largest answer body that the store can keep. Zero means
	// that it keeps 1 MiB at least.
	MaxBody int
}

// Run holds the store that open returns to every rule of the contract. Each
// rule is a parallel subtest with a store of its own; Run returns when all are
// done.
func Run(t *testing.T, open func(t *testing.T) Harness) {
	t.Helper()
	hold(t, "contract", rules(), open)
}

// RunTx holds only the rules about transactions, for a store that has several kinds
// of them: with one kind it is held to every rule by [Run].
func RunTx(t *testing.T, open func(t *testing.T) Harness) {
	t.Helper()
	hold(t, "contract", slices.Concat(txRules, txWriteRules, besideRules), open)
}

// A rule is one promise of the contract.
type rule = ruleFor[Harness, *kit]

func (h Harness) kit(t trial) *kit { return &kit{Harness: h, trial: t} }

// rules returns the whole contract.
func rules() []rule {
	return slices.Concat(createRules, swapRules, writeRules, fenceRules, clockRules, fidelityRules, inquiryRules, acceptedRules, keyRules, purgeRules, listRules, callRules, txRules, txWriteRules, besideRules, crashRules)
}
