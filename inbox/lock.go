package inbox

import (
	"context"
	"errors"
)

// migrationLock is the key of PostgreSQL's advisory lock under which the tables are
// changed.
const migrationLock = 0x7265747279696e62 // "retryinb"

// lockAndDo runs do under the migration lock, in a PostgreSQL transaction that has just
// begun, and commits it.
func lockAndDo(ctx context.Context, tx transaction, do func(session) error) error {
	_, err := tx.exec(ctx, `SELECT pg_advisory_xact_lock($1::bigint)`, int64(migrationLock))
	if err == nil {
		// If a table is in use, the migration waits no longer than this, and so do the
		// statements that queue behind it.
		_, err = tx.exec(ctx, `SET LOCAL lock_timeout = '5s'`)
	}
	if err == nil {
		err = do(tx)
	}
	if err != nil {
		return errors.Join(err, tx.rollback(context.WithoutCancel(ctx)))
	}
	return tx.commit(context.WithoutCancel(ctx))
}
