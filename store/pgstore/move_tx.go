package pgstore

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/internal/storemove"
)

// moveTx is the transaction of one step of a move. It has taken its locks, and has read
// the note after that.
type moveTx struct {
	pgx.Tx
	note storemove.Note
}

func (tx *moveTx) followedBy(run retrysafe.Owner) bool {
	return tx.note.IsBy(storemove.Followed, run)
}

func (tx *moveTx) filledBy(run retrysafe.Owner) bool {
	return tx.note.IsBy(storemove.Filling, run)
}

// A moveStep is what a step of a move does in its transaction.
type moveStep func(ctx context.Context, tx moveTx) error

const (
	// A step waits for its locks this long at first and at most, because other
	// transactions queue behind it. It then lets them go on for twice as long.
	firstLockWait, longestLockWait = 100 * time.Millisecond, 3200 * time.Millisecond
	// lockTries is how often a step asks for its locks, for two minutes in all.
	lockTries = 16
)

var errLocksHeld = errors.New("transactions kept the tables for too long; try again when they have ended")

// do runs a step in a transaction that has taken the locks that lock asks for. It
// returns when the step has committed and, where commits wait for a standby, has reached
// it.
func (m *mover) do(ctx context.Context, verb string, lock *statement, step moveStep) error {
	err := m.retryLock(ctx, lock, step)
	if err != nil {
		return fmt.Errorf("%s: %w", verb, explain(m.s.closedBy(err)))
	}
	return nil
}

// retryLock runs a step, and tries again if it did not get its locks. Giving up in
// between ends a deadlock with a transaction that holds some of them.
func (m *mover) retryLock(ctx context.Context, lock *statement, step moveStep) error {
	for n, wait := 1, firstLockWait; ; n, wait = n+1, min(2*wait, longestLockWait) {
		locked, err := m.tryLock(ctx, lock, wait, step)
		if locked || !isCode(err, "55P03", "40P01") {
			return err
		}
		if n == lockTries {
			return fmt.Errorf("%w: %w", errLocksHeld, err)
		}
		pause(ctx, 2*wait)
		if ctx.Err() != nil {
			return errors.Join(ctx.Err(), err)
		}
	}
}

// tryLock runs a step once, and reports whether it got its locks.
func (m *mover) tryLock(ctx context.Context, lock *statement, wait time.Duration, step moveStep) (locked bool, err error) {
	tx, err := m.s.begin(ctx)
	if err != nil {
		return false, err
	}
	defer func() { _ = tx.Rollback(context.WithoutCancel(ctx)) }() // does nothing once it is committed
	// If the process that moves stops in the middle, the server ends its transaction.
	if _, err := tx.Exec(ctx, m.s.moveSQL.settings.sql, fmt.Sprintf("%dms", wait.Milliseconds())); err != nil {
		return false, err
	}
	if _, err := tx.Exec(ctx, lock.sql); err != nil {
		return false, err
	}
	n, err := m.s.readNote(ctx, tx)
	if err != nil {
		return true, err
	}
	if err := step(ctx, moveTx{tx, n}); err != nil {
		return true, err
	}
	return true, tx.Commit(ctx)
}
