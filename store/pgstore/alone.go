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

// moving is a transaction of a move: it knows the note, and has its locks.
type moving struct {
	pgx.Tx
	note storemove.Note
}

const (
	// A lock is waited for so long at first and at most; who comes after us waits
	// behind us. In between, and for twice as long, others go on.
	firstWait, longestWait = 100 * time.Millisecond, 3200 * time.Millisecond
	// lockTries is how often a lock is asked for, for two minutes in all.
	lockTries = 16
)

var errHeld = errors.New("transactions kept the tables for too long; try again when they have ended")

func (m *moving) followedBy(run retrysafe.Owner) bool {
	return m.note.IsBy(storemove.Followed, run)
}

func (m *moving) filledBy(run retrysafe.Owner) bool {
	return m.note.IsBy(storemove.Filling, run)
}

// alone does a step of a move, in a transaction that has taken the locks that lock
// asks for. It returns when the step has committed, and is certain to stay.
func (s *Store) alone(ctx context.Context, verb, lock string, do func(ctx context.Context, tx moving) error) error {
	err := s.patiently(ctx, lock, do)
	if err != nil {
		return fmt.Errorf("%s: %w", verb, explain(s.closedBy(err)))
	}
	return nil
}

// patiently asks for the locks again and again. A transaction that has others'
// locks, and waits for ours, ends by our giving up.
func (s *Store) patiently(ctx context.Context, lock string, do func(ctx context.Context, tx moving) error) error {
	for n, wait := 1, firstWait; ; n, wait = n+1, min(2*wait, longestWait) {
		locked, err := s.once(ctx, lock, wait, do)
		if locked || !isCode(err, "55P03", "40P01") {
			return err
		}
		if n == lockTries {
			return fmt.Errorf("%w: %w", errHeld, err)
		}
		rest(ctx, 2*wait)
		if ctx.Err() != nil {
			return errors.Join(ctx.Err(), err)
		}
	}
}

// once does a step, and says whether it got its locks.
func (s *Store) once(ctx context.Context, lock string, wait time.Duration, do func(ctx context.Context, tx moving) error) (locked bool, err error) {
	_, tx, err := s.BeginTx(ctx)
	if err != nil {
		return false, err
	}
	defer func() { _ = tx.Rollback(context.WithoutCancel(ctx)) }() // does nothing once it is committed
	// A mover that is silent for long may be gone, and nobody is to wait for it.
	if _, err := tx.Exec(ctx, `SELECT set_config('lock_timeout', $1, true), set_config('statement_timeout', '0', true),
       set_config('idle_in_transaction_session_timeout', '30s', true), `+audibly+`, `+durably, fmt.Sprintf("%dms", wait.Milliseconds())); err != nil {
		return false, err
	}
	if _, err := tx.Exec(ctx, s.moveSQL(lock)); err != nil {
		return false, err
	}
	n, err := s.readNote(ctx, tx)
	if err != nil {
		return true, err
	}
	if err := do(ctx, moving{tx, n}); err != nil {
		return true, err
	}
	return true, tx.Commit(ctx)
}
