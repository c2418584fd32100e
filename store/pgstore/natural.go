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

// ErrIsolation says that a transaction is not READ COMMITTED. In a stricter one
// what is read after a wait is what was there before it.
var ErrIsolation = errors.New("the transaction is not READ COMMITTED: after the wait it would not see what the other has committed")

// LockNatural locks a natural key, such as "transfer:A:B:2026-07", until the
// transaction ends, and waits for another that holds it. What the next statement
// reads includes all that the other has committed: so "look whether it is done,
// else do it" is safe where there is no row yet that could be locked.
//
// The lock is advisory: it keeps out who asks for it and nobody else, so a unique
// constraint stays worth having. It is on 64 bits of a hash, in a space apart from
// the locks of the store and from all that are taken by a single number. Two keys
// with one hash wait for each other, and nothing worse. Who locks several keys
// takes them in one order everywhere, or risks a deadlock, which the server ends.
//
// The wait ends with ctx or the session's lock_timeout. A lock that was not had is
// an error that rolls the transaction back, so that a caller who ignores it cannot
// commit; of a savepoint, only the savepoint. [ErrIsolation]: not in this
// transaction.
func LockNatural(ctx context.Context, tx pgx.Tx, key string) error {
	return lockNatural(ctx, native{tx}, key)
}

// LockNaturalSQL is [LockNatural] for database/sql, under any driver for PostgreSQL.
func LockNaturalSQL(ctx context.Context, tx *sql.Tx, key string) error {
	return lockNatural(ctx, standard{tx}, key)
}

// TryLockNatural is [LockNatural] without the wait: it reports whether the key is
// locked now. One that another transaction holds is no error, and leaves this
// transaction as it was.
func TryLockNatural(ctx context.Context, tx pgx.Tx, key string) (bool, error) {
	return tryLockNatural(ctx, native{tx}, key)
}

// TryLockNaturalSQL is [TryLockNatural] for database/sql.
func TryLockNaturalSQL(ctx context.Context, tx *sql.Tx, key string) (bool, error) {
	return tryLockNatural(ctx, standard{tx}, key)
}

// The form with two numbers has a space of its own. The isolation comes first:
// nobody waits for a lock that he may not use.
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

// naturalLock is a key as the two numbers of an advisory lock.
func naturalLock(key string) (high, low int32) {
	sum := sha256.Sum256([]byte(key))
	return int32(binary.BigEndian.Uint32(sum[:4])), int32(binary.BigEndian.Uint32(sum[4:8]))
}
