package pgstore

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
)

// ErrIsolation says that a transaction is not READ COMMITTED. In a stricter one a read
// after the wait returns what was there before the wait.
var ErrIsolation = errors.New("the transaction is not READ COMMITTED: after the wait it would not see what the other has committed")

// LockNatural locks a natural key, such as "transfer:A:B:2026-07", until the transaction
// ends. If another transaction holds the lock it waits. The next statement sees all that
// the other has committed: so "look whether it is done, else do it" is safe where there
// is no row yet that could be locked.
//
// The lock is advisory: it keeps out only transactions that ask for it, so a unique
// constraint stays worth having. It is on 64 bits of a hash, in a space apart from the
// locks of the store and from all that are taken by a single number. If two keys have the
// same hash their transactions wait for each other, and nothing worse. Transactions that
// lock several keys must take them in the same order, or risk a deadlock, which the
// server ends.
//
// The wait ends with ctx or the session's lock_timeout. If the lock was not taken the
// transaction is rolled back, so that a caller that ignores the error cannot commit; in a
// nested transaction, only the savepoint. [ErrIsolation] says that the transaction is not
// READ COMMITTED.
func LockNatural(ctx context.Context, tx pgx.Tx, key string) error {
	return lockNatural(ctx, native{tx}, key)
}

// LockNaturalSQL is [LockNatural] for database/sql, with any driver for PostgreSQL.
func LockNaturalSQL(ctx context.Context, tx *sql.Tx, key string) error {
	return lockNatural(ctx, standard{tx}, key)
}

// TryLockNatural is [LockNatural] without the wait: it reports whether the transaction has
// the lock now. If another transaction holds it there is no error, and this transaction
// goes on.
func TryLockNatural(ctx context.Context, tx pgx.Tx, key string) (bool, error) {
	return tryLockNatural(ctx, native{tx}, key)
}

// TryLockNaturalSQL is [TryLockNatural] for database/sql.
func TryLockNaturalSQL(ctx context.Context, tx *sql.Tx, key string) (bool, error) {
	return tryLockNatural(ctx, standard{tx}, key)
}

// The form with two numbers has a space of its own. The isolation is checked first, so
// that a transaction does not wait for a lock that it may not use.
const (
	lockNaturalKey = `SELECT CASE WHEN current_setting('transaction_isolation') LIKE 'read %'
            THEN pg_advisory_xact_lock($1::int, $2::int)::text = '' END`
	tryNaturalKey = `SELECT CASE WHEN current_setting('transaction_isolation') LIKE 'read %'
            THEN pg_try_advisory_xact_lock($1::int, $2::int) END`
)

func lockNatural(ctx context.Context, tx joined, key string) error {
	_, err := askNatural(ctx, tx, lockNaturalKey, key)
	return err
}

func tryLockNatural(ctx context.Context, tx joined, key string) (bool, error) {
	return askNatural(ctx, tx, tryNaturalKey, key)
}

func askNatural(ctx context.Context, tx joined, ask, key string) (bool, error) {
	high, low := naturalLock(key)
	var locked *bool
	err := tx.query(ctx, ask, []any{high, low}, func(scan func(...any) error) error { return scan(&locked) })
	if err == nil && locked == nil {
		err = ErrIsolation
	}
	if err != nil {
		err = fmt.Errorf("pgstore: lock natural key: %w", explain(err))
		return false, errors.Join(err, tx.rollback(context.WithoutCancel(ctx)))
	}
	return *locked, nil
}

// naturalLock is the two numbers of a key's advisory lock.
func naturalLock(key string) (high, low int32) {
	sum := sha256.Sum256([]byte(key))
	return int32(binary.BigEndian.Uint32(sum[:4])), int32(binary.BigEndian.Uint32(sum[4:8]))
}
