package storetest

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/outbox"
)

// An OutboxHarness is an outbox under test and its capabilities. Store, Outbox and
// Begin are required.
type OutboxHarness struct {
	// Store keeps the records that messages settle.
	Store retrysafe.Store
	// Outbox is empty and used by nothing else. If it is a DepthReporter, a Skipper, a
	// ReceiptKeeper, a QuickReader or a CommitNotifier too, the rules for those run.
	Outbox outbox.Store
	// Peers are further handles on the same data, as other nodes hold them.
	Peers []outbox.Store
	// Begin opens a transaction that messages can join.
	Begin func(context.Context) (OutboxTx, error)
	// OneWriter says that a transaction which has enqueued blocks every other writer,
	// as in SQLite: there no transaction overtakes another.
	OneWriter bool
	// Advance moves the store's clock forward. Without it the rules wait.
	Advance func(time.Duration)
	// Damage corrupts the stored bytes of a waiting message.
	Damage func(id int64) error
}

// An OutboxTx is a transaction that messages can join.
type OutboxTx interface {
	outbox.Enqueuer
	Commit(ctx context.Context) error
	Rollback(ctx context.Context) error
}

// RunOutbox tests the outbox that open returns against every rule of the contract of
// [outbox.Store] and [outbox.Enqueuer]. Each rule is a parallel subtest with an outbox
// of its own; RunOutbox returns when all are done.
func RunOutbox(t *testing.T, open func(t *testing.T) OutboxHarness) {
	t.Helper()
	hold(t, "outbox", outboxRules(), open)
}

// RunOutboxTx tests only the rules about what a transaction enqueues, like [RunTx].
func RunOutboxTx(t *testing.T, open func(t *testing.T) OutboxHarness) {
	t.Helper()
	hold(t, "outbox", slices.Concat(enqueueRules, notifyRules), open)
}

// An outboxRule is one promise of the contract.
type outboxRule = ruleFor[OutboxHarness, *outboxKit]

func (h OutboxHarness) kit(t trial) *outboxKit { return &outboxKit{OutboxHarness: h, trial: t} }

// outboxRules returns the whole contract.
func outboxRules() []outboxRule {
	return slices.Concat(enqueueRules, notifyRules, dueRules, quickRules, leaseRules, endRules, uniformEndRules, letterRules, failingRules, receiptRules)
}

func needsOvertaking(h OutboxHarness) string {
	if h.OneWriter {
		return "no transaction overtakes another"
	}
	return ""
}

func needsDamage(h OutboxHarness) string {
	if h.Damage == nil {
		return "nothing can be damaged"
	}
	return ""
}

func needsGauge(h OutboxHarness) string {
	if _, ok := h.Outbox.(outbox.DepthReporter); !ok {
		return "the outbox is no gauge"
	}
	return ""
}

func needsSkipper(h OutboxHarness) string {
	if _, ok := h.Outbox.(outbox.Skipper); !ok {
		return "the outbox is no skipper"
	}
	return ""
}
