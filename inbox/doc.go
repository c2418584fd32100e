// Package inbox lets a consumer apply each message once, however often it is
// delivered.
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
//		// Tell the broker that it is done, whether it was fresh or not.
//	}
//
// The key is the message's own: the id of the payment, the key that the outbox
// gave it. An offset or a delivery's number is none; the same message may come
// again under another.
//
// What is not in the transaction, such as an e-mail or a call of another service,
// is not done once by this. Enqueue it in the same transaction with an outbox.
//
// A key is remembered for [Options.Keep] at least. That must be longer than a
// message can take to come again: the broker's retention, the sender's retries, and
// the time until somebody sends dead letters again.
package inbox
