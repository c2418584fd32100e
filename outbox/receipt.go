package outbox

import (
	"context"
	"fmt"
	"time"

	"github.com/retrysafe/retrysafe"
)

// A KeptReceipt is what a store keeps of a message that was delivered, for as long as
// [Options.KeepReceipts] of its worker says.
type KeptReceipt struct {
	// ID, Topic and Key are the message's. Key is what the receiver got.
	ID         int64
	Topic, Key string
	// Settled is the key whose answer the delivery gave. Zero: none.
	Settled retrysafe.Ref
	// ProviderRef is the receiver's own name for the effect. Empty: it gave none.
	ProviderRef string
	// Delivered is when the message was acknowledged, and Expires when the receipt is
	// forgotten, both by the store's clock.
	Delivered, Expires time.Time
}

// A ReceiptQuery selects receipts. Both conditions must hold; zero values select all.
type ReceiptQuery struct {
	// ProviderRef is the receiver's own name for the effect.
	ProviderRef string
	// Settled is the key whose answer the delivery gave.
	Settled retrysafe.Ref
	// After is the id of the message after which the list begins.
	After int64
	// Limit is how many receipts are returned at most.
	Limit int
}

// A ReceiptKeeper is a store that keeps receipts of delivered messages, which
// [Ack.Keep] asks for. The receipt is stored in the step that deletes the message, and
// at most once for each message. When it has expired no list has it, and
// [retrysafe.Store.Purge] of the store that has the keys deletes it.
type ReceiptKeeper interface {
	// Receipts returns receipts that have not expired, in the order of their ids. With a
	// Limit of zero it reads nothing, and returns none or why the store keeps none.
	Receipts(ctx context.Context, q ReceiptQuery) ([]KeptReceipt, error)
	// ForgetReceipts deletes the receipts of all messages that settled a key. Operators
	// call it when the content of the key has to be erased.
	ForgetReceipts(ctx context.Context, settled retrysafe.Ref) error
}

// checkReceipts returns an error if receipts are to be kept and the store cannot.
func (o *Options) checkReceipts(s Store) error {
	if o.KeepReceipts == 0 {
		return nil
	}
	keeper, ok := s.(ReceiptKeeper)
	if !ok {
		return fmt.Errorf("outbox: KeepReceipts is %v, and %T keeps no receipts; leave it at zero, or use a store that is a ReceiptKeeper", o.KeepReceipts, s)
	}
	if _, err := keeper.Receipts(context.Background(), ReceiptQuery{}); err != nil {
		return fmt.Errorf("outbox: KeepReceipts is %v, and the store keeps no receipts: %w", o.KeepReceipts, err)
	}
	return nil
}
