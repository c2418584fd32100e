// Package inbox lets a consumer apply each message once, however often it is delivered.
//
// A broker, a webhook and an outbox deliver at least once. An [Inbox] writes the
// message's key into a table of the consumer's own database, in the transaction
// that has the message's effects: they are committed together or not at all.
//
//	ledger, err := inbox.PGX(pool, "ledger", nil)
//	...
//	fresh, err := ledger.Once(ctx, m, func(ctx context.Context, tx pgx.Tx) error {
//		_, err := tx.Exec(ctx, `UPDATE accounts SET balance = balance + $1 WHERE id = $2`, amount, account)
//		return err
//	})
//	if err == nil {
//		// Acknowledge the message to the broker, whether it was fresh or not.
//	}
//
// The key belongs to the message: the id of the payment, or the key that the outbox
// gave it. An offset or a delivery number is not a key: the same message may be
// delivered again under another one.
//
// Effects outside the transaction, such as an e-mail or a call of another service, may
// happen more than once. Enqueue them in the same transaction with an outbox.
//
// A key is remembered for at least [Options.Keep]. That must be longer than a
// redelivery can take: the broker's retention, the sender's retries, and the time until
// an operator redrives dead letters.
package inbox
